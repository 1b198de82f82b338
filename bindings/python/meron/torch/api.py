# SPDX-License-Identifier: Apache-2.0
"""shard(), and what controls a sharded module."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, Union

import torch

import meron
from meron import errors
from meron._call_names import calling
from meron.plan import Json
from meron.torch.destroy import destroy_lost
from meron.torch.fsdp_names import add_methods
from meron.torch.passes import units_below
from meron.torch.resolve.device import context_device, device_for
from meron.torch.resolve.options import (
    MixedPrecision,
    check_context,
    check_offload,
    from_config,
    given_limits,
    group_of,
    ignored_of,
    mixed_precision,
    refuse_placement,
    reshards,
    with_reduce_dtype,
)
from meron.torch.sharding import Sharding, sharding_of, sharding_with, unit_of
from meron.torch.tensors import dtype_name
from meron.torch.unit import ShardedUnit
from meron.torch.values.materialize import defer, materialize
from meron.torch.world import context_for
from meron.torch.wrap import (
    check_module,
    convert_buffers,
    ignored_before,
    is_sharded,
    late_parts,
    make_scope,
    move_buffers,
    remember_ignored,
    scope_of,
)

Modules = Union[torch.nn.Module, Sequence[torch.nn.Module]]
ModuleT = TypeVar("ModuleT", bound=Modules)
Units = Union[
    "type[torch.nn.Module]",
    "tuple[type[torch.nn.Module], ...]",
    "Iterable[torch.nn.Module]",
    "Callable[[torch.nn.Module], bool]",
]


@calling("mt.shard")
def shard(
    module: ModuleT,
    *,
    units: Units | None = None,
    name: str | None = None,
    context: meron.Context | None = None,
    device: str | torch.device | None = None,
    group: Any = None,
    transport: str | None = None,
    mesh: Any = None,
    plan: meron.Plan | Json | None = None,
    config: Any = None,
    leaf: bool = False,
    ignored_params: Iterable[torch.nn.Parameter] | None = (),
    mp: MixedPrecision | None = None,
    reshard_after_forward: bool | None = True,
    broadcast: bool = True,
    seed: int = 0,
    init: str = "reset",
    prefetch_elements: int | None = None,
    max_live_elements: int | None = None,
    max_reuse_elements: int | None = None,
    persist_elements: int | None = None,
    persist_total_elements: int | None = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    shard_placement_fn: Any = None,
) -> ModuleT:
    """Shards a module's params over the ranks, in place. Collective.

    The params of the module that no earlier call sharded become one unit: gathered before its
    forward and again before its backward, released after each, their gradients reduced as soon as
    they are complete. Params that a submodule got after it was sharded, such as adapters, become a
    unit of that submodule. Call it bottom-up, as FSDP2's fully_shard, or let `units` find the
    submodules:

        for block in model.blocks:
            meron.torch.shard(block)
        meron.torch.shard(model)

        meron.torch.shard(model, units=Block)        # the same

    Args:
        module: or a list of modules, each a unit of its own.
        units: submodules that become units of their own first: a class or several, modules, or a
            function that picks them. They are sharded from the innermost out.
        name: for messages; default is the class's name, and for `units` the path in the module.
        context: an open meron.Context; default opens one for `group`, `plan` and `device`, or
            shares it. `plan`, `group`, `mesh`, `transport`, `device` and `mp.reduce_dtype` may be
            given with it if they are those of the context.
        device: where the module computes: "cpu", or "cuda" (the current one) or "cuda:N", with
            params and buffers on the CPU or there. Default is where its params are; for those on
            meta MERON_TORCH_DEVICE, or the current CUDA device of a rank that a launcher started
            (LOCAL_RANK). The rank's shards and optimizer states reside on the host in any case.
        group: a torch.distributed group; default is all ranks. Only its ranks call this.
        transport: "shm" on one host, or "group": over the torch.distributed group. Default is
            MERON_TORCH_TRANSPORT, else what fits.
        mesh: the same as a torch DeviceMesh of one dimension.
        plan: "zero0" to "zero3", "mics(8)" and others over a mesh of ranks, or as meron.open takes
            it. Default is zero3.
        config: in its place a DeepSpeed config, a dict or a JSON file's path: its stage, dtypes and
            limits count. (meron.zero, which reads it, must be imported; its initialize makes an
            engine of the rest.)
        leaf: the module must be one unit: an error if submodules are sharded already.
        ignored_params: stay as they are on every rank; their gradients are not reduced.
        mp: dtypes of compute and reduction. `mp_policy` is the same for FSDP2's
            MixedPrecisionPolicy, without output_dtype.
        reshard_after_forward: False keeps the unit unsharded from its forward to its backward.
            None is the default; a number of ranks is refused.
        broadcast: start from rank 0's values. False is for values that are equal on all ranks.
        seed: for modules on the device "meta": they are made real one at a time by their
            reset_parameters, under seeds that derive from this, and only shards are kept.
        init: "reset" is that. "defer" leaves params on meta without values until load_pretrained or
            load sets them; a use before is a StateError.
        prefetch_elements, max_live_elements, max_reuse_elements, persist_elements,
            persist_total_elements: limits of the schedule, as Context.schedule takes them. They
            hold for all units of the context; the last value counts.
        offload_policy: FSDP2's OffloadPolicy or CPUOffloadPolicy: without effect, as shards reside
            in host memory in any case. Refused under a plan with params elsewhere.
        shard_placement_fn: of FSDP2; refused, as every param is cut flat.

    Returns:
        The same module. Its params keep their shapes. Out of use writing to them raises StateError,
        and so does reading, where the plan shards params: they hold no memory then.

    Raises:
        StateError: everything in it is sharded already. ArgumentError: a dtype or device that
        Meron does not shard, a limit out of range, or an argument that contradicts the context.
        UnsupportedError: an option of FSDP2's that Meron does not have. These are raised before
        anything is changed. MismatchError: ranks shard different things.
    """
    modules: list[torch.nn.Module] = (
        [module] if isinstance(module, torch.nn.Module) else list(module)
    )
    limits = given_limits(
        prefetch_elements=prefetch_elements,
        max_live_elements=max_live_elements,
        max_reuse_elements=max_reuse_elements,
        persist_elements=persist_elements,
        persist_total_elements=persist_total_elements,
    )
    mp = mixed_precision(mp, mp_policy)
    refuse_placement(shard_placement_fn)
    if init not in ("reset", "defer"):
        raise errors.argument(f"init is {init!r}", "init", "Take 'reset' or 'defer'.")
    if config is not None:
        plan, mp, limits = from_config(config, plan, mp, limits)
    mp = mp or MixedPrecision()
    ignored = ignored_of(ignored_params)
    options: dict[str, Any] = {
        "ignored": ignored,
        "dtype": mp.param_dtype,
        "input_dtype": mp.param_dtype if mp.cast_forward_inputs else None,
        "reshard_after_forward": reshards(reshard_after_forward),
        "broadcast": broadcast,
    }
    if mp.param_dtype is not None:
        dtype_name(mp.param_dtype, "param_dtype")
    for item in modules:
        if leaf and any(is_sharded(part) for part in item.modules()):
            raise errors.StateError(
                f"{name or type(item).__name__} has submodules that are sharded already: it cannot "
                "be a leaf",
                advice="Shard the leaf first, and nothing within it.",
            )
    parts_of = [chosen_units(item, units) for item in modules]
    chosen_device = device_for(modules, context_device(context, device), ignored)
    for item in modules:
        check_module(item, ignored, mp.param_dtype, chosen_device)
    group = group_of(group, mesh)
    chosen = "zero3" if plan is None else plan
    if context is None:
        chosen = with_reduce_dtype(chosen, mp)
        check_offload(offload_policy, chosen)
        context = context_for(chosen, group, transport, chosen_device or "cpu")
    else:
        check_context(context, plan, group, transport, mp, modules)
        check_offload(offload_policy, context.plan)
    sharding = sharding_of(context, limits)
    destroy_lost(sharding)
    late_of = [late_parts(item, ignored) for item in modules]
    for path, part in [each for late in late_of for each in late]:
        check_same(sharding, part, path)
    for item, parts, late in zip(modules, parts_of, late_of):
        remember_ignored(item, ignored)
        base = sharding.unique(name or type(item).__name__)
        done = False
        for path, part in late:
            own = {**options, "ignored": ignored | ignored_before(part)}
            done |= shard_one(sharding, part, f"{base}.{path}", seed, init, own)
        for path, part in parts:
            done |= shard_one(sharding, part, f"{base}.{path}", seed, init, options)
        done |= shard_one(sharding, item, base, seed, init, options)
        convert_buffers(item, mp.param_dtype, mp.buffer_dtype)
        if not done:
            raise errors.StateError(
                f"{base} is sharded already, or has no params",
                subject=base,
                advice="Call shard once per module, submodules before the root.",
            )
    return module


def check_same(sharding: Sharding, part: torch.nn.Module, path: str) -> None:
    """StateError for new params of a part that another plan or group shards."""
    scope = scope_of(part)
    if scope is not None and scope.sharding is not sharding:
        raise errors.StateError(
            f"{path} has new params, and is sharded by another plan or group of ranks",
            subject=path,
            advice="Pass shard the plan and group of that module, or call it for that first.",
        )


def shard_one(
    sharding: Sharding,
    module: torch.nn.Module,
    name: str,
    seed: int,
    init: str,
    options: dict[str, Any],
) -> bool:
    units = len(sharding.units)
    scope = make_scope(sharding, module, name, **options)
    for unit in sharding.units[units:]:
        if unit.unmade and init == "defer":
            defer(unit)
        elif unit.unmade:
            materialize(sharding, module, unit, seed)
    for part in module.modules():
        move_buffers(part, sharding)
    if scope is not None:
        add_methods(module, scope, FSDP_METHODS)
    return scope is not None


def chosen_units(module: torch.nn.Module, units: Units | None) -> list[tuple[str, torch.nn.Module]]:
    """Submodules that become units, the innermost first, with their paths."""
    if units is None:
        return []
    wanted: Callable[[torch.nn.Module], bool]
    if isinstance(units, (type, tuple)):
        kinds = units
        wanted = lambda part: isinstance(part, kinds)  # noqa: E731
    elif callable(units):
        wanted = units
    else:
        given = {id(part) for part in units}
        wanted = lambda part: id(part) in given  # noqa: E731

    found = [(path, part) for path, part in module.named_modules() if part is not module]
    chosen = [(path, part) for path, part in found if wanted(part)]
    if not chosen:
        raise errors.argument(
            f"units={units!r} fits no submodule of {type(module).__name__}",
            advice="Pass a class that occurs in it; print(model) shows which do.",
        )
    return sorted(chosen, key=lambda item: -item[0].count("."))


# ---- Control ------------------------------------------------------------------------------------


def require_units(module: torch.nn.Module) -> list[ShardedUnit]:
    """Units that a module and its parts use, in order; StateError when there are none."""
    places = [unit_of(param) for param in module.parameters()]  # a module around may have the unit
    units = [*units_below(module), *(place[0] for place in places if place is not None)]
    found = list(dict.fromkeys(units))
    if not found:
        raise errors.StateError(
            f"{type(module).__name__} is not sharded", advice="Call meron.torch.shard on it first."
        )
    return found


def shardings_below(module: torch.nn.Module) -> list[Sharding]:
    """The shardings of a module's units, one for each plan and group, in order of first use."""
    return list(dict.fromkeys(sharding_with(unit) for unit in require_units(module)))


@contextlib.contextmanager
def no_sync(module: torch.nn.Module) -> Iterator[None]:
    """Backward passes within add to this rank's gradients only; the next one outside reduces all.

    Under plans that shard gradients this rank keeps its unsharded gradients until then.
    """
    reducers = [sharding.reducer for sharding in shardings_below(module)]
    before = [reducer.sync for reducer in reducers]
    for reducer in reducers:
        reducer.sync = False
    try:
        yield
    finally:
        for reducer, sync in zip(reducers, before):
            reducer.sync = sync


def set_requires_gradient_sync(module: torch.nn.Module, flag: bool) -> None:
    """As no_sync, by hand."""
    for sharding in shardings_below(module):
        sharding.reducer.sync = bool(flag)


def set_is_last_backward(module: torch.nn.Module, flag: bool) -> None:
    """Says whether the backward passes from now on are each the last before a step.

    The sum once per step (over replicas under `mics` and `hpz`, over all ranks under `zero0` and
    `zero1`) then runs during that pass, unit by unit; without this, in the step. The bits are the
    same. All ranks pass the same flag, and use the same units in such a pass. It takes effect after
    a unit's first step, which shows what gradients a pass has.

    Raises StateError in a backward pass that follows the last one, before the step.
    """
    for sharding in shardings_below(module):
        sharding.reducer.last = bool(flag)


@calling("mt.unshard")
def unshard(module: torch.nn.Module) -> None:
    """Gathers the params of a module's own unit until `reshard`. Collective; blocks."""
    scope = own_scope(module)
    for unit in scope.units:
        unit.pin()


def reshard(module: torch.nn.Module) -> None:
    """Ends `unshard`. Never blocks."""
    scope = own_scope(module)
    for unit in scope.units:
        unit.unpin()


class UnshardHandle:
    """Of `module.unshard(async_op=True)`, as FSDP2's."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module: torch.nn.Module | None = module

    def wait(self) -> None:
        """Waits for the params, which are unsharded then. Collective; blocks. Once."""
        module, self.module = self.module, None
        if module is not None:
            unshard(module)


def unshard_method(module: torch.nn.Module, async_op: bool = False) -> UnshardHandle | None:
    """FSDP2's `module.unshard()`. Collective; blocks without `async_op`."""
    if not async_op:
        unshard(module)
        return None
    prefetch(module)
    return UnshardHandle(module)


@calling("mt.prefetch")
def prefetch(module: torch.nn.Module) -> None:
    """Begins to gather a module's own unit; its next use waits for the rest. Collective.

    The schedule does so by itself, from the second pass on.
    """
    for unit in own_scope(module).units:
        unit.memory.prefetch()


def own_scope(module: torch.nn.Module) -> Any:
    scope = scope_of(module)
    if scope is None:
        raise errors.StateError(
            f"{type(module).__name__} is not a unit of its own",
            advice="Call meron.torch.shard on it first.",
        )
    return scope


def set_sync_method(
    module: torch.nn.Module, requires_gradient_sync: bool, *, recurse: bool = True
) -> None:
    """FSDP2's `module.set_requires_gradient_sync()`, for all units of the module's context."""
    if not recurse:
        raise errors.UnsupportedError(
            "set_requires_gradient_sync(recurse=False): a context syncs all its units or none",
            operation="set_requires_gradient_sync",
            advice="Leave recurse out.",
        )
    set_requires_gradient_sync(module, requires_gradient_sync)


def set_last_method(module: torch.nn.Module, is_last_backward: bool) -> None:
    """FSDP2's `module.set_is_last_backward()`."""
    set_is_last_backward(module, is_last_backward)


FSDP_METHODS: dict[str, Callable[..., Any]] = {
    "unshard": unshard_method,
    "reshard": reshard,
    "set_requires_gradient_sync": set_sync_method,
    "set_is_last_backward": set_last_method,
}
