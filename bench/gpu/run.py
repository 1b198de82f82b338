# SPDX-License-Identifier: Apache-2.0
"""A GPU: its kernels against its own copy of memory, the link to the host, and a step over it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import report
from arguments import duration, names_of, whole
from report import BenchError, Goal, Json
from torch_arms import host_us, run_arm

SKIPPED = 77
# Of the copy's bytes per second.
KERNEL_GOALS = {
    "adamw 16-bit": 0.93,
    "int8 quantize": 0.90,
    "int8 dequantize": 0.90,
    "int4 quantize": 0.90,
    "int4 dequantize": 0.90,
    "sum of 8 int4": 0.85,
}
DIRECT, BY_F16 = "int8 quantize of bf16", "cast to f16, int8 quantize"
DIRECT_GOAL = 2.0  # times as fast
BOTH_WAYS_GOAL = 1.7  # of one way's rate
STEP_GOAL = 1.10  # of the slower of copy and update
QUICK_LINK_BYTES, QUICK_PARAMETERS = 1 << 26, 1 << 20
# If the machine allocates memory slowly, the smaller model runs in the remaining time.
SIZES = ((1_000_000_000, 0.6), (200_000_000, 0.4))  # parameters, and the share of the time
# Arms of bench/pytorch, and what they are here.
HOST_ARMS = {
    "plain": "plain torch",
    "meron device": "Meron, all on the device",
    "fsdp2": "FSDP2",
    "meron": "Meron, torch's AdamW on the host",
}
HOST_GOAL = 0.1  # of FSDP2's
HOST_ROUNDS = 3  # a further one is begun if it should end in time


class NoDevice(BenchError):
    """Nothing can be measured, however small."""


def run_program(program: Path, words: list[str], seconds: float | None = None) -> Json:
    if not program.exists():
        raise BenchError("the programs for CUDA devices were not built: there is no nvcc")
    command = [program, *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise BenchError(f"{program.name} took more than {seconds:.0f} s") from None
    if done.returncode == SKIPPED:
        raise NoDevice(done.stderr.strip())
    if done.returncode != 0:
        raise BenchError(
            f"{program.name} ended with exit code {done.returncode}:\n{done.stderr.strip()}"
        )
    measured: Json = json.loads(done.stdout)
    return measured


def program_of(arguments: argparse.Namespace, name: str) -> Path:
    path: Path = arguments.build / f"bench/gpu/bench_gpu_{name}"
    return path


# ---- Kernels ------------------------------------------------------------------------------------


def kernels(arguments: argparse.Namespace) -> tuple[Json, list[Goal]]:
    words = ["--repeats", str(arguments.repeats)]
    if arguments.elements is not None:
        words += ["--elements", str(arguments.elements)]
    if arguments.quick:
        words.append("--quick")
    measured = run_program(program_of(arguments, "kernels"), words)
    print(f"{measured['device']}, copy {measured['copy_gb_per_second']:.0f} GB/s\n")
    table = [["", "elements", "ms", "GB/s", "of the copy"]]
    for row in measured["rows"]:
        cells = [f"{row['elements']}", f"{row['seconds'] * 1e3:.2f}"]
        cells += [f"{row['gb_per_second']:.0f}", f"{row['of_copy']:.2f}"]
        table.append([row["name"], *cells])
    print(f"{report.columns(table)}\n")
    rows = {row["name"]: row for row in measured["rows"]}
    goals = [
        Goal(f"{name}, of the copy", rows[name]["of_copy"], at) for name, at in KERNEL_GOALS.items()
    ]
    times = rows[BY_F16]["seconds"] / rows[DIRECT]["seconds"]
    return measured, [*goals, Goal(f"{DIRECT}, times as fast as by f16", times, DIRECT_GOAL)]


# ---- The link, and a step over it ---------------------------------------------------------------


def link(arguments: argparse.Namespace) -> tuple[Json, list[Goal]]:
    words = ["--device", arguments.device, "--repeats", str(arguments.repeats)]
    if arguments.quick:
        words += ["--bytes", str(QUICK_LINK_BYTES)]
    measured = run_program(program_of(arguments, "link"), words)
    ways = [measured[f"{way}_gb_per_second"] for way in ("up", "down", "both")]
    print("Link to the host, GB/s: up {:.1f}, down {:.1f}, both at a time {:.1f}\n".format(*ways))
    both = measured["both_of_one_way"]
    return measured, [Goal("link both ways, of one way", both, BOTH_WAYS_GOAL)]


def offload(arguments: argparse.Namespace) -> tuple[Json, list[Goal]]:
    measured = measure_offload(arguments)
    count, units = measured["parameters"], measured["units"]
    print(
        f"A step of {count / 1e6:.0f}M bf16 parameters on {measured['device']} in {units} units, "
        "states and update on the host"
    )
    table = [["", "ms"]]
    for name, key in (
        ("copy: the new values up, alone", "copy"),
        ("the gradients down, alone", "copy_down"),
        ("update: the step with all on the host", "update"),
        ("step, until the device has the values", "step"),
        ("gradients down, and that step", "down_and_step"),
    ):
        table.append([name, f"{measured[f'{key}_seconds'] * 1e3:.1f}"])
    print(f"{report.columns(table)}\n")
    name = "offloaded step, of the slower of copy and update"
    return measured, [Goal(name, measured["step_over_largest"], STEP_GOAL, at_least=False)]


def measure_offload(arguments: argparse.Namespace) -> Json:
    words = ["--device", arguments.device, "--repeats", str(min(arguments.repeats, 9))]
    program = program_of(arguments, "offload")
    given = QUICK_PARAMETERS if arguments.quick else arguments.parameters
    if given is not None:
        return run_program(program, [*words, "--parameters", str(given)])
    for count, share in SIZES:
        seconds = share * arguments.seconds
        try:
            return run_program(program, [*words, "--parameters", str(count)], seconds)
        except NoDevice:
            raise
        except BenchError as error:  # too slow, or there is no memory for as many
            print(f"{count / 1e6:.0f}M parameters: {error}", file=sys.stderr, flush=True)
    raise BenchError("the offloaded step could not be measured")


# ---- The host's time ----------------------------------------------------------------------------


def host(arguments: argparse.Namespace) -> tuple[Json, list[Goal]]:
    if not report.has_module("torch"):
        print(f"Without the host's time per unit: {report.WITHOUT_TORCH}.\n")
        return {}, []
    runs: dict[str, list[Json]] = {arm: [] for arm in HOST_ARMS}
    begin = time.monotonic()
    for number in range(1 if arguments.quick else HOST_ROUNDS):
        taken = time.monotonic() - begin
        if number > 0 and taken + taken / number > arguments.seconds:
            break
        for arm in HOST_ARMS:
            # The emulated device is Meron's alone: for the others it is the CPU.
            emulated = arguments.device == "emulated" and not arm.startswith("meron")
            device = "cpu" if emulated else arguments.device
            seconds = 0.1 if arguments.quick else 2.0
            runs[arm].append(run_arm(arguments.build, "tiny", arm, 1, seconds, device=device))
    us = {
        arm: {key: host_us(runs[arm], runs["plain"], key) for key in ("hooks_ms", "ms")}
        for arm in HOST_ARMS
        if arm != "plain"
    }
    print(
        f"Host time per unit and step beyond plain torch's, us: 200 linear layers of 16, one rank, "
        f"{arguments.device}, {len(runs['plain'])} rounds"
    )
    table = [["", "forward and backward", "with the optimizer's step"]]
    table += [[HOST_ARMS[arm], *(f"{value:.1f}" for value in us[arm].values())] for arm in us]
    print(f"{report.columns(table)}\n")
    goals = [
        Goal(f"host time, {what}, of FSDP2's", own / peer, HOST_GOAL, at_least=False)
        for what, own, peer in zip(
            ("forward and backward", "with the step"),
            us["meron device"].values(),
            us["fsdp2"].values(),
            strict=True,
        )
    ]
    return {"us": us, "runs": runs}, goals


# ---- What runs ----------------------------------------------------------------------------------

PARTS = {"kernels": kernels, "link": link, "offload": offload, "host": host}
NEED_CUDA = ("kernels",)


def parts_of(arguments: argparse.Namespace) -> list[str]:
    cuda = arguments.device.startswith("cuda")
    if arguments.parts is None:
        return [part for part in PARTS if cuda or part not in NEED_CUDA]
    chosen: list[str] = arguments.parts
    for part in chosen:
        if part in NEED_CUDA and not cuda:
            raise BenchError(f"{part} has nothing to measure on {arguments.device}")
    return chosen


def main() -> None:
    parser = report.parser("gpu", __doc__ or "")
    parser.add_argument(
        "--parts",
        type=names_of(PARTS),
        metavar="A,B",
        help=f"only these of {', '.join(PARTS)} (default: all)",
    )
    parser.add_argument(
        "--device",
        default="cuda",
        metavar="DEVICE",
        help="cuda (default), cuda:N, or emulated: without a GPU; all but kernels, and --quick",
    )
    parser.add_argument("--elements", type=whole, metavar="N", help="of each array, at most (2^30)")
    parser.add_argument("--parameters", type=whole, metavar="N", help="of the step's model (1e9)")
    parser.add_argument("--repeats", type=whole, default=15, metavar="N", help="turns (15)")
    parser.add_argument(
        "--seconds",
        type=duration,
        default=120.0,
        metavar="S",
        help="for offload and for host: they measure less rather than take longer (120)",
    )
    arguments = parser.parse_args()
    if not arguments.device.startswith("cuda"):
        arguments.quick = True  # it measures nothing, and has little memory
    goals: list[Goal] = []
    figures: Json = {}
    for part in parts_of(arguments):
        figures[part], found = PARTS[part](arguments)
        goals += found
        sys.stdout.flush()  # who watches sees a part when it has ended
    report.finish("gpu", arguments, goals, 0.0, **figures)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
