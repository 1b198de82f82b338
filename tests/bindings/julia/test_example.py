# SPDX-License-Identifier: Apache-2.0
"""Example 02 in Julia learns the same as in C, to the last bit, and complains as C does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--width", "48", "--layers", "2", "--batch", "12", "--steps", "12", "--lr", "0.005")

if shutil.which("julia") is None:
    pytest.skip("there is no julia on the PATH (tools/setup --julia)", allow_module_level=True)

PROGRAMS = {
    "c": [os.environ["MERON_EXAMPLE_LANGUAGE_MODEL"], "--product", "plain"],
    "julia": [
        *("julia", "-O1", "--startup-file=no", f"--project={ROOT / 'bindings/julia'}"),
        str(ROOT / "examples/02_language_model/julia/main.jl"),
    ],
}


def start(language: str, *arguments: object, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(ranks), "--timeout", "100", "--"]
    command += [*PROGRAMS[language], *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def train(folder: Path, language: str, *arguments: object, ranks: int = 2) -> dict[str, Any]:
    file = folder / f"{language}.json"
    done = start(language, *SMALL, *arguments, "--quiet", "--json", file, ranks=ranks)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    run: dict[str, Any] = json.loads(file.read_text())
    for row in run["per_rank"]:  # the arena's pages are the kernel's business
        del row["arena_pages_bytes"]
    return run


@pytest.mark.parametrize(
    ("ranks", "arguments"),
    [(2, ("--plan", "zero3")), (2, ("--plan", "zero1", "--dtype", "bf16", "--accumulate", "2"))],
)
def test_losses_are_those_of_c(tmp_path: Path, ranks: int, arguments: tuple[str, ...]) -> None:
    in_c, in_julia = (train(tmp_path, name, *arguments, ranks=ranks) for name in PROGRAMS)
    assert in_julia["losses"] == in_c["losses"]
    assert in_julia["bytes_equal"] is True
    assert in_julia["language"] == "julia"
    for run in (in_c, in_julia):
        for key in ("language", "seconds", "steps_per_second"):
            del run[key]
    assert in_julia == in_c


def test_bad_input_gets_one_line() -> None:
    done = start("julia", "--steps", "many", ranks=1)
    assert done.returncode == 2
    assert "language_model: --steps many: must be a whole number from 1 to" in done.stderr


def test_a_transport_of_files_in_a_folder(tmp_path: Path) -> None:
    julia = PROGRAMS["julia"][:-1]
    main = str(ROOT / "examples/08_custom_transport/julia/main.jl")
    command = [os.environ["MERON_COMMAND"], "run", "-n", "2", "--timeout", "100", "--"]
    done = subprocess.run(
        [*command, *julia, main, str(tmp_path)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    assert "from the mean 0.5" in done.stdout
    assert not list(tmp_path.glob("*.part"))
