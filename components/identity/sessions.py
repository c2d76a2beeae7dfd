"""How a session on a node is opened and what of it is kept. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable

from components.names import StackNames

IDLE_MINUTES = 20  # Session Manager allows 1 to 60
MAX_MINUTES = 720  # a working day; Session Manager allows 1 to 1440
# The user that the images' own documentation has people log in as, by a part of the image profile's name.
LOGIN_USERS = {"ubuntu": "ubuntu", "al2023": "ec2-user"}


def login_user(image_profiles: Iterable[str]) -> str | None:
    """The one user that is there on all of these images; None where they differ or one is not known.

    Session Manager then uses its own, ``ssm-user``, which it makes on each node. Neither is root; both may become it.
    """
    users = {
        next((user for part, user in LOGIN_USERS.items() if part in profile), None)
        for profile in image_profiles
    }
    return users.pop() if len(users) == 1 else None


def session_document(names: StackNames, user: str | None, encrypted: bool) -> str:
    """The content of the Session Manager document: schema 1.0, Standard_Stream.

    Everything that is typed and shown goes to the stack's log group while the session runs, not only at its end. A
    principal's tag SSMSessionRunAs takes precedence over ``user``. ``encrypted``: the log group has a key of its own,
    and a session is refused where that is no longer so.
    """
    content = {
        "schemaVersion": "1.0",
        "description": f"Logged sessions on the nodes of {names.base_name}",
        "sessionType": "Standard_Stream",
        "inputs": {
            "cloudWatchLogGroupName": names.session_log_group,
            "cloudWatchEncryptionEnabled": encrypted,
            "cloudWatchStreamingEnabled": True,
            "idleSessionTimeout": str(IDLE_MINUTES),
            "maxSessionDuration": str(MAX_MINUTES),
            "runAsEnabled": user is not None,
            "runAsDefaultUser": user or "",
            "shellProfile": {"linux": "exec bash -l"},
        },
    }
    return json.dumps(content, sort_keys=True)
