# SPDX-License-Identifier: Apache-2.0
"""Kernels for CUDA devices against the device's own copy of memory, and the link to the host."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

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
BOTH_WAYS_GOAL = 1.7  # of one way's rate
QUICK_LINK_BYTES = 1 << 26


def run_program(program: Path, words: list[str]) -> Json:
    if not program.exists():
        raise BenchError("the programs for CUDA devices were not built: there is no nvcc")
    done = subprocess.run(
        [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode == SKIPPED:
        raise BenchError(done.stderr.strip())
    if done.returncode != 0:
        raise BenchError(
            f"{program.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
        )
    measured: Json = json.loads(done.stdout)
    return measured


def measure_kernels(arguments: argparse.Namespace) -> Json:
    words = ["--repeats", str(arguments.repeats)]
    if arguments.elements is not None:
        words += ["--elements", str(arguments.elements)]
    if arguments.quick:
        words.append("--quick")
    return run_program(arguments.build / "bench/gpu/bench_gpu_kernels", words)


def measure_link(arguments: argparse.Namespace) -> Json:
    words = ["--repeats", str(arguments.repeats)]
    if arguments.quick:
        words += ["--bytes", str(QUICK_LINK_BYTES)]
    return run_program(arguments.build / "bench/gpu/bench_gpu_link", words)


def goals_of(rows: dict[str, Json]) -> list[Goal]:
    goals = [Goal(f"{name}, of the copy", rows[name]["of_copy"], at) for name, at in GOALS.items()]
    times = rows[BY_F16]["seconds"] / rows[DIRECT]["seconds"]
    return [*goals, Goal(f"{DIRECT}, times as fast as by f16", times, DIRECT_GOAL)]


def main() -> None:
    parser = report.parser("gpu", __doc__ or "")
    parser.add_argument("--elements", type=int, metavar="N", help="of each array, at most (2^30)")
    parser.add_argument("--repeats", type=int, default=15, metavar="N", help="turns (15)")
    arguments = parser.parse_args()
    measured = measure_kernels(arguments)
    link = measure_link(arguments)
    print(f"{measured['device']}, copy {measured['copy_gb_per_second']:.0f} GB/s\n")
    table = [["", "elements", "ms", "GB/s", "of the copy"]]
    for row in measured["rows"]:
        cells = [f"{row['elements']}", f"{row['seconds'] * 1e3:.2f}"]
        cells += [f"{row['gb_per_second']:.0f}", f"{row['of_copy']:.2f}"]
        table.append([row["name"], *cells])
    print(f"{report.columns(table)}\n")
    ways = [link[f"{way}_gb_per_second"] for way in ("up", "down", "both")]
    print("Link to the host, GB/s: up {:.1f}, down {:.1f}, both at a time {:.1f}\n".format(*ways))
    goals = goals_of({row["name"]: row for row in measured["rows"]})
    goals.append(Goal("link both ways, of one way", link["both_of_one_way"], BOTH_WAYS_GOAL))
    report.finish("gpu", arguments, goals, 0.0, link=link, **measured)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
