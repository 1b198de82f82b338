# SPDX-License-Identifier: Apache-2.0
"""The values that a load copies to sharded params, until all ranks know that they fit."""

from __future__ import annotations

from typing import Any

import torch

from meron import errors
from meron.torch.flat_shard import FlatShard
from meron.torch.guard import Sharded, place_of
from meron.torch.unit import ShardedUnit


class Loading:
    """As `registry.loading`, notes what is copied to guarded params."""

    def __init__(self) -> None:
        self.values: dict[tuple[ShardedUnit, int], torch.Tensor] = {}

    def take(self, tensor: Any, value: Any) -> None:
        """ArgumentError for a value that the param cannot take."""
        unit, i = place_of(tensor)
        assert isinstance(unit, ShardedUnit)
        handle = unit.handles[i]
        wrong = None
        if not isinstance(value, torch.Tensor):
            wrong = f"is a {type(value).__name__}, no tensor"
        elif isinstance(value, Sharded):
            wrong = "is a sharded param, out of use"
        elif value.is_meta:
            wrong = "is on the device meta, without values"
        elif value.layout is not torch.strided or value.is_quantized or value.is_nested:
            wrong = "is no dense tensor"
        elif value.is_complex():
            wrong = f"is of {value.dtype}, and the param of {handle.dtype}"
        elif hasattr(value, "full_tensor"):
            wrong = "is a DTensor: pass value.full_tensor()"
        elif isinstance(value, FlatShard) and value.own() != unit.owned(i):
            wrong = f"has the elements {value.own()} of it, and this rank {unit.owned(i)}"
        elif tuple(value.shape) != tuple(handle.shape):
            wrong = f"has shape {tuple(value.shape)}, and the param {tuple(handle.shape)}"
        if wrong is not None:
            raise errors.argument(f"the value for '{handle.name}' {wrong}", subject=handle.name)
        if isinstance(value, FlatShard):
            value.require_values(handle.name)
        self.values[unit, i] = value.detach()
