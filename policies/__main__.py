"""Serves the rules to the engine (`pulumi preview --policy-pack policies`).

Rules live in `rules/`, never here: the pack's constructor starts a server and does not return.
"""

import gc

from pulumi_policy import Policy, PolicyPack
from rules import RULES  # pyright: ignore[reportMissingImports]  # the pack's folder is the import root here
from rules._preview import advise_at_preview  # pyright: ignore[reportMissingImports]

gc.disable()  # the pack lives for one preview or update and drops next to nothing
policies: list[Policy] = [rule.policy() for rule in RULES]
advise_at_preview(policies, [rule.id for rule in RULES if rule.advises_at_preview])
PolicyPack("gpu-training", policies=policies)
