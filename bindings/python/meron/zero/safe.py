# SPDX-License-Identifier: Apache-2.0
"""safe_get_* and safe_set_*: values, gradients and optimizer states by param.

Unsharded tensors are f32. Everything is collective unless it says otherwise: all ranks call it,
with equal values where it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

import meron.torch as mt
from meron import errors
from meron.torch.optim.states import read_state, write_state
from meron.torch.sharding import placed, sharding_with, unit_of
from meron.torch.values.full import exact_param, whole_of
from meron.torch.values.state import optimizer_state
from meron.zero.owner import engine_of

# DeepSpeed's names, which meron.zero and meron.zero.utils have too.
__all__ = [
    "safe_get_full_fp32_param",
    "safe_get_full_grad",
    "safe_get_full_optimizer_state",
    "safe_get_local_fp32_param",
    "safe_get_local_grad",
    "safe_get_local_optimizer_state",
    "safe_set_full_fp32_param",
    "safe_set_full_grad",
    "safe_set_full_optimizer_state",
    "safe_set_local_fp32_param",
    "safe_set_local_grad",
    "safe_set_local_optimizer_state",
    "safe_update_full_grad_vectorized",
]


def name_of(param: torch.Tensor) -> str:
    unit, i = placed(param)
    return f"{unit.name}.{unit.names[i]}"


def optimizer_of(param: torch.Tensor) -> torch.optim.Optimizer:
    engine = engine_of(param)
    if engine is None or engine.optimizer is None:
        raise errors.StateError(
            f"{name_of(param)} has no optimizer",
            subject=name_of(param),
            advice="Call meron.zero.initialize with one first.",
        )
    return engine.optimizer


def local_master(param: torch.Tensor) -> torch.Tensor | None:
    """The f32 values that an optimizer updates of a param on this rank, a copy where it is the
    engine's; those that wait for one, where none has it. None of f32 and frozen params that no
    optimizer has. Local."""
    unit, i = placed(param)
    if i not in unit.trainable:
        return None
    engine = engine_of(param)
    optimizer = engine.optimizer if engine is not None else None
    if isinstance(optimizer, mt.EngineOptimizer) and unit in optimizer.sharded:
        return read_state(optimizer, unit, i, "master")
    shards = getattr(optimizer, "_meron_shards", None)
    part = shards.parts.get(unit, {}).get(i) if shards is not None else None
    return unit.masters.get(i) if part is None else part


# ---- Values -------------------------------------------------------------------------------------


def safe_get_full_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of a param's f32 values, unsharded; None when it is not sharded."""
    if unit_of(param) is None:
        return None
    unit, i = placed(param)
    master = local_master(param) if unit.handles[i].dtype_name != "f32" else None
    return exact_param(param).float() if master is None else whole_of(unit, i, master)


def safe_set_full_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes a param, and the f32 values that its optimizer updates."""
    mt.set_full_param(param, value.float())


def safe_get_local_fp32_param(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of this rank's shard of a param's f32 values, flat, without padding."""
    if unit_of(param) is None:
        return None
    master = local_master(param)
    return mt.local_param(param).float() if master is None else master.detach().float().clone()


def safe_set_local_fp32_param(param: torch.Tensor, value: torch.Tensor) -> None:
    """Writes this rank's shard of a param."""
    unit, i = placed(param)
    part = value.detach().reshape(-1).float()
    shard_range = unit.shard_range(i)
    check_part(param, part)
    sharding_with(unit).drop()
    whole = torch.zeros(unit.handles[i].size, device="cpu")
    whole[shard_range.start : shard_range.stop] = part  # of the whole only this rank's part is read
    sharding_with(unit).write(unit, {i: whole.view(unit.handles[i].shape)})


# ---- Gradients ----------------------------------------------------------------------------------


# DeepSpeed's stage 0 returns the sum of this rank alone there. Here the engine has it, also at the
# stages 1 to 3; a function that returns the mean over ranks does not return another number.
EACH_BACKWARD = "param.register_hook(function) receives this rank's gradient of each backward."


def require_complete(param: torch.Tensor, operation: str) -> None:
    """StateError for a gradient to which more is added before the update.

    Asking the engine for it would end the accumulation, and the next backward would find it ended.
    """
    unit, _ = placed(param)
    if not sharding_with(unit).reducer.sync:
        raise errors.StateError(
            f"{operation} within no_sync: the gradient of {name_of(param)} is not complete, as the "
            "ranks have not summed it",
            operation=operation,
            subject=name_of(param),
            advice="Call it after the last backward of the accumulation, outside of no_sync. "
            + EACH_BACKWARD,
        )
    engine = engine_of(param)
    if engine is not None and not engine.is_gradient_accumulation_boundary():
        raise errors.StateError(
            f"{operation}: the gradient of {name_of(param)} is not complete: more micro-batches "
            "follow before the update",
            operation=operation,
            subject=name_of(param),
            advice="Call it after the last backward of an accumulation "
            "(engine.is_gradient_accumulation_boundary()). " + EACH_BACKWARD,
        )


def safe_get_full_grad(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of a param's gradient, unsharded: the mean over ranks and micro-batches, unscaled.

    Between the last backward of an accumulation and step(); None when there is none. Raises
    StateError before that backward, and within no_sync.
    """
    if unit_of(param) is None:
        return None
    require_complete(param, "safe_get_full_grad")
    whole = mt.full_grad(param)
    if whole is None:
        reopen(param)
    return whole


def safe_set_full_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Replaces a gradient by an unsharded tensor. step() uses it: norm, clipping, overflow.

    Raises StateError where there is none, and as safe_get_full_grad.
    """
    finished_part(param, "safe_set_full_grad")
    mt.set_full_grad(param, value)


def safe_get_local_grad(param: torch.Tensor) -> torch.Tensor | None:
    """A copy of this rank's shard of a param's gradient, flat. As safe_get_full_grad."""
    if unit_of(param) is None:
        return None
    require_complete(param, "safe_get_local_grad")
    part = mt.local_grad(param)
    if part is None:
        reopen(param)
    return None if part is None else part.clone()


def safe_set_local_grad(param: torch.Tensor, value: torch.Tensor) -> None:
    """Replaces this rank's shard of a gradient. As safe_set_full_grad."""
    part = finished_part(param, "safe_set_local_grad")
    check_part(param, value)
    part.copy_(value.detach().reshape(-1))


def finished_part(param: torch.Tensor, operation: str) -> torch.Tensor:
    """This rank's shard of a gradient, in place; StateError if it has none. Collective."""
    require_complete(param, operation)
    part = mt.local_grad(param)
    if part is None:
        reopen(param)
        raise errors.StateError(
            f"{operation}: {name_of(param)} "
            + ("has no gradient" if param.requires_grad else "is frozen: it has no gradient"),
            operation=operation,
            subject=name_of(param),
            advice="Call backward first." if param.requires_grad else "Leave it out.",
        )
    return part


def reopen(param: torch.Tensor) -> None:
    """If the unit has no gradient, continues the accumulation that a request for one ended."""
    unit, _ = placed(param)
    reducer = sharding_with(unit).reducer
    if not reducer.has_any(unit):
        reducer.discard([unit])


def safe_update_full_grad_vectorized(
    params: Iterable[torch.Tensor], update: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> None:
    """Replaces the gradients of some params by update(gradient, param).

    The gradient is a copy, unsharded, which may be changed; the param is the model's own, whose
    values safe_get_full_fp32_param returns. Params without a gradient are left out. Raises
    ArgumentError for a result that is no tensor of the param's shape, and as safe_get_full_grad.
    """
    for param in params:
        grad = safe_get_full_grad(param)
        if grad is None:
            continue
        value = update(grad, param)
        if not isinstance(value, torch.Tensor):
            raise errors.argument(
                f"update returned a {type(value).__name__} for {name_of(param)}",
                subject=name_of(param),
                advice="Return the new gradient, unsharded.",
            )
        safe_set_full_grad(param, value)


# ---- Optimizer states ---------------------------------------------------------------------------


def safe_get_full_optimizer_state(param: torch.Tensor, optim_state_key: str) -> torch.Tensor | None:
    """A copy of a state such as "exp_avg", unsharded; None before the first step."""
    if unit_of(param) is None:
        return None
    return mt.full_optimizer_state(optimizer_of(param), param, optim_state_key)


def safe_set_full_optimizer_state(
    param: torch.Tensor, value: torch.Tensor, optim_state_key: str
) -> None:
    """Writes this rank's shard of a state; the state itself if it is one number. Local; blocks on
    this rank's drive."""
    if writable_state(param, optim_state_key).dim():
        mt.set_full_optimizer_state(optimizer_of(param), param, optim_state_key, value)
    else:
        safe_set_local_optimizer_state(param, value, optim_state_key)


def safe_get_local_optimizer_state(param: torch.Tensor, optim_state_key: str) -> Any:
    """A copy of this rank's shard of a state, flat; None before the first step. Local."""
    if unit_of(param) is None:
        return None
    unit, i = placed(param)
    state = optimizer_state(optimizer_of(param), unit, i, optim_state_key)
    return None if state is None else state.detach().clone()


def safe_set_local_optimizer_state(
    param: torch.Tensor, value: torch.Tensor, optim_state_key: str
) -> None:
    """Writes this rank's shard of a state. Local; blocks on this rank's drive."""
    state = writable_state(param, optim_state_key)
    if state.dim():
        check_part(param, value)
    optimizer = optimizer_of(param)
    if isinstance(optimizer, mt.EngineOptimizer):
        write_state(optimizer, *placed(param), optim_state_key, value)
        return
    sharding_with(placed(param)[0]).wait_copied()
    with torch.no_grad():
        state.copy_(value.detach().reshape(state.shape))


def writable_state(param: torch.Tensor, key: str) -> torch.Tensor:
    """This rank's shard of a state that may be written: in place, but a copy of the engine's."""
    unit, i = placed(param)
    optimizer = optimizer_of(param)
    state = optimizer_state(optimizer, unit, i, key)
    if i not in unit.trainable:
        raise errors.argument(
            f"{name_of(param)} is frozen: the optimizer has no state {key!r} of it",
            subject=name_of(param),
            advice="Leave it out.",
        )
    if state is None:
        raise errors.argument(
            f"the optimizer has no state {key!r} of {name_of(param)}",
            subject=name_of(param),
            advice="States exist after the first step.",
        )
    if isinstance(optimizer, mt.EngineOptimizer) and not state.dim():
        raise errors.UnsupportedError(
            f"Meron does not have yet: writing {key!r} of meron.torch.{type(optimizer).__name__}, "
            "which counts steps of all its params",
            subject=name_of(param),
            advice="Load a state_dict whose states have that step, or pass an optimizer of torch "
            "to initialize.",
        )
    return state


def check_part(param: torch.Tensor, value: torch.Tensor) -> None:
    unit, i = placed(param)
    if value.numel() != len(unit.shard_range(i)):
        raise errors.argument(
            f"this rank has {len(unit.shard_range(i))} elements of {name_of(param)}, the value "
            f"{value.numel()}",
            subject=name_of(param),
        )
