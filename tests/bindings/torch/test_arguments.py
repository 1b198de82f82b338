# SPDX-License-Identifier: Apache-2.0
"""No argument is ignored (hard/arguments.py has a function for each promise)."""

from __future__ import annotations

from pathlib import Path

import pytest
from promises import check_promise, promises_of

SOURCE = Path(__file__).parent / "hard" / "arguments.py"


@pytest.mark.parametrize("promise", promises_of(SOURCE))
def test_arguments(promise: str) -> None:
    check_promise(SOURCE, 2, promise)
