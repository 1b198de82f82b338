# SPDX-License-Identifier: Apache-2.0
"""Loading pretrained weights into sharded models: Meron, FSDP2 + DCP, transformers + DeepSpeed."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import report
from arguments import existing_folder, names_of, whole
from deepspeed_package import folder_of, install_deepspeed
from drive import read_once
from layout import Llama, write_llama
from rank_memory import evict
from report import BenchError, Goal, Json, median
from torch_arms import free_port

HERE = Path(__file__).resolve().parent
GB = 1e9
BUCKET = 32 << 20  # the staging memory of a rank
FSDP, DEEPSPEED = "fsdp2 dcp", "transformers deepspeed"
ARMS = ("meron", FSDP, DEEPSPEED)


def install_transformers(folder: Path) -> str | None:
    """And safetensors, which DCP needs, in DeepSpeed's folder. The reason where it cannot be."""
    if (folder / "transformers").exists():
        return None
    print(f"Installing transformers into {folder} ...", file=sys.stderr)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    words += ["--disable-pip-version-check"]
    # Without --no-deps, accelerate would install torch again.
    for packages in (["transformers", "safetensors"], ["--no-deps", "accelerate"]):
        done = subprocess.run([*words, *packages], capture_output=True, text=True)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return None


def cause_of(error: BenchError) -> str:
    """The line that says why, of what a launcher of ranks printed."""
    lines = [re.sub(r"^\[rank\d+\]: ", "", line) for line in str(error).splitlines()]
    causes = [line for line in lines if re.match(r"[\w.]*Error\b", line)]
    causes = [line for line in causes if "ChildFailedError" not in line]
    return (causes or lines)[-1].strip()


class Bench:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.folder = folder_of(arguments.build)
        self.without: dict[str, str] = {}
        self.arms = [arm for arm in ARMS if arm in arguments.arms]
        self.runs: dict[str, list[Json]] = defaultdict(list)
        for arm in (FSDP, DEEPSPEED):
            if arm in self.arms and not report.has_module("torch"):
                self.leave_out(arm, report.WITHOUT_TORCH)
        installs = {
            FSDP: (install_transformers,),
            DEEPSPEED: (install_transformers, install_deepspeed),
        }
        for arm in (arm for arm in (FSDP, DEEPSPEED) if arm in self.arms):
            reasons = [install(self.folder) for install in installs[arm]]
            if any(reasons):
                self.leave_out(arm, "; ".join(filter(None, reasons)))

    def leave_out(self, arm: str, reason: str) -> None:
        self.arms.remove(arm)
        self.without[arm] = reason

    def run(self, arm: str, folder: Path) -> Json:
        ranks = str(self.arguments.ranks)
        words: list[str | Path] = [HERE / "rank.py", arm, "--folder", folder]
        words += ["--millions", str(self.arguments.size)]
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}
        if arm == "meron":
            command: list[str | Path] = [self.arguments.build / "tools/meron/meron", "run"]
            command += ["-n", ranks, "--", sys.executable, "-B"]
        else:
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1"]
            command += ["--nproc-per-node", ranks, "--master-addr", "127.0.0.1"]
            command += ["--master-port", str(free_port())]
            path = os.environ.get("PYTHONPATH", "")
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [path, str(self.folder)]))
        return report.run_ranks([*command, *words], environment)

    def measure(self, folder: Path, files: list[Path]) -> None:
        for number in range(1 if self.arguments.quick else self.arguments.turns):
            first = number % (len(self.arms) + 1)
            arms = ["files", *self.arms]
            for arm in arms[first:] + arms[:first]:
                if arm in self.without:
                    continue
                if sys.stderr.isatty():
                    print(f"\rturn {number + 1}: {arm:<40}", end="", file=sys.stderr, flush=True)
                evict(folder)
                if arm == "files":
                    self.runs[arm].append({"seconds": read_once(files)})
                    continue
                try:
                    done = self.run(arm, folder)
                    self.runs[arm].append(done)
                except BenchError as error:
                    self.leave_out(arm, cause_of(error))
        if sys.stderr.isatty():
            print("\r" + " " * 60 + "\r", end="", file=sys.stderr)


def print_table(bench: Bench, size: int) -> None:
    rows = [[f"{size / GB:.2f} GB of files, {bench.arguments.ranks} ranks"]]
    rows[0] += ["seconds", "of reading once", "peak per rank"]
    once = median(run["seconds"] for run in bench.runs["files"])
    for arm, runs in bench.runs.items():
        seconds = median(run["seconds"] for run in runs)
        peak = max(run.get("peak_bytes", 0) for run in runs)
        name = "reading the files once, O_DIRECT" if arm == "files" else arm
        shown = f"{peak / (1 << 20):.0f} MiB" if peak else ""
        rows.append([name, f"{seconds:.2f}", f"{seconds / once:.2f}", shown])
    print(f"{report.columns(rows)}\n")


def goals_of(bench: Bench, size: int) -> list[Goal]:
    if "meron" not in bench.runs:
        return []
    own = bench.runs["meron"]
    once = median(run["seconds"] for run in bench.runs["files"])
    allowed = size / bench.arguments.ranks + 2 * BUCKET
    peak = max(run["peak_bytes"] for run in own)
    seconds = median(run["seconds"] for run in own)
    extra = max(run["load_extra_bytes"] for run in own)
    read = max(run["bytes_read"] for run in own)
    goals = [
        Goal("load, of reading the files once", seconds / once, 1.15, at_least=False),
        Goal("peak per rank, of shard + 2 buckets", peak / allowed, 1.0, at_least=False),
        Goal("memory of the load alone, buckets", extra / BUCKET, 2.0, at_least=False),
        Goal("bytes read per host, of the files'", read / size, 1.01, at_least=False),
    ]
    for arm in (FSDP, DEEPSPEED):
        if arm in bench.runs:
            theirs = median(run["seconds"] for run in bench.runs[arm])
            goals.append(Goal(f"times as fast as {arm}", theirs / seconds, 1.0))
    return goals


def main() -> None:
    parser = report.parser("pretrained", __doc__ or "")
    parser.add_argument(
        "--dir", type=existing_folder, default=".", help="a directory on the disk (.)"
    )
    parser.add_argument(
        "--size", type=whole, metavar="M", help="millions of params (1100; with --quick 4)"
    )
    parser.add_argument("--turns", type=whole, default=5, metavar="N", help="of every arm (5)")
    parser.add_argument("--ranks", type=whole, default=4, metavar="N", help="(4)")
    parser.add_argument(
        "--arms", type=names_of(ARMS), metavar="A,B", default=",".join(ARMS), help="(%(default)s)"
    )
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    arguments.size = arguments.size or (4 if arguments.quick else 1100)
    if shutil.disk_usage(arguments.dir).free < 4_000_000 * arguments.size:
        raise BenchError(f"{arguments.dir} has not twice the model's size free")
    bench = Bench(arguments)
    prefix = "meron-bench-pretrained-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=arguments.dir) as name:
        files = write_llama(Llama(arguments.size), Path(name))
        size = sum(file.stat().st_size for file in files)
        bench.measure(Path(name), files)
    print_table(bench, size)
    for arm, reason in bench.without.items():
        print(f"Without {arm}: {reason}")
    series = [{"arm": arm, "runs": runs} for arm, runs in bench.runs.items()]
    goals = goals_of(bench, size)
    body: Json = {"file_bytes": size, "without": bench.without, "series": series}
    report.finish("pretrained", arguments, goals, 0.0, **body)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
