# SPDX-License-Identifier: Apache-2.0
"""The program in meron.h compiles without a warning, and prints what the header says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEADER = ROOT / "include" / "meron" / "meron.h"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def program() -> str:
    """The lines of the comment between two headings, without the comment's margin."""
    text = HEADER.read_text()
    section = text.split(" * ## A program")[1].split(" * ## ")[0]
    margin = " *     "
    lines = [line[len(margin) :] for line in section.splitlines() if line.startswith(margin)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    source, built = folder / "fit.c", folder / "fit"
    source.write_text(program())
    library = Path(os.environ["MERON_TEST_LIBRARY"])
    command = [os.environ.get("CC", "cc"), *STRICT, f"-I{ROOT / 'include'}", str(source)]
    command += ["-o", str(built), str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run(command, check=True)
    return built


@pytest.mark.parametrize("ranks", [1, 4])
def test_the_program_prints_what_the_header_says(fit: Path, ranks: int) -> None:
    said = f"mean {ranks}.0000"
    assert f'"{said}"' in HEADER.read_text()
    command = [os.environ["MERON_TEST_COMMAND"], "run", "-n", str(ranks), "--", str(fit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [said]
