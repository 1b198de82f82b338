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

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MERON_BUILD", ROOT / "build/release"))
# A model that is small enough to be saved many times a second.
SIZES = ("--width", "64", "--layers", "2", "--batch", "16", "--steps", "200")
DEADLINE = 120  # seconds until the first checkpoints are there


def program(language: str) -> list[str]:
    example = ROOT / "examples/02_language_model"
    jars = (
        BUILD / "bindings/swig/java/meron.jar",
        BUILD / "examples/02_language_model/java/language_model.jar",
    )
    commands = {
        "c": [BUILD / "examples/02_language_model/c/language_model"],
        "python": [sys.executable, "-B", example / "python/main.py"],
        "rust": [BUILD / "rust/release/language_model"],
        "julia": [
            "julia", "--startup-file=no", f"--project={ROOT / 'bindings/julia'}",
            example / "julia/main.jl",
        ],
        "java": ["java", "-cp", ":".join(map(str, jars)), "languagemodel.Main"],
    }  # fmt: skip
    return [str(word) for word in commands[language]]


def environment() -> dict[str, str]:
    library = BUILD / "capi/libmeron.so"
    return {
        "MERON_LIBRARY": str(library),
        "LD_LIBRARY_PATH": str(library.parent),
        "PYTHONPATH": str(ROOT / "bindings/python"),
        "JULIA_DEPOT_PATH": str(ROOT / "build/julia"),
        **os.environ,
    }


def start(language: str, ranks: int, *options: object) -> subprocess.Popen[str]:
    command = [str(BUILD / "tools/meron/meron"), "run", "-n", str(ranks), "--", *program(language)]
    command += [*SIZES, *map(str, options)]
    return subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, start_new_session=True
    )


def finish(running: subprocess.Popen[str]) -> str:
    said, _ = running.communicate()
    if running.returncode != 0:
        sys.exit(f"kill_and_resume: the trainer has exited with {running.returncode}")
    return said


def kill_after(running: subprocess.Popen[str], folder: Path, checkpoints: int) -> None:
    """Sends SIGKILL to `meron run` and all ranks, once so many checkpoints have been complete."""
    seen: set[str] = set()
    deadline = time.monotonic() + DEADLINE
    while len(seen) < checkpoints:
        if running.poll() is not None or time.monotonic() > deadline:
            sys.exit(
                "kill_and_resume: the trainer has ended, or is late, before it could be killed"
            )
        seen |= {path.parent.name for path in folder.glob("step-*/meron.json")}
        time.sleep(0.002)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    languages = ("c", "python", "rust", "julia", "java")
    parser.add_argument("--lang", choices=languages, default="c", help="(default: c)")
    language = parser.parse_args().lang
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        saved, whole = folder / "checkpoints", folder / "whole.json"

        print("4 ranks, plan zero3, not stopped", flush=True)
        finish(start(language, 4, "--quiet", "--json", whole))

        print("4 ranks, plan zero3, a checkpoint every 10 steps", flush=True)
        saving = ("--quiet", "--save", saved, "--save-every", 10)
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
    """Whether so many ranks go on with the expected losses."""
    print(f"{ranks} rank{'s' if ranks > 1 else ''}, plan {plan}", flush=True)
    file = saved.parent / "rest.json"
    options = ("--plan", plan, "--accumulate", 4 // ranks, "--json", file, "--resume", saved)
    said = finish(start(language, ranks, *options))
    print("  " + said.splitlines()[0].replace(str(saved.parent), "..."))
    losses = json.loads(file.read_text())["losses"]
    rest = expected[-len(losses) :]
    most = max(abs(a - b) / b for a, b in zip(losses, rest, strict=True))
    verdict = "equal to the last bit" if losses == rest else f"within {most:.1g} of them"
    print(f"  {len(losses)} losses beside those of the run that was not stopped: {verdict}")
    return most <= within


if __name__ == "__main__":
    sys.exit(main())
