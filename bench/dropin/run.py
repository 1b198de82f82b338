# SPDX-License-Identifier: Apache-2.0
"""One script of transformers' Trainer, under DeepSpeed and under Meron's package of that name."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path

import deepspeed_package
import report
from arguments import names_of, whole
from report import Goal, Json, median
from torch_arms import free_port

SCRIPT = Path(__file__).with_name("train.py")
FLOOR, DEEPSPEED, MERON = "floor", "deepspeed", "meron"
PACKAGES = ("torch", "transformers", "accelerate")
Found = dict[str, dict[str, list[Json]]]  # by arm and stage


def run_arm(arm: str, arguments: argparse.Namespace) -> Json:
    """By stage, what the script's first rank found."""
    words: list[str | Path] = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"]
    words += ["--nproc-per-node", str(arguments.ranks), "--master-addr", "127.0.0.1"]
    words += ["--master-port", str(free_port()), SCRIPT, "--steps", str(arguments.steps)]
    words += ["--rows", str(arguments.rows)]
    # Without an engine all stages are one.
    words += ["--stages", ",".join(arguments.stages[: 1 if arm == FLOOR else None])]
    words += ["--floor"] if arm == FLOOR else []
    path = os.environ.get("PYTHONPATH")
    if arm == MERON:
        from meron.zero import dropin  # needs torch, which --help does without

        path = dropin.python_path(path)
    elif arm == DEEPSPEED and not report.has_module("deepspeed"):
        folder = deepspeed_package.folder_of(arguments.build)
        path = os.pathsep.join(filter(None, [path, str(folder)]))
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}
    return report.run_ranks(words, {**environment, "PYTHONPATH": path or ""})


def measure(arms: list[str], arguments: argparse.Namespace) -> Found:
    """The arms take turns."""
    found: Found = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.rounds):
        for arm in arms:
            if sys.stderr.isatty():
                print(f"\r{arm:<20}", end="", file=sys.stderr, flush=True)
            for stage, run in run_arm(arm, arguments).items():
                found[arm][stage].append(run)
    return found


def ms_of(runs: list[Json]) -> float:
    return median(median(run["ms"]) for run in runs)


def compare(found: Found, stages: list[str]) -> tuple[str, list[Goal]]:
    """The table, and the goals."""
    floor = ms_of(next(iter(found[FLOOR].values())))
    rows = [["stage", "deepspeed, ms", "meron, ms", "x", "floor, ms", "floor, x", "losses differ"]]
    goals = []
    for stage in stages:
        own, peer = found[MERON][stage], found[DEEPSPEED].get(stage)
        cells = ["", f"{ms_of(own):.0f}", "", f"{floor:.0f}", "", ""]
        if peer:
            ratio, least = ms_of(own) / ms_of(peer), floor / ms_of(peer)
            pairs = zip(own[0]["losses"], peer[0]["losses"])
            differ = max((abs(a - b) for a, b in pairs), default=0.0)
            cells[0], cells[2], cells[4] = f"{ms_of(peer):.0f}", f"{ratio:.2f}", f"{least:.2f}"
            cells[5] = f"{differ:.1e}"
            goals.append(Goal(f"stage {stage}, step time of DeepSpeed's", ratio, 0.7, False))
            goals.append(Goal(f"stage {stage}, losses differ by", differ, 1e-5, False))
        rows.append([stage, *cells])
    return report.columns(rows), goals


def main() -> None:
    parser = report.parser("dropin", __doc__ or "")
    parser.add_argument(
        "--ranks", type=whole, default=2, metavar="N", help="processes (default: 2)"
    )
    parser.add_argument(
        "--stages",
        type=names_of("123"),
        default="1,2,3",
        metavar="A,B",
        help="of ZeRO (default: %(default)s)",
    )
    parser.add_argument(
        "--steps", type=whole, default=50, metavar="N", help="a stage (default: 50)"
    )
    parser.add_argument(
        "--rounds", type=whole, default=1, metavar="N", help="turns of each arm (default: 1)"
    )
    parser.add_argument(
        "--rows", type=whole, default=2, metavar="N", help="of a rank's batch (default: 2)"
    )
    parser.add_argument(
        "--arms",
        type=names_of((FLOOR, DEEPSPEED, MERON)),
        default=",".join((FLOOR, DEEPSPEED, MERON)),
        metavar="A,B",
        help="(default: %(default)s)",
    )
    arguments = parser.parse_args()
    stages, arms = arguments.stages, arguments.arms
    if not {FLOOR, MERON} <= set(arms):
        parser.error("--arms has floor and meron, and deepspeed beside them")
    for module in PACKAGES:
        if not report.has_module(module):
            raise report.BenchError(
                f"{module} is not installed (tools/setup --integrations brings it)"
            )
    if arguments.quick:
        arguments.steps, arguments.rounds = 5, 1
    arguments.build = arguments.build.resolve()
    missing = None
    if DEEPSPEED in arms and not report.has_module("deepspeed"):
        missing = deepspeed_package.install_deepspeed(deepspeed_package.folder_of(arguments.build))
    if missing is not None:
        arms.remove(DEEPSPEED)
    found = measure(arms, arguments)
    table, goals = compare(found, stages)
    params = found[MERON][stages[0]][0]["params"]
    print(
        f"A GPT-2 of {params / 1e6:.1f} million parameters, {arguments.rows} x 64 tokens a rank, ",
        end="",
    )
    print(f"{arguments.ranks} ranks, one thread each; medians.")
    print("floor: forward, backward and Trainer alone, without an engine. x: of DeepSpeed's.\n")
    print(table, end="\n\n")
    if missing is not None:
        print(f"Without DeepSpeed: {missing}")
    series = [
        {"arm": arm, "stage": stage, "runs": runs}
        for arm, by_stage in found.items()
        for stage, runs in by_stage.items()
    ]
    report.finish("dropin", arguments, goals, 0.0, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
