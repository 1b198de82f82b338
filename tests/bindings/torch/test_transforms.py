# SPDX-License-Identifier: Apache-2.0
"""torch.compile and torch.func on sharded modules (hard/transforms.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from promises import check_promise, promises_of

SOURCE = Path(__file__).parent / "hard" / "transforms.py"


@pytest.mark.parametrize("promise", promises_of(SOURCE))
def test_transforms(promise: str) -> None:
    check_promise(SOURCE, 2, promise)
