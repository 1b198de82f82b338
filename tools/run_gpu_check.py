# SPDX-License-Identifier: Apache-2.0
"""Builds Meron on a machine with a GPU, tests and measures it. tools/gpu-check starts this."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpu_machine
import gpu_pack
import run_bench
import tally
from gpu_phases import (
    BUILD,
    LABEL,
    SECONDS_TO_END,
    SKIPPED,
    Check,
    Counts,
    Outcome,
    Phase,
    every_line,
    lines_like,
    run_phases,
)
from gpu_report import count_goals, has_passed, table, write_report
from gpu_sanitizer import sanitize
from tally import Tally, say

ROOT = Path(__file__).resolve().parents[1]
RESULTS = BUILD / "test-results"
BUDGET = 540.0

HELP = """\
On a machine with an NVIDIA GPU: builds Meron, runs every GPU test (CTest label gpu; those in C++
under compute-sanitizer too), runs the examples of Lightning, Trainer and accelerate, measures with
tools/bench gpu, and trains example 03 with 350 million parameters on one rank and on two that share
the GPU. A short table, with all goals, comes last.

It installs nothing and needs no network. The machine has CUDA (nvcc 12 or later), CMake 3.25 or
later, ninja, a C++20 compiler, and a python3 with PyTorch for CUDA, pytest and numpy. The report
names what is missing, and the other phases still run. Everything else travels with the tree, in
.gpu-pack:

  1. on a machine prepared by tools/setup:           tools/gpu-check --pack
  2. copy the tree, .gpu-pack included, to the machine with the GPU
  3. there:                                          tools/gpu-check

The pack holds headers, liburing.a, GoogleTest's sources, and Python's cffi (for CPython 3.11 to
3.14; fetched with pip). It can be moved anywhere, to machines of the same architecture. Without
one, Meron is built with what the machine has itself.

Files in DIR:
  gpu-check.json   hardware, versions, commit, phases, tests, goals
  log.txt          all that the programs said
  ctest.xml        each test, as JUnit
  bench-*.json     every number of the benchmarks
"""

EXAMPLES = """\
Each phase has a limit, and all together the budget: a phase that no longer fits is skipped, and
said to be. The Python is the python3 of the PATH; MERON_PYTHON=FILE names another. Builds are kept
in build/gpu, so that a second run compiles only what changed.

Exit status: 0 if all that ran passed and a GPU test was among it (goals of the benchmark may be
missed), 77 if there is no GPU, 2 for wrong options, else 1.
"""


# ---- Building -----------------------------------------------------------------------------------


def packed_python(pack: Path) -> str:
    """The Python of the tests: this one, or a script that adds to it what only the pack has."""
    version = ".".join(map(str, sys.version_info[:2]))
    folder = gpu_pack.python_folder(pack, version)
    if gpu_machine.has_package(gpu_pack.COMPILED) or not folder.is_dir():
        return sys.executable
    script = BUILD / "python3"
    script.write_text(
        "#!/bin/sh\n# Made by tools/gpu-check.\n"
        f'PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{shlex.quote(str(folder))}\n'
        f'export PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def configure(check: Check, seconds: float) -> Outcome:
    BUILD.mkdir(parents=True, exist_ok=True)
    machine = check.machine
    options = [
        f"-DMERON_CUDA={'ON' if machine.nvcc else 'OFF'}",
        f"-DMERON_CUDA_ARCHITECTURES={machine.architectures}",
        *("-DMERON_BUILD_EXAMPLES=OFF", "-DMERON_MPI=OFF"),
        "-DMERON_WERROR=OFF",  # the compiler may be one that the sources have not met
    ]
    if machine.nvcc:
        options.append(f"-DCMAKE_CUDA_COMPILER={machine.nvcc.resolve()}")
    fault = gpu_pack.fault_of()
    if fault is None:
        options.append(f"-DCMAKE_PREFIX_PATH={gpu_pack.PACK}")
        check.python = packed_python(gpu_pack.PACK)
    else:
        check.say(f"  {fault}: building with the libraries of this machine")
    options.append(f"-DMERON_PYTHON={check.python}")
    command: list[str | Path] = ["cmake", "--preset", "release", "-B", BUILD, *options]
    ended = check.run(command, seconds)
    if ended.status == 0:
        return Outcome("passed", f"for sm_{machine.architectures}" if machine.nvcc else "no nvcc")
    for line in ended.lines[-15:]:
        say(f"  {line}")
    advice = "" if fault is None else f"; {fault}: tools/gpu-check --pack makes one"
    return Outcome("failed", ended.fault("cmake") + advice)


def build(check: Check, seconds: float) -> Outcome:
    """Continues after an error: the targets that were built are still tested."""
    jobs = str(len(os.sched_getaffinity(0)))
    command: list[str | Path] = [
        "cmake",
        "--build",
        BUILD,
        "--target",
        "gpu_checks",
        "--parallel",
        jobs,
    ]
    environment = {**os.environ, "NINJA_STATUS": "[%f/%t] "}
    ended = check.run([*command, "--", "-k", "0"], seconds, Counts(), environment)
    if ended.status == 0:
        return Outcome("passed")
    return Outcome("failed", ended.fault("the build"))


def look_at_torch(check: Check, seconds: float) -> Outcome:
    if check.torch_asked is not None:
        check.torch = gpu_machine.torch_facts(check.torch_asked, seconds)
    if "missing" in check.torch:
        return Outcome("skipped", f"the tests with it do not run: {check.torch['missing']}")
    facts = "torch {version}, CUDA {cuda}, NCCL {nccl}, devices: {devices}".format(**check.torch)
    if not check.torch["devices"]:
        return Outcome("skipped", f"{facts}: install PyTorch for CUDA for the tests with it")
    return Outcome("passed", facts)


# ---- Testing ------------------------------------------------------------------------------------


def run_ctest(check: Check, seconds: float) -> Outcome:
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    report = check.out / "ctest.xml"
    report.unlink(missing_ok=True)
    # From then on it starts no test and ends those that run; it still writes its report.
    stop = time.localtime(time.time() + max(seconds - SECONDS_TO_END, 1))
    # Devices have room for a few tests at a time, and much of a Python test is importing torch.
    jobs = str(min(4, len(os.sched_getaffinity(0))))
    command: list[str | Path] = ["ctest", "--test-dir", BUILD, "-L", LABEL, "--parallel", jobs]
    command += ["--output-on-failure", "--output-junit", report]
    command += ["--stop-time", time.strftime("%H:%M:%S", stop)]
    ended = check.run(command, seconds, lines_like(r" *\d+/\d+ Test "))
    known = len(tally.failures)
    check.tests = tally.count_ctest("gpu", report, RESULTS)
    if not report.exists():  # ctest was ended itself: what the tests have left still counts
        for path in sorted(RESULTS.glob("*.xml")):
            check.tests += tally.count_cases(path) or tally.ONE_FAILED
    check.failures += [each.name for each in tally.failures[known:]]
    if check.tests.failed or ended.status != 0:
        fault = str(check.tests) if check.tests.failed else ended.fault("ctest")
        return Outcome("failed", fault)
    if check.tests == Tally():
        return Outcome("skipped", "there is no GPU test in this build")
    return Outcome("passed" if check.tests.passed else "skipped", str(check.tests))


# ---- Measuring ----------------------------------------------------------------------------------


def bench(parts: str, keep: str) -> Callable[[Check, float], Outcome]:
    """A phase: parts of `tools/bench gpu`, with the programs of this build. `keep` names its report
    in the folder."""

    def run(check: Check, seconds: float) -> Outcome:
        report = check.out / f"bench-{keep}.json"
        report.unlink(missing_ok=True)
        words = ["--parts", parts, "--json", str(report)]
        words += ["--seconds", f"{seconds - SECONDS_TO_END:.0f}"]
        command = run_bench.command_of("gpu", words, BUILD, check.python)
        environment = run_bench.environment_of(BUILD)
        ended = check.run(command, seconds, every_line, environment)
        goals: list[dict[str, Any]] = []
        if report.exists():
            try:
                goals = json.loads(report.read_text()).get("goals", [])
            except ValueError:
                return Outcome("failed", f"{report.name} is no JSON")
        check.goals += goals
        if ended.status == SKIPPED:
            return Outcome("skipped", ended.lines[-1] if ended.lines else "")
        if ended.status != 0:
            return Outcome("failed", ended.fault("it"))
        return Outcome("passed", count_goals(goals))

    return run


def program(*words: str) -> Callable[[Check, float], Outcome]:
    """A phase: a command in the root of the tree, with the package meron of this build. The first
    word `python3` is the Python of the tests; MERON_COMMAND is the command that was built."""

    def run(check: Check, seconds: float) -> Outcome:
        command = [check.python if words[0] == "python3" else words[0], *words[1:]]
        built = str(BUILD / "tools" / "meron" / "meron")
        environment = run_bench.environment_of(BUILD) | {"MERON_COMMAND": built}
        ended = check.run(command, seconds, every_line, environment)
        if ended.status == SKIPPED:
            return Outcome("skipped", ended.lines[-1] if ended.lines else "")
        return Outcome("passed") if ended.status == 0 else Outcome("failed", ended.fault("it"))

    return run


def example(ranks: str) -> Callable[[Check, float], Outcome]:
    words = ("python3", "tests/gpu/torch/gpt.py", "--ranks", ranks)
    return program(*words, "--keep", str(BUILD / "gpt"))


# ---- The phases in order: name, seconds at most, seconds at least, function, requirements -------
# The most important come first, because the last ones may not fit into the budget.

AFTER_BUILD = ("configure", "build")
PHASES = (
    Phase("configure", 60, 5, configure),
    Phase("build", 300, 20, build, ("configure",)),
    Phase("torch", 60, 1, look_at_torch),
    Phase("tests", 180, 30, run_ctest, ("configure",)),
    Phase("torch training", 60, 20, program("python3", "tests/gpu/torch/train.py"), AFTER_BUILD),
    Phase("doors", 90, 30, program("python3", "tests/gpu/torch/doors.py"), (*AFTER_BUILD, "torch")),
    Phase("bench kernels", 80, 30, bench("kernels,link", "kernels"), AFTER_BUILD),
    Phase("bench offload", 125, 40, bench("offload", "offload"), AFTER_BUILD),
    Phase("example 03 on one rank", 80, 40, example("1"), AFTER_BUILD),
    Phase("example 03 on two ranks", 60, 30, example("2"), AFTER_BUILD),
    Phase("bench host time", 110, 45, bench("host", "host"), (*AFTER_BUILD, "torch")),
    Phase("memcheck", 90, 15, sanitize("memcheck", ""), ("configure",)),
    Phase("racecheck", 60, 10, sanitize("racecheck", "kernel"), ("configure",)),
)


# ---- Main ---------------------------------------------------------------------------------------


def chosen(text: str) -> tuple[Phase, ...]:
    """The phases that a comma-separated list names, in their order, after those that they need."""
    known = {phase.name: phase for phase in PHASES}
    names = [word.strip() for word in text.split(",")]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(
                f"there is no phase {name!r}; there are: {', '.join(known)}"
            )
    wanted = {*names, *(need for name in names for need in known[name].needs)}
    return tuple(phase for phase in PHASES if phase.name in wanted)


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tools/gpu-check",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "build" / "gpu-check",
        metavar="DIR",
        help="where the report and the log go (default: build/gpu-check)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=BUDGET,
        metavar="SECONDS",
        help="all phases together (default: %(default).0f)",
    )
    parser.add_argument(
        "--only",
        type=chosen,
        default=PHASES,
        metavar="PHASE[,PHASE...]",
        help="these phases, and those that they need: " + ", ".join(one.name for one in PHASES),
    )
    parser.add_argument("--pack", action="store_true", help="make .gpu-pack, and nothing else")
    return parser.parse_args(words)


def make_pack() -> int:
    try:
        lines = gpu_pack.make()
    except gpu_pack.PackError as error:
        say(f"tools/gpu-check: no pack: {error}")
        return 1
    for line in lines:
        say(line)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    begin = time.monotonic()
    arguments = parse_arguments(words)
    if arguments.pack:
        return make_pack()
    gpus = gpu_machine.find_gpus()
    if not gpus:
        say("tools/gpu-check: there is no NVIDIA GPU on this machine, or no driver for it")
        return SKIPPED
    out: Path = arguments.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
        log = (out / "log.txt").open("w")
    except OSError as error:
        say(f"tools/gpu-check: cannot write to {out}: {error.strerror}")
        return 2
    with log:
        asked = gpu_machine.start_looking_for_torch()
        check = Check(out, log, gpu_machine.look(gpus), torch_asked=asked)
        if check.machine.nccl:  # where the loader finds none
            os.environ.setdefault("MERON_NCCL_LIBRARY", str(check.machine.nccl))
        try:
            for line in check.machine.lines():
                check.say(f"  {line}")
            results = run_phases(arguments.only, check, begin + arguments.budget)
        finally:
            asked.kill()
        write_report(check, results, time.monotonic() - begin)
        check.say(f"\n{table(check, results)}")
        check.say(f"{time.monotonic() - begin:.0f} s; {out / 'gpu-check.json'}, {out / 'log.txt'}")
    return 0 if has_passed(check.tests, results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("\ninterrupted")
        sys.exit(130)
