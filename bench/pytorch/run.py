# SPDX-License-Identifier: Apache-2.0
"""A GPT and many small layers on some ranks: Meron, FSDP2, DeepSpeed, DDP and plain torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict

import report
from arguments import duration, names_of, whole
from deepspeed_package import DEEPSPEED, folder_of, install_deepspeed
from report import Goal, Json, median
from torch_arms import host_us, run_arm

SHARDED = ("meron", "meron adamw", "fsdp2", "deepspeed")
PEERS = ("fsdp2", "deepspeed")
ARMS = ("meron", "meron adamw", "fsdp2", "deepspeed", "ddp", "plain")
TITLES = {
    "gpt": "GPT: 8 blocks of width 320, 4 x 128 bytes per rank",
    "many": "Many small layers: 200 linear layers of 256, 8 rows per rank",
    "tiny": "Host time per unit and step: 200 linear layers of 16, 8 rows, one rank, so that bytes "
    "do not count. In hooks: forward and backward",
}


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folder = folder_of(arguments.build)
        wanted = "deepspeed" in arguments.arms
        self.without_deepspeed = install_deepspeed(self.folder) if wanted else "left out"
        self.runs: dict[tuple[str, str, int], list[Json]] = defaultdict(list)

    def arms(self) -> list[str]:
        arms = [arm for arm in ARMS if arm in self.arguments.arms]
        return [arm for arm in arms if arm != "deepspeed" or self.without_deepspeed is None]

    def run(self, model: str, arm: str, ranks: int) -> None:
        seconds = 0.1 if self.arguments.quick else self.arguments.seconds
        more = {}
        if arm == "deepspeed":
            path = os.environ.get("PYTHONPATH", "")
            more["DS_ACCELERATOR"] = "cpu"
            more["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(self.folder)]))
        build = self.arguments.build
        self.runs[model, arm, ranks].append(run_arm(build, model, arm, ranks, seconds, **more))

    def measure(self) -> None:
        rounds = 1 if self.arguments.quick else self.arguments.rounds
        jobs = [
            (model, arm, self.arguments.ranks) for model in ("gpt", "many") for arm in self.arms()
        ]
        jobs += [("tiny", arm, 1) for arm in self.arms() if arm != "ddp"]
        for number in range(rounds):
            for model, arm, ranks in jobs:
                if sys.stderr.isatty():
                    text = f"round {number + 1} of {rounds}: {model}, {arm}"
                    print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)
                self.run(model, arm, ranks)
        if sys.stderr.isatty():
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)

    def ms(self, model: str, arm: str, ranks: int | None = None, key: str = "ms") -> float:
        runs = self.runs[model, arm, ranks or self.arguments.ranks]
        return median(median(run[key]) for run in runs)

    def figure(self, model: str, arm: str, key: str) -> float:
        return median(run[key] for run in self.runs[model, arm, self.arguments.ranks])

    def host_us(self, arm: str, key: str = "hooks_ms") -> float:
        return host_us(self.runs["tiny", arm, 1], self.runs["tiny", "plain", 1], key)

    def print_tables(self) -> None:
        ranks = self.arguments.ranks
        print(f"{ranks} ranks, one thread each; medians. 'plain' is one process with one rank's")
        print("batch: no communication, nothing sharded. x: step time over Meron's.\n")
        for model in ("gpt", "many"):
            rows = [["system", "ms per step", "x", "at rest MiB", "moved MiB"]]
            for arm in self.arms():
                rows.append(
                    [
                        arm,
                        f"{self.ms(model, arm):.1f}",
                        f"{self.ms(model, arm) / self.ms(model, 'meron'):.2f}",
                        f"{self.figure(model, arm, 'at_rest') / 2**20:.0f}",
                        f"{self.figure(model, arm, 'bytes') / 2**20:.1f}",
                    ]
                )
            print(TITLES[model])
            print(report.columns(rows), end="\n\n")
        rows = [["system", "us in hooks", "us with the optimizer's step"]]
        rows += [
            [arm, f"{self.host_us(arm):.1f}", f"{self.host_us(arm, 'ms'):.1f}"]
            for arm in self.arms()
            if arm in SHARDED
        ]
        print(TITLES["tiny"])
        print(report.columns(rows), end="\n\n")
        if self.without_deepspeed is not None:
            print(f"Without DeepSpeed: {self.without_deepspeed}\n")

    def goals(self) -> list[Goal]:
        goals = []
        for peer in PEERS:
            if peer not in self.arms():
                continue
            host = self.host_us("meron") / self.host_us(peer)
            goals.append(Goal(f"host time in hooks, of {peer}'s", host, 0.1, at_least=False))
            times = self.ms("many", peer) / self.ms("many", "meron")
            goals.append(Goal(f"many layers, x {peer}", times, 2))
            rest = self.figure("gpt", "meron", "at_rest") / self.figure("gpt", peer, "at_rest")
            goals.append(Goal(f"GPT at rest, of {peer}'s", rest, 1, at_least=False))
        if "ddp" in self.arms():
            ddp = self.ms("gpt", "meron") / self.ms("gpt", "ddp")
            goals.append(Goal("GPT, step time of DDP's", ddp, 1.05, at_least=False))
        return goals


def main() -> None:
    parser = report.parser("torch", __doc__ or "")
    parser.add_argument(
        "--ranks", type=whole, default=2, metavar="N", help="processes (default: 2)"
    )
    parser.add_argument(
        "--rounds", type=whole, default=2, metavar="N", help="turns of each arm (default: 2)"
    )
    parser.add_argument(
        "--seconds", type=duration, default=5, help="per model, arm and round (default: 5)"
    )
    parser.add_argument(
        "--arms",
        type=names_of(ARMS),
        default=",".join(ARMS),
        metavar="A,B",
        help="only these, and always meron and plain (default: %(default)s)",
    )
    arguments = parser.parse_args()
    arguments.arms = [*arguments.arms, "meron", "plain"]
    arguments.build = arguments.build.resolve()
    if not report.has_module("torch"):
        raise report.BenchError(report.WITHOUT_TORCH)
    import torch

    bench = Bench(arguments)
    bench.measure()
    bench.print_tables()
    series = [
        {"model": model, "arm": arm, "ranks": ranks, "runs": runs}
        for (model, arm, ranks), runs in bench.runs.items()
    ]
    versions = {"torch": torch.__version__, "deepspeed": DEEPSPEED}
    report.finish("torch", arguments, bench.goals(), 0.0, versions=versions, series=series)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
