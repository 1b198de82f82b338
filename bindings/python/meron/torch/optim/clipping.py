# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.clip_grad_norm_ and its kin over sharded params.

The gradients of these are not in `param.grad` once backward has passed, so torch's own functions
would see none: a norm of 0, and nothing clipped. Given a sharded param they do what meron.torch
does; given none they are torch's own.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import torch
from torch.nn.utils import clip_grad

from meron import errors
from meron.torch import registry
from meron.torch.sharding import by_sharding, placed, unit_of
from meron.torch.torch_internals import CLIP_WITH_NORM, clip_grads_with_norm
from meron.torch.unit import ShardedUnit
from meron.torch.values.state import clip_grad_norm_ as clip_sharded

plain_norm, plain_value = clip_grad.clip_grad_norm_, clip_grad.clip_grad_value_
plain_total: Any = getattr(torch.nn.utils, "get_total_norm", None)  # from PyTorch 2.6 on


def split(parameters: Any) -> tuple[list[torch.Tensor], bool]:
    """The params, each once, and whether they are sharded.

    ArgumentError for sharded ones beside others with a gradient, which is this rank's alone.
    """
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    sharded = any(unit_of(param) is not None for param in params)
    if not sharded:
        return params, False
    for param in params:
        if unit_of(param) is None and param.grad is not None:
            raise errors.argument(
                f"gradients of sharded params and of one of shape {tuple(param.shape)} that is not "
                "sharded cannot be clipped together: the latter is this rank's alone",
                subject="parameters",
                advice="Clip them in two calls.",
            )
    return [param for param in dict.fromkeys(params) if unit_of(param) is not None], True


@functools.wraps(plain_norm)
def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    given = parameters
    if not isinstance(parameters, torch.Tensor):
        given = parameters = list(parameters)
    params, sharded = split(given)
    if sharded:
        return clip_sharded(params, max_norm, norm_type, error_if_nonfinite)
    return plain_norm(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@functools.wraps(plain_value)
def clip_grad_value_(parameters: Any, clip_value: float, foreach: bool | None = None) -> None:
    if not isinstance(parameters, torch.Tensor):
        parameters = list(parameters)
    params, sharded = split(parameters)
    if not sharded:
        plain_value(parameters, clip_value, foreach)
        return
    for sharding, places in by_sharding(map(placed, params)).items():
        for part in sharding.reducer.parts(places):
            part.clamp_(-float(clip_value), float(clip_value))


def clip_grads_with_norm_(parameters: Any, *args: Any, **kwargs: Any) -> None:
    """Also what torch's own clip_grad_norm_ calls, by whoever imported it before Meron."""
    if not isinstance(parameters, torch.Tensor):
        parameters = list(parameters)
    for param in [parameters] if isinstance(parameters, torch.Tensor) else parameters:
        if unit_of(param) is not None:
            refuse(param)
    clip_grads_with_norm(parameters, *args, **kwargs)


def refuse(param: torch.Tensor) -> NoReturn:
    unit, i = placed(param)
    raise errors.StateError(
        f"'{unit.handles[i].name}' is sharded, and so is its gradient: PyTorch's norm would be "
        "without it",
        subject=unit.handles[i].name,
        advice="Call meron.torch.clip_grad_norm_(model, max_norm).",
    )


def get_total_norm(tensors: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Also refuses no gradients at all, if the engine has some: `param.grad` of sharded params is
    None after a backward, so a caller that collects them finds none."""
    if not isinstance(tensors, torch.Tensor):
        tensors = list(tensors)
        unit = None if tensors else unit_with_gradients()
        if unit is not None:
            refuse(unit.params[unit.trainable[0]])
    norm: torch.Tensor = plain_total(tensors, *args, **kwargs)
    return norm


def unit_with_gradients() -> ShardedUnit | None:
    """Returns a unit whose gradients wait for a step, if there is one."""
    for sharding in list(registry.shardings.values()):
        for unit in sharding.units:
            if unit.params and not unit.gradients.empty:
                found: ShardedUnit = unit
                return found
    return None


for module in (clip_grad, torch.nn.utils):
    module.clip_grad_norm_ = clip_grad_norm_  # type: ignore[attr-defined]
    module.clip_grad_value_ = clip_grad_value_  # type: ignore[attr-defined]
    for name in CLIP_WITH_NORM:
        if hasattr(module, name):
            setattr(module, name, clip_grads_with_norm_)
if plain_total is not None:
    torch.nn.utils.get_total_norm = functools.wraps(plain_total)(get_total_norm)
