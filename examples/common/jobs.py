# SPDX-License-Identifier: Apache-2.0
"""The trainer of example 02, in any of its languages, started by a program around it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("MERON_BUILD", ROOT / "build/release"))
LANGUAGES = ("c", "python", "rust", "julia", "java")
# A model that takes a few milliseconds a step, and can be saved many times a second.
SIZES = ("--width", "64", "--layers", "2", "--batch", "16")


def fail(message: str) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).stem}: {message}")


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
        "julia": [  # -O1: these runs are so short that Julia mostly compiles
            "julia", "-O1", "--startup-file=no", f"--project={ROOT / 'bindings/julia'}",
            example / "julia/main.jl",
        ],
        "java": [
            os.environ.get("MERON_JAVA", "java"), "-cp", ":".join(map(str, jars)),
            "languagemodel.Main",
        ],
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
    meron = BUILD / "tools/meron/meron"
    if not meron.exists():
        fail(f"there is no {meron}: run `tools/train --steps 1 --lang {language}` first")
    command = [str(meron), "run", "-n", str(ranks), "--", *program(language)]
    command += [*SIZES, *map(str, options)]
    return subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, start_new_session=True
    )


def finish(running: subprocess.Popen[str]) -> str:
    """Output of rank 0."""
    printed, _ = running.communicate()
    if running.returncode != 0:
        fail(f"the trainer exited with {running.returncode}")
    return printed
