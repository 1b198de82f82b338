# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from self_tests.planting import Plant
from tree import Tree

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path)


@pytest.fixture(scope="session")
def project() -> Tree:
    """The tree that this test is part of."""
    return Tree(ROOT)
