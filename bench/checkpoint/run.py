# SPDX-License-Identifier: Apache-2.0
"""Saving and loading checkpoints: Meron, fio, torch.save, DCP and torchsnapshot, in turns."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import report
from arguments import existing_folder, names_of, whole, wholes
from drive import raw_turn, read_seconds
from peers import install_torchsnapshot, snapshot_folder
from report import BenchError, Goal, Json, median
from torch_arms import free_port

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
GB = 1e9
# Two blocks of what passes through memory at a time; the staging of checkpoints.
BUCKET = 32 * MIB
# Beside a device a step varies by as much as the goal allows; the median of many by less.
SAVES_BESIDE = {"device": 9, "processor": 3}
TORCH_ARMS = ("torch.save", "torch.save per rank", "dcp", "torchsnapshot")
ARMS = ("meron", "drive", *TORCH_ARMS)


class Bench:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.folder = folder
        self.without: dict[str, str] = {}  # peers, and why
        self.runs: dict[tuple[int, str], list[Json]] = defaultdict(list)
        self.arms = [arm for arm in ARMS if arm in arguments.arms]
        if not report.has_module("torch"):
            self.leave_out(TORCH_ARMS, report.WITHOUT_TORCH)
        elif "torchsnapshot" in self.arms:
            reason = install_torchsnapshot(snapshot_folder(arguments.build))
            if reason is not None:
                self.leave_out(("torchsnapshot",), reason)

    def leave_out(self, arms: tuple[str, ...], reason: str) -> None:
        for arm in arms:
            if arm in self.arms:
                self.arms.remove(arm)
                self.without[arm] = reason

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    def meron(self, mode: str, size: int, folder: Path, ranks: int = 0, **more: Any) -> Json:
        build = self.arguments.build
        words: list[str | Path] = [build / "tools/meron/meron", "run", "-n"]
        words += [str(ranks or self.arguments.ranks), "--", sys.executable, "-B"]
        words += [HERE / "meron_rank.py", mode, "--folder", folder, "--size", str(size)]
        for key, value in more.items():
            words += [f"--{key.replace('_', '-')}", str(value)]
        return report.run_ranks(words, {"OMP_NUM_THREADS": "1"})

    def torch(self, arm: str, size: int, folder: Path) -> Json:
        words: list[str | Path] = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"]
        words += ["--nproc-per-node", str(self.arguments.ranks), "--master-addr", "127.0.0.1"]
        words += ["--master-port", str(free_port()), HERE / "torch_rank.py", arm]
        words += ["--folder", folder, "--size", str(size)]
        environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        if arm == "torchsnapshot":
            place = str(snapshot_folder(self.arguments.build))
            path = os.environ.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, place]))
        return report.run_ranks(words, environment)

    def turn(self, arm: str, size: int, number: int) -> Json:
        with tempfile.TemporaryDirectory(prefix="turn-", dir=self.folder) as name:
            folder = Path(name)
            if arm == "drive":
                return raw_turn(folder, size, self.arguments.ranks)
            if arm == "meron":
                return self.meron("both", size, folder) | self.pair(size, folder, number)
            return self.torch(arm, size, folder)

    def pair(self, size: int, folder: Path, number: int) -> Json:
        """A load, and fio's read of the same files: drives are not the same from second to
        second. In either order."""
        ranks = range(self.arguments.ranks)
        files = [sorted((folder / "one").glob(f"*-{rank:05}-of-*.safetensors")) for rank in ranks]
        seconds: Json = {}
        for what in ("load", "read") if number % 2 else ("read", "load"):
            if what == "load":
                seconds["paired_load"] = self.meron("load", size, folder)["load_seconds"]
            else:
                seconds["paired_read"] = read_seconds(files)
        return seconds

    def measure(self, size: int) -> None:
        for number in range(self.arguments.turns):
            first = number % len(self.arms)
            for arm in self.arms[first:] + self.arms[:first]:
                self.show(f"{report.readable_bytes(size)}, turn {number + 1}: {arm}")
                try:
                    self.runs[size, arm].append(self.attempt(arm, size, number))
                except BenchError as error:
                    if arm in ("meron", "drive"):
                        raise
                    self.leave_out((arm,), last_words(str(error)))

    def attempt(self, arm: str, size: int, number: int) -> Json:
        """Runs a turn, and repeats it once if a peer's process has died at its end."""
        try:
            return self.turn(arm, size, number)
        except BenchError:
            if arm in ("meron", "drive"):
                raise
            return self.turn(arm, size, number)

    def other_worlds(self, size: int) -> dict[int, list[Json]]:
        """Loads at other numbers of ranks than saved, and at the same, by number."""
        ranks = self.arguments.ranks
        loads: dict[int, list[Json]] = defaultdict(list)
        with tempfile.TemporaryDirectory(prefix="worlds-", dir=self.folder) as folder:
            self.meron("save", size, Path(folder))
            for _ in range(self.arguments.turns):
                for world in (ranks, 1, ranks + 1):
                    self.show(f"{report.readable_bytes(size)}: a load by {world} ranks")
                    loads[world].append(self.meron("load", size, Path(folder), world))
        return loads

    def beside_training(self, size: int, save_seconds: float, compute: str) -> Json:
        self.show(f"{report.readable_bytes(size)}: saves beside training on a {compute}")
        with tempfile.TemporaryDirectory(prefix="beside-", dir=self.folder) as folder:
            # Forward and backward hide a save if they take longer than the drive.
            return self.meron(
                "beside",
                size,
                Path(folder),
                step_seconds=max(0.2, 1.5 * save_seconds),
                saves=1 if self.arguments.quick else SAVES_BESIDE[compute],
                compute=compute,
            )


def last_words(text: str) -> str:
    """The last line that has any."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if any(map(str.isalpha, line))), "it failed")


def rate(runs: list[Json], what: str) -> float:
    return median(run["bytes"] / GB / run[f"{what}_seconds"] for run in runs)


def print_rates(bench: Bench, size: int) -> None:
    rows = [[f"{report.readable_bytes(size)} of state, {bench.arguments.ranks} ranks"]]
    rows[0] += ["save GB/s", "load GB/s", "memory of save", "of load"]
    for arm in bench.arms:
        runs = bench.runs[size, arm]
        row = [arm if arm != "drive" else runs[0]["program"]]
        row += [f"{rate(runs, what):.2f}" for what in ("save", "load")]
        for what in ("save", "load"):
            extra = max(run.get(f"{what}_extra_bytes", 0) for run in runs)
            row.append("" if arm == "drive" else report.readable_bytes(int(extra)))
        rows.append(row)
    print(f"{report.columns(rows)}\n")


def goals_of(bench: Bench, size: int) -> list[Goal]:
    head = f"{report.readable_bytes(size)}: "
    own = bench.runs[size, "meron"]
    goals = []
    for arm, words, at_least in (
        ("drive", "the drive's", 0.9),
        ("torch.save", "torch.save's", 5.0),
        ("dcp", "DCP's", 2.0),
        ("torchsnapshot", "torchsnapshot's", 2.0),
    ):
        runs = bench.runs[size, arm]
        if runs:
            for what in ("save",) if arm == "drive" else ("save", "load"):
                ratio = rate(own, what) / rate(runs, what)
                goals.append(Goal(f"{head}{what}, of {words}", ratio, at_least))
    pairs = median(run["paired_read"] / run["paired_load"] for run in own)
    goals.append(Goal(f"{head}load, of the drive's read of the same files", pairs, 0.9))
    read = max(run["bytes_read"] / run["file_bytes"] for run in own)
    goals.append(Goal(f"{head}bytes read per host, of the files'", read, 1.01, at_least=False))
    extra = max(run["load_extra_bytes"] for run in own)
    goals.append(Goal(f"{head}memory of a load, buckets", extra / BUCKET, 2.0, at_least=False))
    exported = [run["export_extra_bytes"] for run in own if "export_extra_bytes" in run]
    if exported:
        name = f"{head}memory of an export, buckets"
        goals.append(Goal(name, max(exported) / BUCKET, 2.0, at_least=False))
    return goals


def goals_of_worlds(bench: Bench, size: int, loads: dict[int, list[Json]]) -> list[Goal]:
    head = f"{report.readable_bytes(size)}: "
    ranks = bench.arguments.ranks
    seconds = {world: median(run["load_seconds"] for run in runs) for world, runs in loads.items()}
    return [
        Goal(f"{head}load by {m} ranks of {ranks}'s, time", s / seconds[ranks], 1.1, at_least=False)
        for m, s in seconds.items()
        if m != ranks
    ]


def goals_of_training(size: int, row: Json) -> list[Goal]:
    head = f"{report.readable_bytes(size)}, computing on a {row['compute']}: "
    stall = row["stall_seconds"] / row["copy_seconds"]
    return [
        Goal(f"{head}stall of the saving step, of a copy", stall, 0.05, at_least=False),
        Goal(f"{head}next ten steps", row["next_steps_ratio"], 1.03, at_least=False),
    ]


def main() -> None:
    parser = report.parser("checkpoint", __doc__ or "")
    parser.add_argument(
        "--dir", type=existing_folder, default=".", help="a directory on the disk (.)"
    )
    parser.add_argument(
        "--size",
        type=wholes,
        metavar="MIB,...",
        default="1024,4096",
        help="of the state (1024,4096)",
    )
    parser.add_argument("--turns", type=whole, default=5, metavar="N", help="of every arm (5)")
    parser.add_argument("--ranks", type=whole, default=2, metavar="N", help="(2)")
    parser.add_argument(
        "--arms", type=names_of(ARMS), metavar="A,B", default=",".join(ARMS), help="(%(default)s)"
    )
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    sizes = [size * MIB for size in ([32] if arguments.quick else arguments.size)]
    arguments.turns = 1 if arguments.quick else arguments.turns
    if "meron" not in arguments.arms:
        parser.error("--arms has meron")
    if shutil.disk_usage(arguments.dir).free < 3 * max(sizes):
        raise BenchError(f"{arguments.dir} has not three times the largest size free")
    goals: list[Goal] = []
    body: dict[str, Any] = {"sizes": sizes, "series": [], "worlds": [], "training": []}
    prefix = "meron-bench-checkpoint-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=arguments.dir) as name:
        bench = Bench(arguments, Path(name))
        for size in sizes:
            bench.measure(size)
            worlds = bench.other_worlds(size)
            save_seconds = median(run["save_seconds"] for run in bench.runs[size, "meron"])
            training = [
                {"compute": compute, **bench.beside_training(size, save_seconds, compute)}
                for compute in ("device", "processor")
            ]
            bench.show("")
            print_rates(bench, size)
            goals += goals_of(bench, size) + goals_of_worlds(bench, size, worlds)
            goals += [goal for row in training for goal in goals_of_training(size, row)]
            body["worlds"] += [
                {"size": size, "ranks": world, "runs": runs} for world, runs in worlds.items()
            ]
            body["training"] += [{"size": size, **row} for row in training]
    for arm, reason in bench.without.items():
        print(f"Without {arm}: {reason}")
    body["series"] = [
        {"size": size, "arm": arm, "runs": runs} for (size, arm), runs in bench.runs.items()
    ]
    report.finish("checkpoint", arguments, goals, 0.0, without=bench.without, **body)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
