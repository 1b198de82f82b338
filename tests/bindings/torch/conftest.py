# SPDX-License-Identifier: Apache-2.0
"""Skips everything where torch is not installed; starts programs of several ranks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Tests of other folders train the model of zero/ too.
sys.path.append(str(Path(__file__).parent / "zero"))
LIMIT = 240  # seconds that a program may take


def pytest_configure() -> None:
    """CTest reads 77 as skipped."""
    if importlib.util.find_spec("torch") is None:
        pytest.exit("skipped: torch is not installed (tools/setup --torch)", returncode=77)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A file that is skipped as a whole has no tests, which pytest takes for an error: CTest reads
    77 as skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED:
        return
    if reporter.stats.get("skipped"):
        session.exitstatus = 77


def run_ranks(
    count: int, *arguments: object, source: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with its arguments, or Python source, on `count` ranks, which are processes."""
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(count), "--timeout", str(LIMIT), "--"]
    command += [sys.executable, "-B"]
    command += ["-c", source] if source is not None else []
    command += [str(argument) for argument in arguments]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT + 30,
    )
