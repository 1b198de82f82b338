# SPDX-License-Identifier: Apache-2.0
"""GradScaler, copies, adapters, replaced params and DTensors (hard/companions.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from promises import check_promise, promises_of

SOURCE = Path(__file__).parent / "hard" / "companions.py"


@pytest.mark.parametrize("promise", promises_of(SOURCE))
def test_companions(promise: str) -> None:
    check_promise(SOURCE, 2, promise)
