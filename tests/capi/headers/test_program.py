# SPDX-License-Identifier: Apache-2.0
"""The programs in meron.h and meron.hpp compile without a warning, and print what meron.h says. The
second is compiled without exceptions."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
INCLUDE = ROOT / "include"
LIBRARY = Path(os.environ["MERON_TEST_LIBRARY"])
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{INCLUDE}"]
C = [os.environ.get("CC", "cc"), "-xc", "-std=c99", *STRICT]
CXX = [os.environ.get("CXX", "c++"), "-xc++", "-std=c++17", "-fno-exceptions", *STRICT]


def commented(header: str, begin: str, end: str, margin: str) -> str:
    """The program between two lines of the comment of a header, without the comment's margin."""
    section = (INCLUDE / "meron" / header).read_text().split(begin)[1].split(end)[0]
    lines = [line[len(margin) :] for line in section.splitlines() if line.startswith(margin)]
    return "\n".join(lines) + "\n"


def build(folder: Path, compiler: list[str], source: str) -> Path:
    built = folder / "program"
    command = [*compiler, "-", "-o", str(built), "-xnone", str(LIBRARY)]
    command += [f"-Wl,-rpath,{LIBRARY.parent}"]
    subprocess.run(command, input=source, text=True, check=True)
    return built


def run(program: Path, ranks: int) -> list[str]:
    command = [os.environ["MERON_TEST_COMMAND"], "run", "-n", str(ranks), "--", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_program_prints_what_the_header_says(tmp_path: Path) -> None:
    program = build(tmp_path, C, commented("meron.h", " * ## A program", " * ## ", " *     "))
    for ranks in (1, 4):
        said = f"mean {ranks}.0000"
        assert f'"{said}"' in (INCLUDE / "meron" / "meron.h").read_text()
        assert run(program, ranks) == [said]


def test_the_program_in_cpp_prints_the_same(tmp_path: Path) -> None:
    source = commented("meron.hpp", "// meron/meron.hpp:", "// Common rules", "//     ")
    assert run(build(tmp_path, CXX, source), 2) == ["mean 2.0000"]


def test_without_exceptions_an_error_ends_the_process(tmp_path: Path) -> None:
    source = '#include <meron/meron.hpp>\nint main() { meron::Plan::preset("zero9"); }\n'
    done = subprocess.run([build(tmp_path, CXX, source)], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT
    assert "plan_preset failed" in done.stderr and "zero9" in done.stderr
