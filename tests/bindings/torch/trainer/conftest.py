# SPDX-License-Identifier: Apache-2.0
"""Skips the files of this folder, which import Lightning, if it is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NoReturn

import pytest


class NeedsLightning(pytest.Module):
    def collect(self) -> NoReturn:
        pytest.skip("tools/setup --integrations installs Lightning", allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    if importlib.util.find_spec("lightning") is not None:
        return None
    return NeedsLightning.from_parent(parent, path=module_path)
