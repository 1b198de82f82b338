# SPDX-License-Identifier: Apache-2.0
"""Builds and runs one benchmark. tools/bench starts this after tools/setup."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"

BENCHES = {
    "collectives": "all-gather and reduce-scatter against Open MPI's best algorithm and memcpy",
    "adamw": "the optimizer step against what memory allows, torch's and DeepSpeed's",
    "states": "optimizer states in fewer bits: how far they move params from where f64 does",
    "quant": "int8 and int4 blocks: encoding, decoding and sums against what memory allows",
    "io": "storage for swapped states against fio on the same file, in rate and kernel CPU time",
    "overhead": "begin + wait + release of a unit that is at hand, in C, Rust, Julia and Python",
    "torch": "a GPT and many small layers: Meron, FSDP2, DeepSpeed, DDP and plain torch",
    "lightning": "Lightning's Trainer with MeronStrategy against a loop over meron.zero",
    "dropin": "one script of transformers' Trainer under DeepSpeed and under Meron",
    "offload-step": "the optimizer step with states on a drive against what drive and update take",
    "gpu": "a GPU: kernels against its copy of memory, the link to the host, a step over it",
    "slow-link": "what plans save where two hosts are joined by a slow link",
    "checkpoint": "saving and loading against the drive, torch.save, DCP and torchsnapshot",
    "pretrained": "published weights into sharded models: Meron, FSDP2 + DCP, DeepSpeed",
    "loop": "a developer's wait: from a clone, or from a changed line, to the result of a test",
}
TARGETS = {
    "collectives": ("meron_cli", "bench_collectives"),
    "adamw": ("bench_adamw", "bench_optimizers"),
    "states": ("meron_cli", "meron"),
    "quant": ("bench_quant",),
    "io": ("bench_io",),
    "overhead": ("meron_cli", "bench_overhead"),
    "torch": ("meron_cli", "meron"),
    "lightning": ("meron_cli", "meron"),
    "dropin": ("meron_cli", "meron"),
    "offload-step": ("bench_offload_step",),
    "gpu": ("meron_cli", "bench_gpu"),
    "slow-link": ("meron_cli", "meron"),
    "checkpoint": ("meron_cli", "meron"),
    "pretrained": ("meron_cli", "meron"),
    "loop": (),  # it builds in clones
}
# Benchmarks whose folder has another name: torch/ could be imported as PyTorch, and
# lightning/ as Lightning.
FOLDERS = {"torch": "pytorch", "lightning": "trainer"}
# Programs that are no benchmarks.
PROGRAMS = {name: ROOT / "bench" / "shared" / f"{name}.py" for name in ("beside", "chart", "keep")}
# Default folder of reports with all samples; --json overrides it.
SAVED = ROOT / "build" / "results"
# Help of benchmarks that are one program, which may not have been built yet.
OPTIONS = {
    "quant": """\
usage: tools/bench quant [options]

  --json FILE     write every number to FILE
  --quick         a second's run that only shows that everything works
  --elements N    elements that are encoded and decoded (64 Mi; with --quick 1 Mi)
  --threads N     threads, pinned to the CPUs that may be used, in order (all)
  --repeats N     turns of each variant (15; with --quick 3)
""",
    "offload-step": """\
usage: tools/bench offload-step [options]

  --json FILE     write every number to FILE
  --quick         a short run that only shows that everything works
  --dir FOLDER    a folder on the drive
  --states DTYPE  f32, bf16 or int8
  --elements N    parameters (64 Mi; with --quick 2 Mi)
  --repeats N     turns of each variant (7; with --quick 1)
  --sub-group N   elements that are moved together
  --buffers N     sub-groups in memory at a time
  --fraction F    share of the states that is on the drive in the balanced run (default: the share
                  with which the drive takes as long as the update)
  --threads N     of the update (all)
""",
}
# Targets that exist where there is MPI; elsewhere the benchmark says that it is missing.
MPI_TARGETS = {"slow-link": ("meron_mpi",)}

HELP = """\
usage: tools/bench NAME [--json FILE] [--quick] [options of the benchmark]

Builds what is needed (build/release), runs a benchmark, and prints a table. Names:

{names}

  --json FILE   write every number to FILE (default: build/results/NAME.json; none with --quick)
  --quick       a short run that only shows that everything works
  --help        after a name: the other options of that benchmark

`tools/bench beside FOLDER NAME` runs the benchmark of another checkout and of this one in turn.
`tools/bench keep NAME` writes the medians of a run into bench/results; it measures nothing.
`tools/bench chart` draws the README's chart from what bench/results keeps; it measures nothing.
bench/README.md says how to read the figures.
"""


def build(targets: tuple[str, ...]) -> bool:
    """Quiet unless it takes long or fails."""
    begin = ["cmake", "--preset", "release", f"-DMERON_PYTHON={sys.executable}"]
    make = ["cmake", "--build", "--preset", "release", "--target", *targets]
    for command in (begin, make):
        if command is make and sys.stdout.isatty():
            print("Building ...", end="\r", flush=True)
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if done.returncode != 0:
            print(done.stdout, file=sys.stderr)
            print(f"tools/bench: {' '.join(command)} failed", file=sys.stderr)
            return False
    return True


def with_report(name: str, options: list[str]) -> list[str]:
    """The options, with a file for the report of a run that measures and has none yet."""
    given = {option.partition("=")[0] for option in options}
    if given & {"--json", "--quick", "--help", "-h"}:
        return options
    SAVED.mkdir(parents=True, exist_ok=True)
    return [*options, "--json", str(SAVED / f"{name}.json")]


def command_of(
    name: str, options: list[str], build: Path = BUILD, python: str = sys.executable
) -> list[str]:
    folder = FOLDERS.get(name, name.replace("-", "_"))
    script = ROOT / "bench" / folder / "run.py"
    if script.exists():
        return [python, "-B", str(script), "--build", str(build), *options]
    return [str(build / "bench" / folder / f"bench_{folder}"), *options]


def environment_of(build: Path = BUILD) -> dict[str, str]:
    folders = [ROOT / "bench" / "shared", ROOT / "bindings" / "python"]
    path = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "MERON_LIBRARY": str(build / "capi"),
    }


def main() -> int:
    words = sys.argv[1:]
    names = "\n".join(f"  {name:<13} {what}" for name, what in BENCHES.items())
    if not words or words[0] in ("--help", "-h"):
        print(HELP.format(names=names), end="")
        return 0
    name, *options = words
    if name in PROGRAMS:
        options = with_report(name, options) if name == "beside" else options
        command = [sys.executable, "-B", str(PROGRAMS[name]), *options]
        os.execve(command[0], command, environment_of())
    if name not in BENCHES:
        print(f"tools/bench: there is no benchmark {name!r}. There are:\n{names}", file=sys.stderr)
        return 2
    wants_help = "--help" in options or "-h" in options
    if wants_help and name in OPTIONS:
        print(OPTIONS[name], end="")
        return 0
    targets = TARGETS[name] + (MPI_TARGETS.get(name, ()) if shutil.which("mpicc") else ())
    if targets and not wants_help and not build(targets):
        return 1
    command, environment = command_of(name, with_report(name, options)), environment_of()
    sys.stdout.flush()
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    sys.exit(main())
