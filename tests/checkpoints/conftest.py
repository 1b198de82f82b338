# SPDX-License-Identifier: Apache-2.0
"""Skips the files whose packages are not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NoReturn

import pytest

NEEDED = {
    "test_kept_torch.py": ("torch", "tools/setup --torch installs PyTorch"),
    "test_kept_zero.py": ("torch", "tools/setup --torch installs PyTorch"),
    "test_kept_lightning.py": ("lightning", "tools/setup --integrations installs Lightning"),
}


class Skipped(pytest.Module):
    def collect(self) -> NoReturn:
        pytest.skip(NEEDED[self.path.name][1], allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    package, _ = NEEDED.get(module_path.name, ("meron", ""))
    if importlib.util.find_spec(package) is not None:
        return None
    return Skipped.from_parent(parent, path=module_path)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Exits with 77, which CTest reads as skipped, if each file was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or exitstatus != pytest.ExitCode.NO_TESTS_COLLECTED:
        return
    if reporter.stats.get("skipped"):
        session.exitstatus = 77
