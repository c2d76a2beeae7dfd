"""``trainer bench matmul``: the self-check's benchmark by itself, with a longer budget."""

from __future__ import annotations

import argparse
import json


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = subparsers.add_parser("bench", help="benchmarks of this machine")
    commands = bench.add_subparsers(dest="bench_command", metavar="COMMAND", required=True)
    matmul = commands.add_parser(
        "matmul",
        help="matrix products on all devices at once: TFLOPS, error, repeatability",
        description="Random square matrices, the median of many runs, the error against float64 and bit equality "
        "of the repeats. The size follows from the time budget, so that it ends on any machine.",
    )
    matmul.add_argument("--seconds", type=float, default=3.0, help="time budget a dtype (default: 3)")
    matmul.add_argument(
        "--dtype", action="append", choices=["fp32", "tf32", "fp16", "bf16"], help="default: all that apply"
    )
    matmul.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    matmul.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from ..selfcheck.devices import torch_devices
    from ..selfcheck.matmul import figures
    from ..selfcheck.render import matmul_table

    devices = torch_devices()
    measured = figures(devices, arguments.seconds, arguments.dtype, None)
    if arguments.json:
        print(
            json.dumps(
                [figure.model_dump(mode="json", by_alias=True, exclude_none=True) for figure in measured]
            )
        )
    else:
        from rich.console import Console

        Console().print(matmul_table(measured))
    return 0
