"""``python -m trainer.disks --document FILE``: run by root, by trainer-disks.service, before the agent.

Ends with 1 where a mount is missing, for whoever looks at the unit; the agent starts all the same.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from functools import partial
from pathlib import Path

from ..agent.document import read_document
from ..contracts.lustre import LustreDocument
from ..contracts.node_document import NodeDocument
from ..errors import Fault, StoreError
from .prepare import Disks
from .report import REPORT

AGENT_USER = "trainer"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="trainer.disks", description="Put a node's disks together.")
    parser.add_argument("--document", type=Path, required=True, help="the node document")
    arguments = parser.parse_args(argv)
    try:
        document = read_document(arguments.document)
        agent = pwd.getpwnam(AGENT_USER)
    except (Fault, KeyError) as error:
        print(f"disks: {error}", file=sys.stderr)
        return 1
    disks = Disks(document, partial(read_lustre, document), (agent.pw_uid, agent.pw_gid))
    report = disks.prepare()
    part = REPORT.with_suffix(".part")
    part.write_text(report.to_json())
    part.chmod(0o644)
    os.replace(part, REPORT)
    return 1 if report.failures else 0


def read_lustre(document: NodeDocument, key: str) -> LustreDocument:
    """Raises StoreError, and pydantic's error for an object that is something else."""
    from ..store import Store

    fetched = Store(region=document.region).get(document.artifacts_bucket, key)
    if fetched is None:
        raise StoreError(f"there is no s3://{document.artifacts_bucket}/{key}")
    return LustreDocument.from_json(fetched.body)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
