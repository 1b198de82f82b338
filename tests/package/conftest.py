# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = Path(os.environ.get("MERON_TEST_BUILD", ROOT / "build" / "release"))
VERSION = next(
    line.split('"')[1]
    for line in (ROOT / "bindings" / "python" / "pyproject.toml").read_text().splitlines()
    if line.startswith("version = ")
)
# Copyright holders of the libraries that are compiled in.
NOTICES = ("Victor Zverovich", "Niels Lohmann", "Google LLC", "Jens Axboe", "Henry Schreiner")


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without variables that lead to the source tree, or to another library."""
    dropped = ("MERON_", "PYTHON", "LD_", "PKG_CONFIG", "VIRTUAL_ENV")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**kept, **more}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """The command's output; fails the test with it if the command does."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=clean_environment(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def make_packages(kind: str, output: Path) -> list[Path]:
    script = ROOT / "tools" / "run_package.py"
    run(sys.executable, "-B", script, kind, "--build", BUILD, "--output", output, cwd=output)
    return sorted(path for path in output.iterdir() if path.suffix in (".whl", ".deb"))


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page of documentation."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def shown(page: str) -> list[str]:
    """The lines that the page says the program prints."""
    return blocks(page, "text")[0].splitlines()
