#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains, kills all ranks by SIGKILL, and resumes at other numbers of ranks and under other plans.

The trainer is example 02, in the language of --lang. Exit code 0 when the resumed runs have the
losses of a run that was not stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # where the package `common` is
from common.jobs import LANGUAGES, fail, finish, start

STEPS = ("--steps", "200")
DEADLINE = 300  # seconds until the first checkpoints exist: Julia compiles first


def kill_after(running: subprocess.Popen[str], folder: Path, checkpoints: int) -> None:
    """Sends SIGKILL to `meron run` and all ranks, once so many checkpoints have been complete."""
    seen: set[str] = set()
    deadline = time.monotonic() + DEADLINE
    while len(seen) < checkpoints:
        if running.poll() is not None or time.monotonic() > deadline:
            fail("the trainer has ended, or is late, before it could be killed")
        seen |= {path.parent.name for path in folder.glob("step-*/meron.json")}
        time.sleep(0.002)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lang", choices=LANGUAGES, default="c", help="(default: c)")
    language = parser.parse_args().lang
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        saved, whole = folder / "checkpoints", folder / "whole.json"

        print("4 ranks, plan zero3, not stopped", flush=True)
        finish(start(language, 4, *STEPS, "--quiet", "--json", whole))

        print("4 ranks, plan zero3, a checkpoint every 10 steps", flush=True)
        saving = (*STEPS, "--quiet", "--save", saved, "--save-every", 10)
        kill_after(start(language, 4, *saving), saved, 3)
        print("  killed; on the disk: " + ", ".join(sorted(os.listdir(saved))), flush=True)

        # They take 4 micro-batches a step, as 4 ranks do, and so see the same examples. One rank
        # adds the gradients in the order of the 4 ranks; 2 ranks in another, and round otherwise.
        expected = json.loads(whole.read_text())["losses"]
        good = resumed(language, saved, expected, 2, "zero1", 1e-3)
        good &= resumed(language, saved, expected, 1, "zero0", 1e-6)
    return 0 if good else 1


def resumed(
    language: str, saved: Path, expected: list[float], ranks: int, plan: str, within: float
) -> bool:
    """True if the run resumes with `ranks` ranks and has the expected losses."""
    print(f"{ranks} rank{'s' if ranks > 1 else ''}, plan {plan}", flush=True)
    file = saved.parent / "rest.json"
    options = ("--plan", plan, "--accumulate", 4 // ranks, "--json", file, "--resume", saved)
    said = finish(start(language, ranks, *STEPS, *options))
    print("  " + said.splitlines()[0].replace(str(saved.parent), "..."))
    losses = json.loads(file.read_text())["losses"]
    rest = expected[-len(losses) :]
    most = max(abs(a - b) / b for a, b in zip(losses, rest, strict=True))
    verdict = "equal to the last bit" if losses == rest else f"within {most:.1g} of them"
    print(f"  {len(losses)} losses beside those of the run that was not stopped: {verdict}")
    return most <= within


if __name__ == "__main__":
    sys.exit(main())
