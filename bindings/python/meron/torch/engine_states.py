# SPDX-License-Identifier: Apache-2.0
"""States that the engine's optimizer keeps, as copies: they may lie on a drive, or in 8 bits."""

from __future__ import annotations

from typing import Any

import torch

from meron._native import call, ffi, lib
from meron.torch.unit import ShardedUnit

# By torch's names; the master is the f32 values that the engine updates.
CODES = {
    "master": lib.MERON_STATE_MASTER,
    "exp_avg": lib.MERON_STATE_EXP_AVG,
    "exp_avg_sq": lib.MERON_STATE_EXP_AVG_SQ,
}


def read_state(optimizer: Any, unit: ShardedUnit, i: int, key: str) -> torch.Tensor:
    """A copy of this rank's part of a state, flat, f32. Local; blocks on this rank's drive."""
    part = torch.empty(len(unit.owned(i)))
    call(
        lib.meron_optimizer_read_state,
        ffi.cast("float *", part.data_ptr()),
        part.numel(),
        optimizer.engine._handle,
        unit.handles[i]._handle,
        CODES[key],
    )
    return part


def write_state(optimizer: Any, unit: ShardedUnit, i: int, key: str, values: torch.Tensor) -> None:
    """Replaces this rank's part of a state. Local; blocks on this rank's drive. Not the master of
    an f32 param, which is the param itself."""
    part = values.detach().reshape(-1).to(torch.float32).contiguous()
    call(
        lib.meron_optimizer_write_state,
        optimizer.engine._handle,
        unit.handles[i]._handle,
        CODES[key],
        ffi.cast("float *", part.data_ptr()),
        part.numel(),
    )
