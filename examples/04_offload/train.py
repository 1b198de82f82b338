#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a model whose states do not fit into memory: see --help."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from limit import NoLimit, memory_limit, peak

ROOT = Path(__file__).resolve().parents[2]
SHARE = 0.4  # of the states that may be in memory
KINDS = ("c", "torch")
# Many small layers: the unsharded values at one time are small beside all shards.
SIZES = {
    "c": ["--width", "256", "--layers", "320", "--batch", "8", "--lr", "0.0001"],
    "torch": ["--width", "256", "--layers", "12", "--heads", "4", "--batch", "1"],
}


@dataclass
class Run:
    """Result of a run."""

    code: int
    complaint: str
    result: dict[str, Any] | None = None
    used: int = 0  # of memory at most, all processes together; 0: not measured

    @property
    def peaks(self) -> list[int]:
        assert self.result is not None
        return [rank["peak_bytes"]["counted"] for rank in self.result["per_rank"]]


def command_of(options: argparse.Namespace, nvme: bool, folder: Path, out: Path) -> list[str]:
    """The command line of the program that trains."""
    meron = os.environ.get("MERON_COMMAND", str(ROOT / "build/release/tools/meron/meron"))
    begin = [meron, "run", "-n", str(options.ranks), "--"]
    common = ["--steps", str(options.steps), "--dtype", "bf16", "--quiet", "--json", str(out)]
    if options.lang == "torch":
        script = str(ROOT / "examples/03_gpt/train.py")
        where = ["--nvme", options.drive] if nvme else []
        return [*begin, sys.executable, script, "--api", "zero", *SIZES["torch"], *where, *common]
    program = ROOT / "build/release/examples/02_language_model/c/language_model"
    plan: dict[str, Any] = {"preset": "zero3"}
    if nvme:
        # 1.5 MiB of states at a time, three times: one is read, one updated, one written.
        plan["optimizer"] = {"tier": "nvme", "sub_group": 65536, "buffers": 3}
        if options.params:
            plan["param"] = {"tier": "nvme"}
        plan["nvme"] = {"path": options.drive}
    file = folder / f"{'nvme' if nvme else 'memory'}.plan.json"
    file.write_text(json.dumps(plan))
    binary = os.environ.get("MERON_EXAMPLE_LANGUAGE_MODEL", str(program))
    if not Path(binary).exists():
        raise SystemExit(f"there is no {binary}: build it, for example by tools/train --steps 1")
    return [*begin, binary, *SIZES["c"], "--plan", str(file), *common]


def environment() -> dict[str, str]:
    """With what this checkout has built, where nothing else is named."""
    python = [str(ROOT / "bindings/python"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "MERON_LIBRARY": str(ROOT / "build/release/capi"),
        **os.environ,
        "PYTHONPATH": os.pathsep.join(python),
    }


def run(options: argparse.Namespace, nvme: bool, folder: Path, group: Path | None) -> Run:
    out = folder / f"{'nvme' if nvme else 'memory'}.json"
    out.unlink(missing_ok=True)

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    done = subprocess.run(
        command_of(options, nvme, folder, out),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=enter,  # there are no threads here
    )
    result = json.loads(out.read_text()) if done.returncode == 0 and out.exists() else None
    used = peak(group) if group is not None else 0
    return Run(done.returncode, done.stderr.strip(), result, used)


def mib(count: float) -> str:
    return f"{count / 2**20:,.0f} MiB"


def first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "MERON" not in line and line.strip()]
    return lines[0] if lines else "it was ended by the system"


def compare(options: argparse.Namespace, folder: Path) -> int:
    memory = run(options, False, folder, None)
    if memory.result is None:
        print(memory.complaint, file=sys.stderr)
        return 1
    states = sum(memory.peaks)
    limit = int(SHARE * states)
    print(f"{memory.result['parameters']:,} parameters in bf16 on {options.ranks} ranks")
    print(f"all states in memory            {mib(states):>12}")
    print(f"the limit, {SHARE:.0%} of them          {mib(limit):>12}")
    with contextlib.ExitStack() as stack:
        group: Path | None = None
        # PyTorch itself takes more memory than a small model's states.
        if options.lang == "c":
            try:
                group = stack.enter_context(memory_limit(limit))
            except NoLimit as reason:
                print(f"not enforced here: {reason}")
        if group is not None:
            refused = run(options, False, folder, group)
            if refused.result is not None:
                print("it trained all the same: the limit does not limit", file=sys.stderr)
                return 1
            print(f"\nin memory, under the limit:\n  {first_error(refused.complaint)}")
        nvme = run(options, True, folder, group)
    if nvme.result is None:
        print(nvme.complaint or "the run was ended", file=sys.stderr)
        return 1
    print(f"\nstates on {options.drive}:")
    held = sum(nvme.peaks)
    print(f"held by the ranks at most       {mib(held):>12}   {held / states:.0%} of the states")
    if nvme.used:
        print(f"used by all processes at most   {mib(nvme.used):>12}")
    print(f"{'step':>6} {'in memory':>14} {'on nvme':>14}")
    pairs = list(zip(memory.result["losses"], nvme.result["losses"], strict=True))
    for step, (a, b) in enumerate(pairs):
        print(f"{step + 1:>6} {a:>14.9f} {b:>14.9f}")
    equal = all(a == b for a, b in pairs)
    print("every loss has equal bits" if equal else "LOSSES DIFFER")
    print(
        f"{memory.result['seconds']:.1f} s in memory, {nvme.result['seconds']:.1f} s with states "
        "on nvme"
    )
    if options.json:
        Path(options.json).write_text(
            json.dumps(
                {
                    "parameters": memory.result["parameters"],
                    "ranks": options.ranks,
                    "states_bytes": states,
                    "limit_bytes": limit,
                    "enforced": group is not None,
                    "held_bytes": held,
                    "used_bytes": nvme.used,
                    "equal_bits": equal,
                    "losses": nvme.result["losses"],
                    "seconds": {
                        "memory": memory.result["seconds"],
                        "nvme": nvme.result["seconds"],
                    },
                },
                indent=2,
            )
        )
    fits = options.lang != "c" or held <= limit
    return 0 if equal and fits else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Trains a model twice: with all of its states in memory, and with the "
        f"optimizer's on a drive, in a memory cgroup of {SHARE:.0%} of what they take. The losses "
        "must have equal bits.",
        epilog="Exit code: 0 all is well; 1 losses differ, or it did not fit; 2 bad input. Where "
        "memory cgroups cannot be made (it takes root, as a rule) the limit is only compared with "
        "what the ranks count.",
    )
    parser.add_argument(
        "--lang",
        choices=KINDS,
        default="c",
        help="the program of example 02 in C (default), or of example 03 with PyTorch, without "
        "the limit",
    )
    parser.add_argument("-n", dest="ranks", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--steps", type=int, default=5, help="optimizer steps (default 5)")
    parser.add_argument(
        "--drive", default=".", help="a folder on the drive (default: this one); nothing is left"
    )
    parser.add_argument(
        "--params", action="store_true", help="with --lang c: the params lie on the drive too"
    )
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    options.drive = str(Path(options.drive).resolve())
    for name in ("ranks", "steps"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if options.params and options.lang != "c":
        parser.error("--params is of --lang c: example 03 takes DeepSpeed's key offload_param")
    if not Path(options.drive).is_dir():
        parser.error(f"--drive {options.drive}: there is no such folder")
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
