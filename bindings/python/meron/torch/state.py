# SPDX-License-Identifier: Apache-2.0
"""Whole tensors on demand: values, gradients, optimizer states; norms.

Everything here is collective: all ranks call it, in one order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from meron import errors
from meron.torch.engine_optimizer import EngineOptimizer
from meron.torch.engine_states import read_state, write_state
from meron.torch.sharding import Sharding, placed, unit_of
from meron.torch.unit import ShardedUnit
from meron.torch.whole import full_param, has_own, own_part, whole_of

# ---- Values -------------------------------------------------------------------------------------


def set_full_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes a sharded param from a whole tensor, equal on all ranks. Collective."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    unit.sharding.write(unit, {i: value})


def local_param(param: torch.Tensor) -> torch.Tensor:
    """A copy of this rank's part of a sharded param, flat: what no codec has touched. Collective
    (it gathers)."""
    unit, i = placed(param)
    if has_own(unit, i):
        return own_part(unit, i)
    owned = unit.owned(i)
    return full_param(param).view(-1)[owned.start : owned.stop].clone()


# ---- Gradients ----------------------------------------------------------------------------------


def full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of a param's gradient since the last step: the mean over ranks, whole, f32.

    None when no rank has one. Ends the accumulation: a step, or zero_grad, comes before the next
    backward. Collective; blocks on peers.
    """
    unit, i = placed(param)
    reducer = unit.sharding.reducer
    reducer.finish([unit])
    if not reducer.has_grad(unit, i):
        return None
    return whole_of(unit, i, reducer.part(unit, i))


def local_grad(param: torch.Tensor) -> torch.Tensor | None:
    """This rank's part of a param's finished gradient, f32, flat, in place: writes count."""
    unit, i = placed(param)
    reducer = unit.sharding.reducer
    reducer.finish([unit])
    return reducer.part(unit, i) if reducer.has_grad(unit, i) else None


def set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Replaces a param's finished gradient by a whole tensor, equal on all ranks."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    part = local_grad(param)
    if part is None:
        raise errors.StateError(
            f"{unit.name}.{unit.names[i]} has no gradient", advice="Call backward first."
        )
    owned = unit.owned(i)
    part.copy_(value.detach().reshape(-1)[owned.start : owned.stop])


def clip_grad_norm_(
    params: torch.nn.Module | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scales the gradients of sharded params to at most a global norm; returns that norm.

    As torch.nn.utils.clip_grad_norm_, over all ranks. Ends the accumulation as full_grad does.
    Collective; blocks on peers.

    Args:
        norm_type: a power above 0, or inf.

    Raises StateError (error_if_nonfinite) when the norm is NaN or infinite.
    """
    if isinstance(params, torch.nn.Module):
        params = params.parameters()
    places = [placed(param) for param in params if unit_of(param) is not None]
    if not places:
        raise errors.argument("clip_grad_norm_ was given no sharded param")
    sharding = places[0][0].sharding
    sharding.reducer.finish(dict.fromkeys(unit for unit, _ in places))
    parts = [sharding.reducer.part(*place) for place in places if sharding.reducer.has_grad(*place)]
    norm = global_norm(sharding, parts, norm_type)
    if error_if_nonfinite and not math.isfinite(norm):
        raise errors.NonFiniteError(
            f"the norm of the gradients is {norm}", advice="Lower the learning rate, or skip."
        )
    scale = max_norm / (norm + 1e-6)
    if scale < 1:
        for part in parts:
            part.mul_(scale)
    return torch.tensor(norm, device="cpu")


def global_norm(sharding: Sharding, parts: list[torch.Tensor], norm_type: float) -> float:
    """The norm over all ranks of gradients of which each rank has parts."""
    norms = [
        torch.linalg.vector_norm(part, norm_type, dtype=torch.float64)
        for part in parts
        if part.numel()
    ]
    infinite = math.isinf(norm_type)
    together = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64, device="cpu")
    local = float(together.max() if infinite else together.pow(norm_type).sum())
    context = sharding.context
    if context.world_size == 1 or sharding.updates_everything:
        return local if infinite else local ** (1 / norm_type)
    if not sharding.counts():
        local = 0.0
    values = torch.zeros(context.world_size, 2, dtype=torch.float32, device="cpu")
    # A double as two floats: all-reduce sums in f32, and each rank has a place of its own.
    values[context.rank, 0] = local
    values[context.rank, 1] = local - float(values[context.rank, 0])
    context.world.all_reduce(values.numpy())
    locals_ = values.double().sum(1)
    return float(locals_.max()) if infinite else float(locals_.sum()) ** (1 / norm_type)


# ---- Optimizer states ---------------------------------------------------------------------------


def full_optimizer_state(
    optimizer: torch.optim.Optimizer, param: torch.Tensor, key: str
) -> torch.Tensor | None:
    """A copy of a state such as "exp_avg" of a param, whole. Collective; blocks on peers.

    States that are one number for a param, such as "step", are returned as they are. None when the
    optimizer has no such state (yet).
    """
    unit, i = placed(param)
    part = optimizer_state(optimizer, unit, i, key)
    if part is None or part.dim() == 0:
        return part
    return whole_of(unit, i, part)


def set_full_optimizer_state(
    optimizer: torch.optim.Optimizer, param: torch.Tensor, key: str, value: torch.Tensor
) -> None:
    """Writes this rank's part of a state from a whole tensor, equal on all ranks. Local."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    part = optimizer_state(optimizer, unit, i, key)
    if part is None:
        raise errors.argument(
            f"the optimizer has no state {key!r} of {unit.name}.{unit.names[i]}",
            advice="States exist after the first step.",
        )
    owned = unit.owned(i)
    own = value.detach().reshape(-1)[owned.start : owned.stop]
    if isinstance(optimizer, EngineOptimizer):
        write_state(optimizer, unit, i, key, own)
        return
    with torch.no_grad():
        part.copy_(own)


def optimizer_state(
    optimizer: torch.optim.Optimizer, unit: ShardedUnit, i: int, key: str
) -> torch.Tensor | None:
    """This rank's part of a state: in place, but a copy of the engine's."""
    if isinstance(optimizer, EngineOptimizer):
        if key == "step":
            return torch.tensor(float(optimizer.steps), device="cpu")
        group = optimizer.param_groups[0]
        if key not in optimizer.state_names or not optimizer.has_states(group):
            return None
        return read_state(optimizer, unit, i, key)
    shards = getattr(optimizer, "_meron_shards", None)
    if shards is None:
        raise errors.StateError(
            "this optimizer does not run on shards",
            advice="Call meron.torch.shard_optimizer(model, optimizer) first.",
        )
    part = shards.parts.get(unit, {}).get(i)
    state: torch.Tensor | None = optimizer.state.get(part, {}).get(key)
    return state


# ---- Helpers ------------------------------------------------------------------------------------


def check_shape(unit: ShardedUnit, i: int, value: torch.Tensor) -> None:
    if tuple(value.shape) != tuple(unit.handles[i].shape):
        raise errors.argument(
            f"{unit.name}.{unit.names[i]} has shape {tuple(unit.handles[i].shape)}, the value "
            f"{tuple(value.shape)}",
            subject=f"{unit.name}.{unit.names[i]}",
        )
