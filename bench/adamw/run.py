# SPDX-License-Identifier: Apache-2.0
"""The optimizer step: against what memory allows, and in turn with torch's and DeepSpeed's."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import report
from arguments import whole
from report import BenchError, Goal, Json, median

RULES = {"AdamW": 0, "Lion": 3, "SGD": 4}
STATES = {"f32": 0, "bf16": 1, "int8": 2}
OWN = "Meron"
OWN_ARMS = (
    *(("AdamW", "f32"), ("AdamW", "bf16"), ("AdamW", "int8")),
    *(("Lion", "f32"), ("Lion", "int8"), ("SGD", "f32"), ("SGD", "int8")),
)
# How many times as fast as a peer's, in the better of its placements.
GOALS = (
    ("AdamW f32", "torch", 1.3),
    ("AdamW f32", "DeepSpeed", 1.3),
    ("AdamW f32, 16-bit", "torch", 2.0),
    ("AdamW f32, 16-bit", "DeepSpeed", 2.0),
)
SMALL_STATES_GOAL = ("AdamW int8", "AdamW f32", 1.4)
CHECKED_STEPS, CHECKED_PARAMS = 3, 64
# OpenMP's threads spin for a while after their work, which would disturb the next arm.
PAUSE = 0.01


Step = Callable[[int], float]  # the number of the step -> its seconds


@dataclass
class Arm:
    name: str
    what: str  # whose
    step: Step
    seconds: list[float] = field(default_factory=list)


class Peers(Protocol):
    """Other programs' steps, and why those that are missing are."""

    missing: dict[str, str]
    versions: dict[str, str]

    def steps(self) -> list[tuple[str, str, Step]]:
        """Steps of all peers: the arm's name, the peer's name, and the function of the step."""

    def first_steps(self, steps: int, params: int) -> list[tuple[str, list[float]]]:
        """Each peer's first parameters after its first steps."""


class NoPeers:
    def __init__(self, missing: dict[str, str]) -> None:
        self.missing = missing
        self.versions: dict[str, str] = {}

    def steps(self) -> list[tuple[str, str, Step]]:
        return []

    def first_steps(self, steps: int, params: int) -> list[tuple[str, list[float]]]:
        return []


class Kernels:
    """The step of this project, on threads and in memory of bench_optimizers."""

    def __init__(self, build: Path, elements: int, threads: int) -> None:
        path = build / "bench/adamw/bench_optimizers.so"
        if not path.exists():
            raise BenchError(f"{path} was not built: build the target bench_optimizers")
        self.library = ctypes.CDLL(str(path.resolve()))
        pointer, size, real = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_double
        for name, result, arguments in (
            ("open", pointer, [size, size]),
            ("reset", None, [pointer]),
            ("step", real, [pointer] + 5 * [ctypes.c_int32]),
            ("param", ctypes.c_float, [pointer, size]),
            ("disturbed", real, [pointer]),
        ):
            function = self.function(name)
            function.restype, function.argtypes = result, arguments
        self.handle = self.function("open")(elements, threads)
        if self.handle is None:
            raise BenchError("there is no memory or there are no threads for the step")

    def function(self, name: str) -> Any:
        return getattr(self.library, f"bench_optimizers_{name}")

    def step(self, rule: str, states: str, half: bool, number: int, once: bool = False) -> float:
        step = self.function("step")
        return float(step(self.handle, RULES[rule], STATES[states], half, number, once))

    def arm(self, rule: str, states: str, half: bool) -> Arm:
        def step(number: int) -> float:
            return self.step(rule, states, half, number)

        name = f"{rule} {states}" + (", 16-bit" if half else "")
        return Arm(name, OWN, step)

    def params(self, count: int) -> list[float]:
        return [self.function("param")(self.handle, i) for i in range(count)]

    def reset(self) -> None:
        self.function("reset")(self.handle)

    def disturbed(self) -> float:
        return float(self.function("disturbed")(self.handle))


def program(arguments: argparse.Namespace) -> Json:
    """bench_adamw: the step against what bounds it, which prints its own tables and goals."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        words = [str(arguments.build / "bench/adamw/bench_adamw"), "--json", str(file)]
        words += ["--elements", str(arguments.elements), "--threads", str(arguments.threads)]
        words += ["--repeats", str(arguments.repeats)] + (["--quick"] if arguments.quick else [])
        sys.stdout.flush()
        if subprocess.run(words).returncode != 0:
            raise BenchError(f"{' '.join(words)} failed")
        result: Json = json.loads(file.read_text())
        return result


def found_peers(arguments: argparse.Namespace) -> Peers:
    if not report.has_module("torch"):
        return NoPeers({"torch": report.WITHOUT_TORCH})
    from torch_steps import TorchPeers  # loads torch

    return TorchPeers(arguments)


def check(kernels: Kernels, peers: Peers) -> None:
    """The first steps from the same values yield the same parameters."""
    kernels.reset()
    for number in range(1, CHECKED_STEPS + 1):
        kernels.step("AdamW", "f32", False, number, once=True)
    expected = kernels.params(CHECKED_PARAMS)
    for name, params in peers.first_steps(CHECKED_STEPS, CHECKED_PARAMS):
        worst = max(abs(a - b) for a, b in zip(params, expected))
        if worst > 1e-6:
            raise BenchError(f"{name} and Meron differ by {worst} after {CHECKED_STEPS} steps")


def measure(arms: list[Arm], repeats: int) -> None:
    for turn in range(repeats + 1):
        if sys.stderr.isatty():
            print(f"\rturn {turn} of {repeats} ", end="", file=sys.stderr, flush=True)
        for arm in arms:
            time.sleep(PAUSE)
            seconds = arm.step(CHECKED_STEPS + 1 + turn)
            if turn != 0:  # the first turn warms up
                arm.seconds.append(seconds)
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)


def times(arm: Arm, base: Arm) -> float:
    """Ratio of the speeds of `arm` and `base`: the median over the turns."""
    return median(b / a for a, b in zip(arm.seconds, base.seconds))


def print_table(arms: list[Arm], peers: Peers, arguments: argparse.Namespace) -> None:
    base = arms[0]
    print(
        f"\nOptimizer steps: {arguments.elements / 1e6:.1f}M parameters, {arguments.threads} "
        f"threads, medians of {arguments.repeats} turns"
    )
    print("16-bit: gradients and weights in bf16 beside f32 master parameters.\n")
    rows = [["step", "of", "ms", "x AdamW f32"]]
    for arm in arms:
        rows.append(
            [arm.name, arm.what, f"{median(arm.seconds) * 1e3:.2f}", f"{times(arm, base):.2f}"]
        )
    print(report.columns(rows), end="\n\n")
    for name, why in peers.missing.items():
        print(f"Without {name}: {why}.\n")


def goals_of(arms: list[Arm]) -> list[Goal]:
    own = {arm.name: arm for arm in arms if arm.what == OWN}
    goals = []
    for name, peer, factor in GOALS:
        # Against the better of its placements.
        ratios = [
            times(own[name], arm)
            for arm in arms
            if arm.name == name and arm.what in (peer, f"{peer}, staggered")
        ]
        if ratios:
            goals.append(Goal(f"{name}, x {peer}", min(ratios), factor))
    name, base, factor = SMALL_STATES_GOAL
    return [*goals, Goal(f"{name}, x {base}", times(own[name], own[base]), factor)]


def main() -> None:
    parser = report.parser("adamw", __doc__ or "")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--elements", type=whole, metavar="N", help="parameters (64 Mi; with --quick 1 Mi)"
    )
    parser.add_argument(
        "--threads", type=whole, default=cores, metavar="N", help=f"of each system ({cores})"
    )
    parser.add_argument(
        "--repeats", type=whole, metavar="N", help="turns of each variant (15; with --quick 3)"
    )
    arguments = parser.parse_args()
    if arguments.elements is None:
        arguments.elements = 1 << 20 if arguments.quick else 64 << 20
    if arguments.repeats is None:
        arguments.repeats = 3 if arguments.quick else 15
    if arguments.elements < 1024:
        parser.error("--elements is from 1024")
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # read when OpenMP is loaded

    bounds = program(arguments)
    kernels = Kernels(arguments.build, arguments.elements, arguments.threads)
    peers = found_peers(arguments)
    check(kernels, peers)
    arms = [kernels.arm(rule, states, False) for rule, states in OWN_ARMS]
    arms += [kernels.arm("AdamW", states, True) for states in STATES]
    arms += [Arm(name, what, step) for name, what, step in peers.steps()]
    measure(arms, arguments.repeats)
    print_table(arms, peers, arguments)
    report.finish(
        "adamw",
        arguments,
        goals_of(arms),
        max(kernels.disturbed(), bounds["disturbed_runs"]),
        elements=arguments.elements,
        threads=arguments.threads,
        peers=peers.versions | {name: f"missing: {why}" for name, why in peers.missing.items()},
        optimizers=[
            {
                "step": arm.name,
                "of": arm.what,
                "seconds": median(arm.seconds),
                "times_adamw_f32": times(arm, arms[0]),
                "turns": arm.seconds,
            }
            for arm in arms
        ],
        bounds=bounds,
    )


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
