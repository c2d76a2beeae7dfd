"""A shell on a node by Session Manager, or with PORT a port of it on this machine: 8888 for Jupyter, 6006 for
TensorBoard. Sessions are logged; there is no SSH, no key and no open port.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence

from components.names import stack_names

from . import command, local
from .account import open_account
from .fleet import Node, read_groups
from .refusal import Refused
from .stack_file import settings_of

FORWARDING = "AWS-StartPortForwardingSession"
REACHABLE = ("InService", "Pending:Wait", "Terminating:Wait", "Standby", "EnteringStandby")
NEEDED = {
    "aws": "the AWS CLI (docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html)",
    "session-manager-plugin": "the AWS CLI's Session Manager plugin "
    "(docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html)",
}


def choose(nodes: Sequence[Node], wanted: str | None) -> Node:
    """The node that is wanted, or the only one there is. Refused with the list otherwise."""
    reachable = [node for node in nodes if node.state in REACHABLE]
    listed = "".join(
        f"\n  NODE={n.instance_id}  {n.group}, {n.instance_type}, {n.zone}, {n.state}" for n in nodes
    )
    if wanted is not None:
        found = [node for node in nodes if node.instance_id == wanted]
        if not found:
            there = f"there are:{listed}" if nodes else "it has none"
            raise Refused(f"{wanted} is no node of this stack; {there}")
        return found[0]
    if len(reachable) == 1:
        return reachable[0]
    if not reachable:
        raise Refused(f"no node can be reached{f':{listed}' if nodes else '; the groups are empty'}")
    raise Refused(f"which node? give one of:{listed}")


def argv_of(
    instance_id: str, region: str, session_document: str, port: int | None, local_port: int | None
) -> list[str]:
    """The AWS CLI's command line: the stack's own document for a shell, AWS's for a port."""
    argv = ["aws", "ssm", "start-session", "--region", region, "--target", instance_id]
    if port is None:
        return [*argv, "--document-name", session_document]
    ports = {"portNumber": [str(port)], "localPortNumber": [str(local_port or port)]}
    return [*argv, "--document-name", FORWARDING, "--parameters", json.dumps(ports)]


def missing_tool() -> str | None:
    """What this machine lacks, in words; None when it has all."""
    for name, what in NEEDED.items():
        if shutil.which(name) is None:
            return f"there is no {name} on your PATH: install {what}"
    return None


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser("connect", __doc__)
    parser.add_argument("--node", help="instance id; not needed where there is one node")
    parser.add_argument("--port", type=int, help="forward this port of the node instead of opening a shell")
    parser.add_argument("--local-port", type=int, help="port on this machine (default: the same)")
    asked = parser.parse_args(argv)

    def body() -> int:
        if local.is_local(asked.stack):
            local.refuse_connect()
        settings = settings_of(asked.stack)
        if asked.node is not None and not re.fullmatch(r"i-[0-9a-f]{8,17}", asked.node):
            raise Refused(f"NODE={asked.node} is no instance id, such as i-0123456789abcdef0")
        for port in (asked.port, asked.local_port):
            if port is not None and not 1 <= port <= 65535:
                raise Refused(f"{port} is no TCP port")
        if (missing := missing_tool()) is not None:
            raise Refused(missing)
        groups = read_groups(open_account(settings), settings)
        node = choose([node for group in groups for node in group.nodes], asked.node)
        document = stack_names(settings).session_document
        command_line = argv_of(node.instance_id, settings.region, document, asked.port, asked.local_port)
        if asked.port is not None:
            here = asked.local_port or asked.port
            print(
                f"make connect: http://localhost:{here} is port {asked.port} of {node.instance_id}; Ctrl-C ends it"
            )
        else:
            print(f"make connect: {node.instance_id} of {node.group}; the session is logged; `exit` ends it")
        sys.stdout.flush()
        os.execvp(command_line[0], command_line)  # the session has this terminal to itself

    return command.guarded("connect", body)


if __name__ == "__main__":
    sys.exit(main())
