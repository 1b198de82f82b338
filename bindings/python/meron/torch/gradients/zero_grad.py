# SPDX-License-Identifier: Apache-2.0
"""torch.nn.Module.zero_grad over sharded params, whose gradients the engine has: `param.grad` is
None after a backward, so PyTorch's own function would find nothing to drop."""

from __future__ import annotations

import functools

import torch

from meron.torch.guard import plain
from meron.torch.sharding import sharding_with, unit_of
from meron.torch.unit import ShardedUnit

plain_zero_grad = torch.nn.Module.zero_grad


@functools.wraps(plain_zero_grad)
def zero_grad(self: torch.nn.Module, set_to_none: bool = True) -> None:
    """As PyTorch's. Gradients of sharded params are dropped, as by optimizer.zero_grad, whatever
    `set_to_none` is; all ranks must do so then."""
    found: dict[ShardedUnit, list[int]] = {}
    sharded = others = False
    with plain():
        for param in self.parameters():
            place = unit_of(param)
            if place is None:
                others = others or param.grad is not None
                continue
            sharded = True
            param.grad = None
            if not place[0].gradients.empty:
                found.setdefault(place[0], []).append(place[1])
    for unit, indices in found.items():
        sharding_with(unit).reducer.drop(unit, indices)
    if others or not sharded:
        plain_zero_grad(self, set_to_none)


torch.nn.Module.zero_grad = zero_grad  # type: ignore[method-assign]
