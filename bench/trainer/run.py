# SPDX-License-Identifier: Apache-2.0
"""Measures the time of Lightning's Trainer with MeronStrategy beyond a loop over meron.zero."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import report
from arguments import names_of, whole
from report import Goal, Json, median

RANK = Path(__file__).with_name("rank.py")
ARMS = ("loop", "again", "fit", "within")


def measure(arguments: argparse.Namespace, stage: int | None) -> Json:
    """Results of one stage. If `stage` is None, the results of DDP alone."""
    words = [arguments.build / "tools/meron/meron", "run", "-n", str(arguments.ranks), "--"]
    words += [sys.executable, "-B", RANK, "--steps", str(arguments.steps)]
    words += ["--rounds", str(arguments.rounds), "--rows", str(arguments.rows)]
    words += [] if stage is None else ["--stage", str(stage)]
    return report.run_ranks(words, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})


def turns(run: Json, steps: int) -> list[Json]:
    """Milliseconds of each turn: of both loops, the Trainer, and what of it is the strategy's."""
    arms = {arm: ms[len(ms) - len(run["fit"]) :] for arm, ms in run.items() if arm in ARMS and ms}
    return [
        {arm: sum(ms[i : i + steps]) for arm, ms in arms.items()}
        for i in range(0, len(run["fit"]), steps)
    ]


def figures(runs: list[Json], steps: int) -> Json:
    """Medians: milliseconds of a step, and ratios of turns, whose arms ran within seconds of each
    other."""
    every = [turn for run in runs for turn in turns(run, steps)]
    loops = [(turn["loop"] + turn["again"]) / 2 for turn in every]
    found = {
        "loop": median(loops) / steps,
        "again": median(turn["again"] / turn["loop"] for turn in every),
        "fit": median(turn["fit"] for turn in every) / steps,
        "x": median(turn["fit"] / loop for turn, loop in zip(every, loops)),
    }
    if "within" in every[0]:
        found["own"] = median(turn["fit"] - turn["within"] for turn in every) / steps
        found["strategy"] = median(turn["within"] / loop for turn, loop in zip(every, loops))
    return found


def compare(stage: int, runs: list[Json], steps: int) -> tuple[list[str], list[Goal]]:
    """A row of the table, and the goals."""
    found = figures(runs, steps)
    held = max(run["bytes"]["fit"] / run["bytes"]["loop"] for run in runs)
    row = [f"stage {stage}", f"{found['loop']:.2f}", f"{found['again']:.3f}"]
    row += [f"{found['fit']:.2f}", f"{found['x']:.3f}", f"{found['own']:.2f}"]
    row += [f"{found['strategy']:.3f}", f"{held:.3f}"]
    return row, [
        Goal(f"stage {stage}, strategy's part, of the loop's", found["strategy"], 1.02, False),
        Goal(f"stage {stage}, memory of the loop's", held, 1, False),
    ]


def main() -> None:
    parser = report.parser("lightning", __doc__ or "")
    parser.add_argument(
        "--ranks", type=whole, default=2, metavar="N", help="processes (default: 2)"
    )
    parser.add_argument(
        "--stages",
        type=names_of("0123"),
        default="1,2,3",
        metavar="A,B",
        help="of ZeRO (default: %(default)s)",
    )
    parser.add_argument(
        "--rows", type=whole, default=8, metavar="N", help="of a rank's batch (default: 8)"
    )
    parser.add_argument("--steps", type=whole, default=2, metavar="N", help="a turn (default: 2)")
    parser.add_argument(
        "--rounds", type=whole, default=12, metavar="N", help="turns of each arm (default: 12)"
    )
    parser.add_argument(
        "--runs",
        type=whole,
        default=3,
        metavar="N",
        help="of all ranks, at each stage (default: 3)",
    )
    arguments = parser.parse_args()
    stages = arguments.stages
    for module in ("torch", "lightning"):
        if not report.has_module(module):
            raise report.BenchError(
                f"{module} is not installed (tools/setup --integrations brings it)"
            )
    if arguments.quick:
        arguments.steps, arguments.rounds, arguments.runs = 2, 1, 1
    arguments.build = arguments.build.resolve()
    series = []
    heads = ["", "loop, ms", "again, x", "Trainer, ms", "x", "Lightning's own, ms"]
    rows = [[*heads, "strategy, x", "held, x"]]
    goals: list[Goal] = []
    runs: dict[int | None, list[Json]] = {stage: [] for stage in (*map(int, stages), None)}
    for _ in range(arguments.runs):
        for stage, found in runs.items():
            found.append(measure(arguments, stage))
    for stage, found in runs.items():
        series += [{"stage": stage, "ranks": arguments.ranks, **run} for run in found]
        if stage is not None:
            row, of_stage = compare(stage, found, arguments.steps)
            rows.append(row)
            goals += of_stage
    plain = figures(runs[None], arguments.steps)
    rows.append(["DDP", f"{plain['loop']:.2f}", "", f"{plain['fit']:.2f}", f"{plain['x']:.3f}"])
    rows[-1] += ["", "", ""]
    print(f"A GPT of 3.3 million parameters, {arguments.rows} x 64 tokens a rank, ", end="")
    print(f"{arguments.ranks} ranks, one thread each; medians.")
    print("x: of the loop's. again: a second loop, so what noise makes of equal work.")
    print("strategy: what the step spends within it; the rest is Lightning's own.")
    print("held: what a rank holds between steps.\n")
    print(report.columns(rows), end="\n\n")
    stages = [{"stage": stage, **figures(found, arguments.steps)} for stage, found in runs.items()]
    report.finish("lightning", arguments, goals, 0.0, stages=stages, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
