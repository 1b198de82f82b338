# SPDX-License-Identifier: Apache-2.0
"""Unsharded tensors on demand: values, gradients, optimizer states; norms.

Everything here is collective: all ranks call it, in one order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch

from meron import errors
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.packed import step_of
from meron.torch.optim.states import read_state, write_state
from meron.torch.ranks import of_all_ranks, require_equal
from meron.torch.sharding import Sharding, by_sharding, placed, sharding_with, unit_of
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import full_param, has_own, own_part, whole_of

# ---- Values -------------------------------------------------------------------------------------


def set_full_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes a sharded param from an unsharded tensor, equal on all ranks. Collective."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    sharding_with(unit).write(unit, {i: value})


def local_param(param: torch.Tensor) -> torch.Tensor:
    """A copy of this rank's shard of a param, flat, with the exact values: no codec was applied.
    Collective (it gathers)."""
    unit, i = placed(param)
    if has_own(unit, i):
        return own_part(unit, i)
    shard_range = unit.shard_range(i)
    return full_param(param).view(-1)[shard_range.start : shard_range.stop].clone()


# ---- Gradients ----------------------------------------------------------------------------------


def full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of a param's gradient since the last step: the mean over ranks, unsharded, f32.

    None if no rank has one. Ends the accumulation: call step or zero_grad before the next backward.
    Collective; blocks on peers.
    """
    unit, i = placed(param)
    reducer = sharding_with(unit).reducer
    reducer.finish([unit])
    if not reducer.has_grad(unit, i):
        return None
    return whole_of(unit, i, reducer.part(unit, i))


def local_grad(param: torch.Tensor) -> torch.Tensor | None:
    """This rank's shard of a param's finished gradient, f32, flat, in place: writes count."""
    unit, i = placed(param)
    reducer = sharding_with(unit).reducer
    reducer.finish([unit])
    return reducer.part(unit, i) if reducer.has_grad(unit, i) else None


def set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Replaces a param's finished gradient by an unsharded tensor, equal on all ranks."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    part = local_grad(param)
    if part is None:
        raise errors.StateError(
            f"{unit.name}.{unit.names[i]} has no gradient", advice="Call backward first."
        )
    shard_range = unit.shard_range(i)
    part.copy_(value.detach().reshape(-1)[shard_range.start : shard_range.stop])


def clip_grad_norm_(
    params: torch.nn.Module | Iterable[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scales the gradients of sharded params to at most a global norm; returns that norm.

    As torch.nn.utils.clip_grad_norm_, over all ranks, and over all plans and groups that the params
    are sharded by. Params in no unit neither count nor are scaled. If groups of ranks have
    different gradients, as those of experts, the mean over the groups counts, so that all ranks
    scale alike. Ends the accumulation as full_grad does. Gradients on a device travel to the host
    and back: an optimizer of Meron's with `max_norm` clips them where they are. Collective; blocks
    on peers.

    A norm that is NaN or infinite reaches every gradient, as in PyTorch: NaN makes all NaN, and
    infinity makes finite ones 0.

    Args:
        norm_type: a power above 0, or inf. PyTorch's 0, negative powers and -inf are refused: they
            count tensors, which shards cut, or are no norms.

    Raises ArgumentError on all ranks if they pass different values. NonFiniteError
    (error_if_nonfinite) when the norm is NaN or infinite: no gradient was changed. StateError when
    groups overlap in such a way that ranks do not agree on a norm.
    """
    power = float(norm_type)
    limits = {"max_norm of clip_grad_norm_": float(max_norm)}
    norm, parts = measured(params, power, "clip_grad_norm_", limits)
    if error_if_nonfinite and not math.isfinite(norm):
        raise errors.NonFiniteError(
            f"the norm of the gradients is {norm}", advice="Lower the learning rate, or skip."
        )
    scale = max_norm / (norm + 1e-6)
    if not scale >= 1:  # also NaN
        for part in parts:
            part.mul_(scale)
    return torch.tensor(norm, device="cpu")


def grad_norm(
    params: torch.nn.Module | Iterable[torch.Tensor], norm_type: float = 2.0
) -> torch.Tensor:
    """The norm that clip_grad_norm_ would return. Changes no gradient, whatever the norm is.
    Collective; blocks on peers."""
    return torch.tensor(measured(params, float(norm_type), "grad_norm", {})[0], device="cpu")


def measured(
    params: torch.nn.Module | Iterable[torch.Tensor],
    norm_type: float,
    caller: str,
    limits: dict[str, float],
) -> tuple[float, list[torch.Tensor]]:
    """The norm of all gradients, and this rank's shards of them. `limits` and `norm_type` must be
    equal on all ranks. Collective."""
    if not norm_type > 0:
        raise errors.argument(
            f"norm_type is {norm_type}: a power above 0 gives a norm over ranks, or inf",
            "norm_type",
            "Pass 2.0 or inf.",
        )
    if isinstance(params, torch.nn.Module):
        params = params.parameters()
    found = [place for param in params if (place := unit_of(param)) is not None]
    places = by_sharding(found)
    if not places:
        raise errors.argument(f"{caller} was given no sharded param")
    equal = {**limits, f"norm_type of {caller}": norm_type}
    for sharding in places:
        require_equal(sharding.context, equal, "Pass the same value on all ranks")
    parts: list[torch.Tensor] = []
    powers = []
    for sharding, own in places.items():
        gradients = sharding.reducer.parts(own)
        powers.append(global_power(sharding, gradients, norm_type))
        parts += gradients
    power = float(np.max(powers) if math.isinf(norm_type) else np.sum(powers))  # NaN stays
    if len(places) > 1:
        power = agreed_power(list(places), power)
    return root_of(power, norm_type), parts


def root_of(power: float, norm_type: float) -> float:
    """The norm of a sum of powers, or of the largest element. Infinite rather than an error."""
    if math.isinf(norm_type):
        return power
    with np.errstate(over="ignore"):
        return float(np.float64(power) ** (1 / norm_type))


def global_norm(sharding: Sharding, parts: list[torch.Tensor], norm_type: float) -> float:
    """The norm of gradients over all ranks; each rank has parts of them."""
    return root_of(global_power(sharding, parts, norm_type), norm_type)


def global_power(sharding: Sharding, parts: list[torch.Tensor], norm_type: float) -> float:
    """The sum of the elements' powers over all ranks, or for inf the largest element."""
    norms = [norm_in_double(part, norm_type) for part in parts if part.numel()]
    infinite = math.isinf(norm_type)
    together = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64, device="cpu")
    local = float(together.max() if infinite else together.pow(norm_type).sum())
    if sharding.context.world_size == 1 or sharding.updates_everything:
        return local
    if not sharding.counts():
        local = 0.0
    of_ranks = of_all_ranks(sharding.context, [local])[:, 0]
    return float(of_ranks.max() if infinite else of_ranks.sum())


def norm_in_double(part: torch.Tensor, norm_type: float) -> torch.Tensor:
    """The norm of a flat tensor, summed in f64. (vector_norm with a dtype converts element by
    element: 24 times as slow as the memory.)"""
    most = 1 << 20  # elements that a cache holds
    buffer = torch.empty(min(most, part.numel()), dtype=torch.float64, device=part.device)
    norms: list[torch.Tensor] = [
        torch.linalg.vector_norm(buffer[: piece.numel()].copy_(piece), norm_type)
        for piece in part.split(most)
    ]
    whole: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
    return whole


def agreed_power(shardings: list[Sharding], power: float) -> float:
    """One value on the ranks of several groups, of what each sees; the same if they are equal.

    Means along one group after the other are the mean over all ranks of a mesh, on each of them.
    """
    low = high = mean = power
    for sharding in shardings:
        values = of_all_ranks(sharding.context, [low, high, mean])
        low, high = float(values[:, 0].min()), float(values[:, 1].max())
        mean = float(values[:, 2].mean())
    chosen = power if low == high else mean
    same = True
    for sharding in shardings:
        values = of_all_ranks(sharding.context, [chosen, float(same)])
        theirs = np.full(len(values), chosen)
        same = np.array_equal(values[:, 0], theirs, equal_nan=True) and bool(values[:, 1].all())
    if not same:
        raise errors.StateError(
            "clip_grad_norm_: ranks do not agree on a norm, as the groups of ranks that the params "
            "are sharded over overlap in part",
            advice="Clip the params of each group by a call of its own.",
        )
    return chosen


# ---- Optimizer states ---------------------------------------------------------------------------


def full_optimizer_state(
    optimizer: torch.optim.Optimizer, param: torch.Tensor, key: str
) -> torch.Tensor | None:
    """A copy of a state such as "exp_avg" of a param, unsharded. Collective; blocks on peers.

    A state that is one number for a param, such as "step", is returned unchanged. None if the
    optimizer has no such state (yet), as for frozen params.
    """
    unit, i = placed(param)
    part = optimizer_state(optimizer, unit, i, key)
    if part is None or part.dim() == 0:
        return part
    return whole_of(unit, i, part)


def set_full_optimizer_state(
    optimizer: torch.optim.Optimizer, param: torch.Tensor, key: str, value: torch.Tensor
) -> None:
    """Writes this rank's shard of a state from an unsharded tensor, equal on all ranks. Local."""
    unit, i = placed(param)
    check_shape(unit, i, value)
    part = optimizer_state(optimizer, unit, i, key)
    if part is None:
        raise errors.argument(
            f"the optimizer has no state {key!r} of {unit.name}.{unit.names[i]}",
            advice="States exist after the first step.",
        )
    shard_range = unit.shard_range(i)
    own = value.detach().reshape(-1)[shard_range.start : shard_range.stop]
    if isinstance(optimizer, EngineOptimizer):
        write_state(optimizer, unit, i, key, own)
        return
    sharding_with(unit).wait_copied()
    with torch.no_grad():
        part.copy_(own)


def optimizer_state(
    optimizer: torch.optim.Optimizer, unit: ShardedUnit, i: int, key: str
) -> torch.Tensor | None:
    """This rank's part of a state: in place, but a copy of the engine's. None of a param that is
    frozen, or that the optimizer does not have."""
    if isinstance(optimizer, EngineOptimizer):
        if i not in unit.trainable or unit not in optimizer.sharded:
            return None
        if key == "step":
            return step_of(optimizer, unit, i)
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
