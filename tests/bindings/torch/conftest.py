# SPDX-License-Identifier: Apache-2.0
"""Skips all tests if torch is not installed."""

from __future__ import annotations

import importlib.util

import pytest


def pytest_configure() -> None:
    """CTest reads 77 as skipped."""
    if importlib.util.find_spec("torch") is None:
        pytest.exit("skipped: torch is not installed (tools/setup --torch)", returncode=77)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Exits with 77, which CTest reads as skipped, if each file was skipped as a whole.

    pytest reports that no test was collected, as if it were an error.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED:
        return
    if reporter.stats.get("skipped"):
        session.exitstatus = 77
