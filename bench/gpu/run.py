# SPDX-License-Identifier: Apache-2.0
"""The kernels for CUDA devices against the device's own copy of memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import report
from report import BenchError, Goal, Json

SKIPPED = 77
# Of the copy's bytes per second.
GOALS = {
    "adamw 16-bit": 0.93,
    "int8 quantize": 0.90,
    "int8 dequantize": 0.90,
    "int4 quantize": 0.90,
    "int4 dequantize": 0.90,
    "sum of 8 int4": 0.85,
}
DIRECT, BY_F16 = "int8 quantize of bf16", "cast to f16, int8 quantize"
DIRECT_GOAL = 2.0  # times as fast


def measure(arguments: argparse.Namespace) -> Json:
    program = arguments.build / "bench/gpu/bench_gpu_kernels"
    if not program.exists():
        raise BenchError("the kernels for CUDA devices were not built: there is no nvcc")
    words = [str(program), "--repeats", str(arguments.repeats)]
    if arguments.elements is not None:
        words += ["--elements", str(arguments.elements)]
    if arguments.quick:
        words.append("--quick")
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == SKIPPED:
        raise BenchError(done.stderr.strip())
    if done.returncode != 0:
        raise BenchError(
            f"{program.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
        )
    measured: Json = json.loads(done.stdout)
    return measured


def goals_of(rows: dict[str, Json]) -> list[Goal]:
    goals = [Goal(f"{name}, of the copy", rows[name]["of_copy"], at) for name, at in GOALS.items()]
    times = rows[BY_F16]["seconds"] / rows[DIRECT]["seconds"]
    return [*goals, Goal(f"{DIRECT}, times as fast as by f16", times, DIRECT_GOAL)]


def main() -> None:
    parser = report.parser("gpu", __doc__ or "")
    parser.add_argument("--elements", type=int, metavar="N", help="of each array, at most (2^30)")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="turns (15)")
    arguments = parser.parse_args()
    measured = measure(arguments)
    print(f"{measured['device']}, copy {measured['copy_gb_per_second']:.0f} GB/s\n")
    table = [["", "elements", "ms", "GB/s", "of the copy"]]
    for row in measured["rows"]:
        cells = [f"{row['elements']}", f"{row['seconds'] * 1e3:.2f}"]
        cells += [f"{row['gb_per_second']:.0f}", f"{row['of_copy']:.2f}"]
        table.append([row["name"], *cells])
    print(f"{report.columns(table)}\n")
    goals = goals_of({row["name"]: row for row in measured["rows"]})
    report.finish("gpu", arguments, goals, 0.0, **measured)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
