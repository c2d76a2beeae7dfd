"""Rules that advise at preview and refuse at the update.

Whether it previews, the engine says when it configures the pack for a stack, before it asks for the policies. The SDK
(1.21) keeps the tags of that message only, so its servicer is extended here; a test asks the real engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pulumi_policy import EnforcementLevel, Policy
from pulumi_policy import policy as sdk


def advise_at_preview(policies: Iterable[Policy], ids: Collection[str]) -> None:
    """Make the policies of these ids advisory as soon as the engine says that it previews.

    To be called before the pack is made, whose constructor serves it and does not return.
    """
    advising = [policy for policy in policies if policy.name in ids]

    class Servicer(sdk._PolicyAnalyzerServicer):
        def ConfigureStack(self, request: Any, context: Any) -> Any:
            for policy in advising:
                policy.enforcement_level = (
                    EnforcementLevel.ADVISORY if request.dry_run else EnforcementLevel.MANDATORY
                )
            return super().ConfigureStack(request, context)

    sdk._PolicyAnalyzerServicer = Servicer
