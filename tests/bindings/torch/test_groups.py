# SPDX-License-Identifier: Apache-2.0
"""Several plans and groups of ranks in one model (hard/groups.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from promises import check_promise, promises_of

SOURCE = Path(__file__).parent / "hard" / "groups.py"


@pytest.mark.parametrize("promise", promises_of(SOURCE))
def test_groups(promise: str) -> None:
    check_promise(SOURCE, 4, promise)
