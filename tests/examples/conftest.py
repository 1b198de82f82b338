# SPDX-License-Identifier: Apache-2.0
"""How the examples are started: by `meron run`, in each language."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("c", "python")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed (tools/setup --torch)",
)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A file that is skipped as a whole has no tests, which pytest takes for an error: CTest reads
    77 as skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED:
        return
    if reporter.stats.get("skipped"):
        session.exitstatus = 77


def program(example: str, language: str) -> list[str]:
    """The command line of example "gather", "language_model" or "gpt"."""
    if language in ("c", "cpp"):
        suffix = "_CPP" if language == "cpp" else ""
        return [os.environ[f"MERON_EXAMPLE_{example.upper()}{suffix}"]]
    script = {
        "gather": "examples/01_gather/python/gather.py",
        "language_model": "examples/02_language_model/python/main.py",
        "gpt": "examples/03_gpt/train.py",
    }[example]
    return [sys.executable, "-B", str(ROOT / script)]


def start(
    example: str, language: str, *arguments: object, ranks: int = 2
) -> subprocess.CompletedProcess[str]:
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(ranks), "--timeout", "300", "--"]
    command += program(example, language)
    command += [str(argument) for argument in arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Output on stderr, without warnings of waits, which may occur on a busy machine."""
    return [
        line for line in done.stderr.splitlines() if not re.search(r"\brank \d+ wait(s|ed)\b", line)
    ]


@pytest.fixture(params=LANGUAGES)
def language(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
