# SPDX-License-Identifier: Apache-2.0
"""Selects the params of a unit, and makes a module a sharded one."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable

import torch

from meron import errors
from meron.torch.data_parallel import refuse_wrapped, refuse_wrappers
from meron.torch.guard import refuse_in_backward
from meron.torch.hooks import Scope
from meron.torch.parameters import Parameters
from meron.torch.resolve.device import check_place
from meron.torch.sharding import Sharding, unit_of
from meron.torch.state_dict import hook_state_dict
from meron.torch.tensors import dtype_name
from meron.torch.torch_internals import (
    APPLY,
    IN_BACKWARD,
    BatchNorms,
    apply_of,
    is_wrapper,
    own_buffers,
    own_children,
    own_params,
    replace_params,
)
from meron.torch.unit import ShardedUnit

IGNORED = "_meron_ignored"


def scope_of(module: torch.nn.Module) -> Scope | None:
    scope: Scope | None = module.__dict__.get("_meron_scope")
    return scope


def is_sharded(module: torch.nn.Module) -> bool:
    return scope_of(module) is not None


def params_below(
    module: torch.nn.Module, ignored: set[torch.nn.Parameter], recurse: bool
) -> tuple[dict[torch.nn.Parameter, str], list[ShardedUnit]]:
    """The params that `module` uses and that are in no unit yet, each once, with its name; and the
    units of others that params of this module belong to (tied weights)."""
    own: dict[torch.nn.Parameter, str] = {}
    others: dict[ShardedUnit, None] = {}
    # No nested function, which would hold the params until Python's garbage collector finds it.
    left = [(module, "")]
    while left:
        part, prefix = left.pop()
        if part is not module and is_sharded(part):
            continue
        for name, param in own_params(part).items():
            if param is None or param in ignored:
                continue
            place = unit_of(param)
            if place is None:
                own.setdefault(param, prefix + name)
            else:
                others[place[0]] = None
        if recurse:
            below = own_children(part).items()
            left += [
                (each, f"{prefix}{name}.") for name, each in reversed(below) if each is not None
            ]
    return own, list(others)


def make_scope(
    sharding: Sharding,
    module: torch.nn.Module,
    name: str,
    *,
    ignored: Iterable[torch.nn.Parameter] = (),
    recurse: bool = True,
    dtype: torch.dtype | None = None,
    input_dtype: torch.dtype | None = None,
    reshard_after_forward: bool = True,
    broadcast: bool = True,
) -> Scope | None:
    """Makes a unit of the params of `module` that are in none, and hooks it up. Collective.

    A module without params of its own, but with sharded parts, is hooked up for what it does with
    their params. None when nothing is left to do.
    """
    own, others = params_below(module, set(ignored), recurse)
    scope = scope_of(module)
    if scope is not None:
        scope.forget_replaced()
    if not own and scope is not None:
        return None
    if not own and not others and not any(is_sharded(part) for part in module.modules()):
        return None
    for unit in others:
        if unit.sharding is not sharding:
            raise errors.StateError(
                f"{name} uses a param of '{unit.name}', which is sharded by another plan or group "
                "of ranks",
                subject=unit.name,
                advice="Give modules that share params the same plan and group.",
            )
    units = list(others)
    if own:
        params, names = list(own), list(own.values())
        check_params(name, params, names, sharding.context.device)
        unit = sharding.add_unit(name, params, names, dtype, broadcast)
        unit.gradients.watches = sharding.reducer.watch(unit)
        unit.owner = weakref.ref(module)
        units.insert(0, unit)
    if scope is not None:
        scope.units.extend(unit for unit in units if unit not in scope.units)
        scope.named = []
    else:
        scope = Scope(sharding, module, units, reshard_after_forward, input_dtype)
        module.__dict__["_meron_scope"] = scope
    watch_params(module, sharding, recurse)
    return scope


def check_params(
    name: str, params: list[torch.nn.Parameter], names: list[str], device: str
) -> None:
    for param, own in zip(params, names):
        full = f"{name}.{own}"
        if isinstance(param, torch.nn.parameter.UninitializedParameter):
            raise errors.argument(
                f"{full} is lazy: it has no shape yet",
                subject=full,
                advice="Run one forward before sharding.",
            )
        if is_wrapper(param):
            raise errors.argument(
                f"{full} is a {type(param).__name__}: Meron shards plain tensors",
                subject=full,
                advice="Call meron.torch.shard in place of fully_shard, and before what else makes "
                "such tensors; or leave the param out with ignored_params.",
            )
        if hasattr(param, IN_BACKWARD):
            refuse_in_backward(full)
        check_place(full, param.device, device)


def check_module(
    module: torch.nn.Module,
    ignored: set[torch.nn.Parameter],
    dtype: torch.dtype | None,
    device: str,
) -> None:
    """ArgumentError naming a param of a module or its parts that cannot be sharded; StateError for
    one that DistributedDataParallel reduces."""
    refuse_wrappers(module)
    refuse_wrapped(type(module).__name__, module.parameters())
    for name, param in module.named_parameters():
        if unit_of(param) is None and param not in ignored:
            kind = type(module).__name__
            check_params(kind, [param], [name], device)
            dtype_name(dtype or param.dtype, f"{kind}.{name}")


def late_parts(
    module: torch.nn.Module, ignored: set[torch.nn.Parameter]
) -> list[tuple[str, torch.nn.Module]]:
    """Sharded submodules, the innermost first, that have got params in no unit since, such as
    adapters. Leaves out params that an earlier call was asked to ignore."""
    return [
        (path, part)
        for path, part in reversed(list(module.named_modules()))
        if part is not module and is_sharded(part)
        if params_below(part, ignored | ignored_before(part), True)[0]
    ]


def ignored_before(module: torch.nn.Module) -> set[torch.nn.Parameter]:
    return {param for param in module.parameters() if hasattr(param, IGNORED)}


def remember_ignored(module: torch.nn.Module, ignored: set[torch.nn.Parameter]) -> None:
    """Has later calls of shard for a module around this one leave the same params out."""
    for param in module.parameters() if ignored else ():
        if param in ignored:
            setattr(param, IGNORED, True)


def watch_params(module: torch.nn.Module, sharding: Sharding, recurse: bool) -> None:
    """Sees uses of sharded params outside of their owner's forward, and moves that go wrong."""
    for part in module.modules() if recurse else (module,):
        params = own_params(part)
        if type(params) is dict and any(p is not None and unit_of(p) for p in params.values()):
            replace_params(part, Parameters(params, sharding))
            part.__dict__[APPLY] = functools.partial(refuse_move, part)
            hook_state_dict(part)


def refuse_move(
    module: torch.nn.Module,
    function: Callable[[torch.Tensor], torch.Tensor],
    recurse: bool = True,
) -> torch.nn.Module:
    """Replaces Module._apply. Allows functions that leave sharded params unchanged, such as .to()
    with their own device and dtype, and refuses others."""
    for param in own_params(module).values():
        if param is not None and unit_of(param) is not None:
            probe = torch.empty(0, dtype=param.dtype, device=param.device)
            if function(probe) is not probe:
                raise errors.StateError(
                    "a sharded module cannot be moved or converted (.to, .cuda, .half, .float, "
                    ".to_empty, ...)",
                    advice="Do so before sharding it; meron.torch.shard(..., "
                    "mp=MixedPrecision(...)) chooses the dtype of compute.",
                )
    if recurse:
        for child in module.children():
            apply_of(child)(function)
    for name, buffer in own_buffers(module).items():
        if buffer is not None:
            own_buffers(module)[name] = function(buffer)
    for param in own_params(module).values():
        if param is not None and unit_of(param) is None:
            param.data = function(param.data)
    return module


def move_buffers(module: torch.nn.Module, sharding: Sharding) -> None:
    """Has a module's own buffers where its params are in use. Those on meta stay there."""
    place = sharding.torch_device
    if not sharding.residency.device:
        return
    for name, buffer in own_buffers(module).items():
        if buffer is not None and not buffer.is_meta and buffer.device != place:
            own_buffers(module)[name] = buffer.to(place)


def convert_buffers(
    module: torch.nn.Module, param_dtype: torch.dtype | None, dtype: torch.dtype | None
) -> None:
    """Has the floating buffers of a module and its parts in a dtype; None leaves them as they are.

    But running statistics of batch norms follow their module's params, as torch's kernels demand.
    """
    for part in module.modules():
        chosen = dtype
        if dtype is None and isinstance(part, BatchNorms):
            weight = own_params(part).get("weight")
            chosen = param_dtype if weight is None else weight.dtype
        if chosen is None:
            continue
        for name, buffer in own_buffers(part).items():
            if buffer is not None and buffer.is_floating_point():
                own_buffers(part)[name] = buffer.to(chosen)
