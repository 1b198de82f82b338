# SPDX-License-Identifier: Apache-2.0
"""What Lightning's Trainer with MeronStrategy takes beyond a loop over meron.zero."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import report
from report import Goal, Json, median

RANK = Path(__file__).with_name("rank.py")


def measure(arguments: argparse.Namespace, stage: int | None) -> Json:
    """Of one stage; None: of DDP, without Meron."""
    words = [arguments.build / "tools/meron/meron", "run", "-n", str(arguments.ranks), "--"]
    words += [sys.executable, "-B", RANK, "--steps", str(arguments.steps)]
    words += ["--rounds", str(arguments.rounds), "--rows", str(arguments.rows)]
    words += [] if stage is None else ["--stage", str(stage)]
    return report.run_ranks(words, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})


def compare(stage: int, run: Json) -> tuple[list[str], list[Goal]]:
    """A row of the table, and the goals."""
    loop, fit = median([*run["loop"], *run["again"]]), median(run["fit"])
    noise = median(run["again"]) / median(run["loop"])
    own = median(whole - within for whole, within in zip(run["fit"], run["within"]))
    strategy = median(run["within"]) / loop
    held = run["bytes"]["fit"] / run["bytes"]["loop"]
    row = [f"stage {stage}", f"{loop:.2f}", f"{noise:.3f}", f"{fit:.2f}", f"{fit / loop:.3f}"]
    row += [f"{own:.2f}", f"{strategy:.3f}", f"{held:.3f}"]
    return row, [
        Goal(f"stage {stage}, step time of the loop's", fit / loop, 1.02, False),
        Goal(f"stage {stage}, within the strategy, of the loop's", strategy, 1.02, False),
        Goal(f"stage {stage}, memory of the loop's", held, 1, False),
    ]


def main() -> None:
    parser = report.parser("lightning", __doc__ or "")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--stages", default="1,2,3", metavar="A,B", help="of ZeRO (default: %(default)s)"
    )
    parser.add_argument(
        "--rows", type=int, default=8, metavar="N", help="of a rank's batch (default: 8)"
    )
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="a turn (default: 2)")
    parser.add_argument(
        "--rounds", type=int, default=40, metavar="N", help="turns of each arm (default: 40)"
    )
    arguments = parser.parse_args()
    stages = arguments.stages.split(",")
    if not set(stages) <= {"0", "1", "2", "3"}:
        raise report.BenchError(f"--stages {arguments.stages}: stages are 0, 1, 2 and 3")
    if min(arguments.ranks, arguments.rows, arguments.steps, arguments.rounds) < 1:
        raise report.BenchError("--ranks, --rows, --steps and --rounds must be 1 or more")
    for module in ("torch", "lightning"):
        if not report.has_module(module):
            raise report.BenchError(
                f"{module} is not installed (tools/setup --integrations brings it)"
            )
    if arguments.quick:
        arguments.steps, arguments.rounds = 2, 1
    arguments.build = arguments.build.resolve()
    series = []
    heads = ["", "loop, ms", "again, x", "Trainer, ms", "x", "Lightning's own, ms"]
    rows = [[*heads, "strategy, x", "held, x"]]
    goals: list[Goal] = []
    for stage in map(int, stages):
        run = measure(arguments, stage)
        row, of_stage = compare(stage, run)
        rows.append(row)
        goals += of_stage
        series.append({"stage": stage, "ranks": arguments.ranks, **run})
    plain = measure(arguments, None)
    loop, fit = median(plain["loop"]), median(plain["fit"])
    rows.append(["DDP", f"{loop:.2f}", "", f"{fit:.2f}", f"{fit / loop:.3f}"])
    rows[-1] += [f"{fit - loop:.2f}", "", ""]
    series.append({"stage": None, "ranks": arguments.ranks, **plain})
    print(f"A GPT of 3.3 million parameters, {arguments.rows} x 64 tokens a rank, ", end="")
    print(f"{arguments.ranks} ranks, one thread each; medians.")
    print("x: of the loop's. again: a second loop, so what noise makes of the same work.")
    print("held: what a rank holds between steps.\n")
    print(report.columns(rows), end="\n\n")
    report.finish("lightning", arguments, goals, 0.0, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
