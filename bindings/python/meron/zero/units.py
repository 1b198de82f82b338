# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's granularity: every module that directly owns params is a unit of its own, and a leaf
module is one with all that is below it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Collection, Iterable
from typing import Any

import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.sharding import Sharding, sharding_of, unit_of
from meron.torch.torch_internals import RESET, own_buffers, own_children
from meron.torch.unit import ShardedUnit
from meron.torch.values.materialize import materialize
from meron.torch.values.unwritten import check_written, share_buffers, unwritten
from meron.torch.world import context_for
from meron.torch.wrap import make_scope, move_buffers, scope_of
from meron.zero.attributes import name_params
from meron.zero.config import Config
from meron.zero.external import hook_external
from meron.zero.leaf import is_leaf
from meron.zero.owner import engine_of

logger = logging.getLogger("meron.zero")

PERSIST_ELEMENTS = 100_000  # the schedule's default, and DeepSpeed's


def shard_module(sharding: Sharding, module: torch.nn.Module, name: str, **options: Any) -> None:
    """Shards what is not sharded yet in a module and below, the innermost first. Collective."""
    seen: set[torch.nn.Module] = set()

    def visit(part: torch.nn.Module, path: str) -> None:
        if part in seen:
            return
        seen.add(part)
        if not is_leaf(part):
            for child_name, child in own_children(part).items():
                if child is not None:
                    visit(child, f"{path}.{child_name}")
        shard_part(sharding, part, path, **options)

    visit(module, name)


def shard_part(
    sharding: Sharding, part: torch.nn.Module, name: str, *, buffers: bool = True, **options: Any
) -> None:
    """Shards a module's own params; all below it where it is a leaf. Collective.

    With `buffers` those on the device "meta" become real; without it, the caller fills them.
    """
    units = len(sharding.units)
    leaf = is_leaf(part)
    if leaf:
        drop_scopes(part)
    # Values that reset_parameters reads here are not uses by an active outer module.
    active = sharding.passes.active[:]
    sharding.passes.active.clear()
    try:
        with torch.device("cpu"):  # whatever the default is while a model is built
            make_scope(sharding, part, name, recurse=leaf, **options)
            for unit in sharding.units[units:]:
                if unit.unmade:
                    materialize(sharding, part, unit, seed=0)
                name_params(unit)
            if buffers:
                fill_buffers(sharding, part, name)
            for each in part.modules() if leaf else (part,):
                move_buffers(each, sharding)
    finally:
        sharding.passes.active[:] = active
    hook_external(sharding, part)


def drop_scopes(leaf: torch.nn.Module) -> None:
    """Unhooks a module and its parts, whose units stay: a leaf uses them all together."""
    for part in leaf.modules():
        scope = scope_of(part)
        if scope is not None:
            scope.remove()
            del part.__dict__["_meron_scope"]


def fill_buffers(sharding: Sharding, part: torch.nn.Module, name: str) -> None:
    """Real buffers for a module without params that was built on the device "meta", with the values
    of rank 0. Collective.

    Raises StateError on all ranks that names what reset_parameters did not fill.
    """
    buffers = own_buffers(part)
    missing = [key for key, value in buffers.items() if value is not None and value.is_meta]
    if not missing:
        return
    reset = next((getattr(part, key) for key in RESET if hasattr(part, key)), None)
    if reset is None:
        raise errors.argument(
            f"the buffer {name}.{missing[0]} is on the device meta, and {type(part).__name__} has "
            "no reset_parameters",
            subject=f"{name}.{missing[0]}",
            advice="Give the class a method reset_parameters() that fills it, or build it on the "
            "CPU.",
        )
    for key in missing:
        buffer = buffers[key]
        assert buffer is not None
        buffers[key] = unwritten(buffer.shape, buffer.dtype)
    with torch.no_grad():
        reset()
    written = {f"{name}.{key}": buffers[key] for key in missing}
    check_written(sharding, {k: value for k, value in written.items() if value is not None})
    share_buffers(sharding, part, missing)


def make_folders(paths: Iterable[str]) -> None:
    """Makes folders that are absent, with their parents, as DeepSpeed does. One that cannot be made
    is an error of the ranks' first use of it, which all ranks see."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.makedirs(path, exist_ok=True)


def open_sharding(config: Config, plan: meron.Plan, group: Any, device: str) -> Sharding:
    """The sharding of a config's plan over the ranks of a group, which compute on a device ("" is
    the host). Collective where it is new. Makes the folders of states on NVMe."""
    make_folders(config.offload.folders())
    try:
        context = context_for(plan, group, device=device or "cpu")
    except (errors.ArgumentError, errors.UnsupportedError) as error:
        on_host = config.plan()
        unsupported = isinstance(error, errors.UnsupportedError) and error.subject == "plan"
        if unsupported and plan != on_host:
            # The same on all ranks: their devices cannot exchange by themselves.
            sharding = open_sharding(config, on_host, group, device)
            if sharding.context.rank == 0:
                logger.warning("rows stay on the host: %s", error.message)
            return sharding
        if error.subject != "plan" or not config.topology.keys():
            raise
        raise config.topology.misfit(error) from None
    new = context not in registry.shardings
    one_node = context.transport in ("self", "local", "shm")
    on_device = json.loads(plan.json())["param"]["tier"] == "device"
    idle = config.topology.idle(context.world_size, one_node, on_device)
    if new and idle and context.rank == 0:
        warnings.warn(idle, stacklevel=4)
    return sharding_of(context)


def set_limits(
    sharding: Sharding, limits: dict[str, int], own: Collection[ShardedUnit] = ()
) -> None:
    """Sets limits of a schedule. Models of one plan and group share it, so a change is a warning if
    another model than that of the units `own` trains already."""
    changed = [name for name, value in limits.items() if sharding.limits.get(name) != value]
    if not changed:
        return
    alive = (unit for unit in sharding.units if not unit.lost and unit not in own)
    if any(engine_of(unit.params[0]) is not None for unit in alive):
        listed = ", ".join(
            f"{name} {sharding.limits.get(name, 'default')} -> {limits[name]}" for name in changed
        )
        warnings.warn(
            "models of one plan share the limits of their schedule, and the last config's count "
            f"for all: {listed}",
            stacklevel=4,
        )
    sharding.limits = {**sharding.limits, **limits}
    sharding.residency.renew()


def persistent_units(sharding: Sharding, units: list[ShardedUnit]) -> list[ShardedUnit]:
    """The units whose params a rank has whole at any time: at most persist_elements in each, and
    persist_total_elements together, in order."""
    most = sharding.limits.get("persist_elements", PERSIST_ELEMENTS)
    left = sharding.limits.get("persist_total_elements", sys.maxsize)
    found = []
    for unit in units:
        elements = sum(handle.size for handle in unit.handles)
        if elements <= min(most, left):
            left -= elements
            found.append(unit)
    return found


def units_of(module: torch.nn.Module) -> list[ShardedUnit]:
    """The units of a module's params, in the order in which they were made."""
    places = [unit_of(param) for param in module.parameters()]
    units = {place[0] for place in places if place is not None}
    return sorted(units, key=lambda unit: unit.index)
