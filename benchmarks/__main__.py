"""`make bench`: the program's own speed against the limits it is held to. `--json` for machines."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from localcloud import release
from localcloud.toolchain import ROOT, Failed, cache

from . import checkpoints, planning, previews, scrape, training


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")
    parser.add_argument("--rounds", type=int, default=3, help="how often each preview is taken (default 3)")
    asked = parser.parse_args()
    try:
        release.build(release.SOURCE, release.LOCK_FILE, ROOT / "dist", release.wanted_abis(), cache())
        pure = planning.measure()
        few, many = previews.measure(asked.rounds)
        scraped = scrape.measure()
        trained = training.measure()
        saved = checkpoints.measure()
    except (Failed, release.ReleaseError) as fault:
        print(f"bench: {fault}", file=sys.stderr)
        return 1
    ratio = many.median / few.median
    if asked.json:
        figures = {
            "planning": {"groups": planning.GROUPS, "seconds": pure.seconds, "limitSeconds": planning.LIMIT_SECONDS},
            "preview": {"groups": [previews.FEW, previews.MANY], "seconds": [few.seconds, many.seconds],
                        "ratio": ratio, "limitRatio": previews.LIMIT_RATIO},
            "scrape": scrape.to_json(scraped),
            "training": training.to_json(trained),
            "checkpoints": checkpoints.to_json(saved),
        }  # fmt: skip
        print(json.dumps(figures))
        return 0
    table = Table("what", "median", "lowest to highest", "held to")
    table.add_row(
        f"planning {planning.GROUPS} groups, pure", f"{pure.median:.2f} s", f"{pure.spread} s",
        f"under {planning.LIMIT_SECONDS:.0f} s",
    )  # fmt: skip
    table.add_row(f"preview, {previews.FEW} groups", f"{few.median:.1f} s", f"{few.spread} s", "")
    table.add_row(f"preview, {previews.MANY} groups", f"{many.median:.1f} s", f"{many.spread} s", "")
    table.add_row("many to few", f"{ratio:.2f}", "", f"under {previews.LIMIT_RATIO}")
    for row in [*scrape.rows(scraped), *training.rows(trained), *checkpoints.rows(saved)]:
        table.add_row(*row)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
