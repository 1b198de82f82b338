# SPDX-License-Identifier: Apache-2.0
"""What Lightning's Trainer with MeronStrategy takes beyond a loop over meron.zero."""

from __future__ import annotations

import sys
from pathlib import Path

import report
from report import Goal, Json, median

RANK = Path(__file__).with_name("rank.py")


def measure(build: Path, stage: int, ranks: int, steps: int, rounds: int) -> Json:
    words = [build / "tools/meron/meron", "run", "-n", str(ranks), "--", sys.executable, "-B", RANK]
    words += ["--stage", str(stage), "--steps", str(steps), "--rounds", str(rounds)]
    return report.run_ranks(words, {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})


def main() -> None:
    parser = report.parser("lightning", __doc__ or "")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="processes (default: 2)")
    parser.add_argument(
        "--stages", default="1,2,3", metavar="A,B", help="of ZeRO (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="a turn (default: 10)")
    parser.add_argument(
        "--rounds", type=int, default=10, metavar="N", help="turns of each arm (default: 10)"
    )
    arguments = parser.parse_args()
    stages = arguments.stages.split(",")
    if not set(stages) <= {"0", "1", "2", "3"}:
        raise report.BenchError(f"--stages {arguments.stages}: stages are 0, 1, 2 and 3")
    if min(arguments.ranks, arguments.steps, arguments.rounds) < 1:
        raise report.BenchError("--ranks, --steps and --rounds must be 1 or more")
    for module in ("torch", "lightning"):
        if not report.has_module(module):
            raise report.BenchError(
                f"{module} is not installed (tools/setup --integrations brings it)"
            )
    if arguments.quick:
        arguments.steps, arguments.rounds = 2, 1
    build = arguments.build.resolve()
    series = []
    rows = [["stage", "loop, ms per step", "Trainer, ms per step", "x", "held, x"]]
    goals = []
    for stage in map(int, stages):
        run = measure(build, stage, arguments.ranks, arguments.steps, arguments.rounds)
        loop, fit = median(run["loop"]), median(run["fit"])
        held = run["bytes"]["fit"] / run["bytes"]["loop"]
        rows.append([str(stage), f"{loop:.2f}", f"{fit:.2f}", f"{fit / loop:.3f}", f"{held:.3f}"])
        series.append({"stage": stage, "ranks": arguments.ranks, **run})
        goals.append(Goal(f"stage {stage}, step time of the loop's", fit / loop, 1.02, False))
        goals.append(Goal(f"stage {stage}, memory of the loop's", held, 1, False))
    print(f"A GPT of 3.3 million parameters, {arguments.ranks} ranks, one thread each; medians.")
    print("held: what a rank holds between steps. x: of the loop's.\n")
    print(report.columns(rows), end="\n\n")
    report.finish("lightning", arguments, goals, 0.0, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
