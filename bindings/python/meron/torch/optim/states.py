# SPDX-License-Identifier: Apache-2.0
"""States that the engine's optimizers keep, as copies: they may lie on a drive, or in 8 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from meron._native import call, ffi, lib
from meron.torch.unit import ShardedUnit

CODES = {
    "master": lib.MERON_OPTIMIZER_STATE_MASTER,  # the f32 values that the engine updates
    "exp_avg": lib.MERON_OPTIMIZER_STATE_EXP_AVG,
    "exp_avg_sq": lib.MERON_OPTIMIZER_STATE_EXP_AVG_SQ,
}

# States of torch's classes that are one number per param, also of a param of shape ().
NUMBERS = frozenset({"step", "mu_product", "eta", "mu"})


def numbers_in(param: torch.Tensor, state: Mapping[str, Any]) -> list[str]:
    """The states of a param that are one number; none of a param of shape (), whose other states
    have that shape, too. (Shards are flat.)"""
    if not param.dim():
        return []
    return [
        key
        for key, value in state.items()
        if value is not None and not (isinstance(value, torch.Tensor) and value.dim())
    ]


def code_of(optimizer: Any, key: str) -> int:
    """The engine's code of a state by torch's name, or "master"."""
    return int(CODES[key if key == "master" else optimizer.state_names[key]])


def read_state(optimizer: Any, unit: ShardedUnit, i: int, key: str) -> torch.Tensor:
    """A copy of this rank's part of a state, flat, f32. Local; blocks on this rank's drive."""
    unit.sharding.finish_step()
    part = torch.empty(len(unit.shard_range(i)), device="cpu")
    call(
        lib.meron_optimizer_read_state,
        ffi.cast("float *", part.data_ptr()),
        part.numel(),
        optimizer.engine._handle,
        unit.handles[i]._handle,
        code_of(optimizer, key),
    )
    return part


def write_state(optimizer: Any, unit: ShardedUnit, i: int, key: str, values: torch.Tensor) -> None:
    """Replaces this rank's part of a state. Local; blocks on this rank's drive. Not the master of
    an f32 param, which is the param itself."""
    unit.sharding.finish_step()
    part = values.detach().reshape(-1).to("cpu", torch.float32).contiguous()
    call(
        lib.meron_optimizer_write_state,
        optimizer.engine._handle,
        unit.handles[i]._handle,
        code_of(optimizer, key),
        ffi.cast("float *", part.data_ptr()),
        part.numel(),
    )


def keys_of(optimizer: Any, group: dict[str, Any], unit: ShardedUnit, i: int) -> list[str]:
    """The states of a param of a group that a checkpoint has, besides "step"."""
    keys = list(optimizer.state_names) if optimizer.has_states(group) else []
    return keys if unit.handles[i].dtype_name == "f32" else [*keys, "master"]
