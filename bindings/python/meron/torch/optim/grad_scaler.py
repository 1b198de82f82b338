# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler with optimizers that run on shards.

GradScaler divides the gradients in `param.grad`. Gradients of sharded params are on the ranks that
own them, so it would divide nothing and find no infinity. The functions here replace its methods
for optimizers of Meron: they divide this rank's shards, and share an infinity on one rank with all
ranks. A change of the scale also scales the codec's feedback. Other optimizers use torch's methods.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakSet

import torch

from meron.torch import torch_internals
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.shards import refuse_whole_params
from meron.torch.ranks import of_all_ranks
from meron.torch.registry import scaled_optimizers
from meron.torch.sharding import by_sharding
from meron.torch.unit import ShardedUnit

Places = list[tuple[ShardedUnit, int]]


def places_of(optimizer: torch.optim.Optimizer) -> Places | None:
    """The params whose shards an optimizer updates; None if it updates no shards.

    Raises StateError for an optimizer that holds sharded params themselves.
    """
    if isinstance(optimizer, EngineOptimizer):
        return [(unit, i) for unit in optimizer.sharded for i in unit.trainable]
    shards = getattr(optimizer, "_meron_shards", None)
    if shards is not None:
        return [(unit, i) for unit in shards.units() for i in shards.parts[unit]]
    refuse_whole_params(optimizer, None, None)
    return None


def unscale_grads(
    scaler: torch.amp.GradScaler,
    optimizer: torch.optim.Optimizer,
    inv_scale: torch.Tensor,
    found_inf: torch.Tensor,
    allow_fp16: bool,
) -> dict[torch.device, torch.Tensor]:
    """Replaces GradScaler's method. Ends the accumulation as full_grad does. Collective;
    blocks on peers."""
    places = places_of(optimizer)
    if places is None:
        return torch_internals.unscale(scaler, optimizer, inv_scale, found_inf, allow_fp16)
    scaled_optimizers.setdefault(scaler, WeakSet()).add(optimizer)
    grouped = by_sharding(places)
    infinite = False
    for sharding, own in grouped.items():
        parts = [part for part in sharding.reducer.parts(own) if part.numel()]
        if parts:
            found = torch.zeros((), device=parts[0].device)
            inverse = inv_scale.to(parts[0].device)
            torch_internals.non_finite_check_and_unscale(parts, found, inverse)
            infinite = infinite or bool(found)
    for sharding in grouped:  # in order: each group includes the result of the last
        infinite = bool(of_all_ranks(sharding.context, [float(infinite)]).any())
    found_inf.fill_(float(infinite))
    return {found_inf.device: found_inf}


def maybe_step(
    scaler: torch.amp.GradScaler,
    optimizer: torch.optim.Optimizer,
    optimizer_state: dict[str, Any],
    *args: Any,
    **kwargs: Any,
) -> float | None:
    """Replaces GradScaler's method. A skipped step also drops the gradients."""
    result: float | None = torch_internals.maybe_step(
        scaler, optimizer, optimizer_state, *args, **kwargs
    )
    if places_of(optimizer) is not None and any(
        bool(found) for found in optimizer_state["found_inf_per_device"].values()
    ):
        optimizer.zero_grad()
    return result


def update(scaler: torch.amp.GradScaler, new_scale: float | torch.Tensor | None = None) -> None:
    """Replaces GradScaler's method. Also scales the codec's feedback to the next gradients."""
    optimizers = scaled_optimizers.get(scaler)
    before = scaler.get_scale() if optimizers else 0.0
    torch_internals.update_scale(scaler, new_scale)
    if not optimizers:
        return
    after = scaler.get_scale()
    if after == before:
        return
    factor = after / before if 0 < before < math.inf and after < math.inf else 0.0
    for optimizer in optimizers:
        for sharding, own in by_sharding(places_of(optimizer) or []).items():
            units = dict.fromkeys(unit for unit, _ in own)
            alive = [unit for unit in units if unit in sharding.units]  # not destroyed
            sharding.reducer.scale_feedback(alive, factor)


setattr(torch.amp.GradScaler, torch_internals.UNSCALE, unscale_grads)
setattr(torch.amp.GradScaler, torch_internals.MAYBE_STEP, maybe_step)
setattr(torch.amp.GradScaler, torch_internals.UPDATE, update)
