# SPDX-License-Identifier: Apache-2.0
"""Meron's storage engine against fio on the same file, in rate and in kernel CPU time."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import report
from arguments import existing_folder, whole
from report import BenchError, Goal, Json, median

MIB = 1024 * 1024
GB = 1e9
OURS, FIO_URING, FIO_LIBAIO = "meron", "fio io_uring", "fio libaio"
AGAIN = f"{FIO_URING} again"  # what it differs by from itself is the drive's doing
ARMS = {
    OURS: "Meron",
    FIO_URING: "fio, io_uring, fixed buffers, registered files",
    AGAIN: "the same once more",
    FIO_LIBAIO: "fio, libaio",
    "meron 1 thread": "Meron without io_uring, 1 thread",
    "meron 4 threads": "Meron without io_uring, 4 threads",
}
URING_WORDS = ["--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1"]
FIO_WORDS = {
    FIO_URING: URING_WORDS,
    AGAIN: URING_WORDS,
    FIO_LIBAIO: ["--ioengine=libaio"],
}
OWN_WORDS = {
    OURS: [],
    "meron 1 thread": ["--threads-backend"],
    "meron 4 threads": ["--threads-backend", "--threads", "4"],
}
PASSES = 10  # over a new file
# The memory of all arms is one file in a tmpfs: what the host of a virtual machine does with a page
# makes it up to three times as fast as another, and this way each arm has the same pages.
TMPFS = Path("/dev/shm")
MEMORY = 32 * MIB


class Measured:
    """Of one arm in one direction: a figure per turn."""

    def __init__(self) -> None:
        self.rate: list[float] = []  # GB/s
        self.kernel: list[float] = []  # CPU seconds in the kernel per GB

    def add(self, size: int, seconds: float, kernel: float) -> None:
        self.rate.append(size / GB / seconds)
        self.kernel.append(kernel / (size / GB))


Results = dict[tuple[str, str], Measured]  # by arm and direction


def run_own(arguments: argparse.Namespace, words: list[str | Path]) -> Json:
    memory = ["--memory", arguments.memory] if arguments.memory else []
    return report.run_ranks([arguments.build / "bench/io/bench_io", *memory, *words])


def own_turn(
    arguments: argparse.Namespace, file: Path, arm: str, direction: str, into: Measured
) -> Json:
    words: list[str | Path] = ["--file", file, "--bytes", str(arguments.size), *OWN_WORDS[arm]]
    done = run_own(arguments, words + (["--write"] if direction == "write" else []))
    one = done["passes"][0]
    into.add(arguments.size, one["seconds"], one["system"])
    return done


def fio_turn(
    arguments: argparse.Namespace, file: Path, arm: str, direction: str, into: Measured
) -> None:
    words = ["fio", "--name=turn", f"--filename={file}", f"--rw={direction}", "--bs=1M"]
    words += ["--iodepth=32", "--direct=1", f"--size={arguments.size}", "--invalidate=0"]
    words += ["--fallocate=none", "--scramble_buffers=0", "--thread", "--output-format=json"]
    if arguments.memory:
        words.append(f"--iomem=mmapshared:{arguments.memory}")
    done = subprocess.run(
        [*words, *FIO_WORDS[arm]], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    begin = done.stdout.find("{")
    if done.returncode != 0 or begin < 0:
        raise BenchError(f"fio ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    job = json.loads(done.stdout[begin:])["jobs"][0]
    part = job[direction]
    moved = part["io_bytes"]
    if moved != arguments.size:
        raise BenchError(f"fio moved {moved} bytes instead of {arguments.size}")
    into.add(moved, moved / part["bw_bytes"], job["sys_cpu"] / 100 * job["job_runtime"] / 1000)


def turns_of(arguments: argparse.Namespace, file: Path, arms: list[str]) -> tuple[Results, Json]:
    results: Results = defaultdict(Measured)
    described: Json = {}
    for number in range(arguments.turns):
        if sys.stderr.isatty():
            print(f"\rturn {number + 1} of {arguments.turns} ", end="", file=sys.stderr, flush=True)
        for direction in ("read", "write"):
            # Each arm follows each other arm equally often, because earlier work affects a disk.
            first = number % len(arms)
            for arm in arms[first:] + arms[:first]:
                into = results[arm, direction]
                if arm in FIO_WORDS:
                    fio_turn(arguments, file, arm, direction, into)
                else:
                    described[arm] = own_turn(arguments, file, arm, direction, into)
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return results, described


def fresh_file(arguments: argparse.Namespace, prewrite: bool) -> list[list[float]]:
    """Seconds of each pass of writing over a new swap file, by turn."""
    words: list[str | Path] = ["--swap", arguments.dir, "--bytes", str(arguments.size), "--write"]
    words += ["--passes", str(PASSES), *(["--prewrite"] if prewrite else [])]
    return [
        [one["seconds"] for one in run_own(arguments, words)["passes"]]
        for _ in range(1 if arguments.quick else 3)
    ]


def first_against_last(turns: list[list[float]]) -> float:
    ratio: float = median(turn[0] / turn[-1] for turn in turns)
    return ratio


def print_tables(
    results: Results, arms: list[str], fresh: dict[bool, list[list[float]]], size: int
) -> None:
    rows = [["GB/s and ms of kernel CPU per GB, medians", "read", "CPU", "write", "CPU"]]
    for arm in arms:
        row = [ARMS[arm]]
        for direction in ("read", "write"):
            measured = results[arm, direction]
            row += [f"{median(measured.rate):.2f}", f"{median(measured.kernel) * 1e3:.1f}"]
        rows.append(row)
    print(f"{report.columns(rows)}\n")
    rows = [["Writing over a new swap file, GB/s", "first pass", f"pass {PASSES}", "times as long"]]
    for prewrite, turns in fresh.items():
        rates = [median(size / GB / turn[place] for turn in turns) for place in (0, -1)]
        row = ["written once before" if prewrite else "only given room"]
        rows.append([*row, *(f"{rate:.2f}" for rate in rates), f"{first_against_last(turns):.2f}"])
    print(f"{report.columns(rows)}\n")


def goals_of(results: Results, fresh: dict[bool, list[list[float]]]) -> list[Goal]:
    goals = []
    for direction, goal in (("read", 0.97), ("write", 0.97)):
        if (FIO_URING, direction) in results:
            own, peer = (median(results[arm, direction].rate) for arm in (OURS, FIO_URING))
            goals.append(Goal(f"{direction} rate, of {FIO_URING}'s", own / peer, goal))
    for direction, goal in (("read", 0.4), ("write", 0.6)):
        if (FIO_LIBAIO, direction) in results:
            own, peer = (median(results[arm, direction].kernel) for arm in (OURS, FIO_LIBAIO))
            name = f"{direction} kernel CPU per byte, of {FIO_LIBAIO}'s"
            goals.append(Goal(name, own / peer if peer > 0 else 0.0, goal, at_least=False))
    name = "first pass over a swap file written before, of the tenth"
    return [*goals, Goal(name, first_against_last(fresh[True]), 1.1, at_least=False)]


def make_file(path: Path, size: int) -> None:
    piece = os.urandom(MIB)
    with open(path, "wb") as file:
        for _ in range(size // MIB):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def file_system_of(path: Path) -> str:
    path = path.resolve()
    kinds = {}  # by mount point; the last one mounted there counts
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind = line.split(" ")[:3]
        kinds[Path(point.replace("\\040", " "))] = kind
    return next((kinds[place] for place in (path, *path.parents) if place in kinds), "unknown")


def check_directory(arguments: argparse.Namespace) -> None:
    kind = file_system_of(arguments.dir)
    if kind in ("tmpfs", "ramfs"):
        raise BenchError(f"{arguments.dir} lies in memory ({kind}): name a disk with --dir")
    need = 2 * arguments.size
    if shutil.disk_usage(arguments.dir).free < need:
        raise BenchError(f"{arguments.dir} has less than {report.readable_bytes(need)} free")


def main() -> None:
    parser = report.parser("io", __doc__ or "")
    parser.add_argument(
        "--dir", type=existing_folder, default=".", help="a directory on the disk (.)"
    )
    parser.add_argument("--size", type=whole, metavar="MIB", help="of the file (1024)")
    parser.add_argument("--turns", type=whole, default=25, metavar="N", help="of every arm (25)")
    arguments = parser.parse_args()
    arguments.size = (arguments.size or (32 if arguments.quick else 1024)) * MIB
    if arguments.quick:
        arguments.turns = 1
    check_directory(arguments)
    arms = list(ARMS)
    if shutil.which("fio") is None:
        print("Without fio: it is not installed (tools/setup --bench brings it).\n")
        arms = [arm for arm in arms if arm not in FIO_WORDS]

    with contextlib.ExitStack() as stack:
        prefix = "meron-bench-io-"
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=arguments.dir))
        arguments.memory = None
        if TMPFS.is_dir() and shutil.disk_usage(TMPFS).free > 2 * MEMORY:
            memory = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=TMPFS))
            arguments.memory = Path(memory) / "memory"
            make_file(arguments.memory, MEMORY)
        file = Path(folder) / "file"
        make_file(file, arguments.size)
        results, described = turns_of(arguments, file, arms)
        file.unlink()
        fresh = {prewrite: fresh_file(arguments, prewrite) for prewrite in (True, False)}
    print(f"{report.readable_bytes(arguments.size)}, 1 MiB x 32; {described[OURS]['backend']}\n")
    if not described[OURS]["direct"]:
        print("The file system has no direct I/O: these are figures of the page cache.\n")
    print_tables(results, arms, fresh, arguments.size)
    report.finish(
        "io",
        arguments,
        goals_of(results, fresh),
        0.0,
        bytes=arguments.size,
        backend=described[OURS]["backend"],
        direct=described[OURS]["direct"],
        rows=[
            {
                "arm": arm,
                "direction": direction,
                "gb_per_second": median(measured.rate),
                "kernel_seconds_per_gb": median(measured.kernel),
                "rates": measured.rate,
                "kernel": measured.kernel,
            }
            for (arm, direction), measured in results.items()
        ],
        new_file=[
            {
                "prewritten": prewrite,
                "first_over_last": first_against_last(turns),
                "seconds_by_pass": turns,
            }
            for prewrite, turns in fresh.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
