# SPDX-License-Identifier: Apache-2.0
"""What state dicts for torch.distributed.checkpoint promise, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from promises import check_promise, promises_of

HERE = Path(__file__).parent / "checkpoint"
PROMISES = [HERE / "dcp_promised.py", HERE / "dcp_states.py"]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("program", "promise"),
    [(program, promise) for program in PROMISES for promise in promises_of(program)],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_promise(program: Path, promise: str, ranks: int) -> None:
    check_promise(program, ranks, promise)
