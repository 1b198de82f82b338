# SPDX-License-Identifier: Apache-2.0
"""Destroys sharded models: all ranks together release their units' memory and names.

A model without references is not destroyed at once: Python's garbage collector finds it at
another time on every rank. Its units wait until `shard` is called next, in which ranks agree on
those that all of them have lost.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch

from meron import errors
from meron.torch.guard import plain
from meron.torch.optim.replacement import trained_by
from meron.torch.passes import units_below
from meron.torch.sharding import Sharding, sharding_with
from meron.torch.torch_internals import CALL, current_graph_task
from meron.torch.unit import TAKE_BACK, ShardedUnit


def destroy(model: torch.nn.Module) -> None:
    """Releases the engine's memory of a sharded model, for good. Collective.

    The model and its params cannot be used any more; an optimizer of the engine's (mt.AdamW and
    others) of this model alone is released, too. Save the model before.

    Blocks until every rank has called it, at most the deadline.

    Raises StateError in a forward or backward, and for a unit that others use, which is named: a
    tied param of another model, an optimizer of several models, or GatheredParameters. If one rank
    refuses, all raise and nothing has changed. GroupError: a rank does not call it.
    """
    units = units_below(model)
    if not units:
        raise errors.StateError(
            f"{type(model).__name__} is not sharded",
            advice="Call meron.torch.destroy once, with what meron.torch.shard returned.",
        )
    if current_graph_task() != -1 or any(sharding_with(unit).passes.active for unit in units):
        raise errors.StateError(
            "a model cannot be destroyed in a forward or backward", advice="Do it between steps."
        )
    optimizers = agree_to_end(model, units, "destroy")
    # Nothing is refused from here on.
    for optimizer in optimizers:
        optimizer._release_engine("was released: its model was destroyed")
    remove_all(units)
    for part in model.modules():
        scope = part.__dict__.pop("_meron_scope", None)
        if scope is not None:
            part.__dict__[CALL] = refuse_use


def agree_to_end(
    model: torch.nn.Module,
    units: list[ShardedUnit],
    verb: str,
    check: Callable[[], None] | None = None,
) -> list[Any]:
    """The engine's optimizers of a model's units, which no caller uses then. Collective.

    StateError, on all ranks and with nothing changed, if a rank refuses: its `check` raises, or a
    unit is in use. `verb` is what they refuse.
    """
    shardings = shardings_of(units)
    refusal: errors.Error | None = None
    optimizers: list[Any] = []
    try:
        if check is not None:
            check()
        check_owned(model, units)
        optimizers = optimizers_of(units)
        for sharding in shardings:
            release_values(sharding, units)
        check_unused(units)
    except errors.Error as error:
        refusal = error
    for sharding in shardings:
        agree(sharding, model, verb, refusal)
    return optimizers


def shardings_of(units: list[ShardedUnit]) -> list[Sharding]:
    """In the order of the units, which is the same on all ranks."""
    return list({sharding_with(unit): None for unit in units})


def check_owned(model: torch.nn.Module, units: list[ShardedUnit]) -> None:
    """StateError for units that the model shares, or that GatheredParameters has."""
    own = set(model.parameters())
    for unit in units:
        others = [param for param in unit.params if not hasattr(param, "_meron_replaced")]
        if not own.issuperset(others):
            raise errors.StateError(
                f"unit '{unit.name}' has params that are not this model's",
                subject=unit.name,
                advice="Give the model that was sharded with these params.",
            )
        if unit.phase in TAKE_BACK:
            raise errors.StateError(
                f"unit '{unit.name}' is gathered by GatheredParameters",
                subject=unit.name,
                advice="Leave the context first.",
            )


def release_values(sharding: Sharding, units: list[ShardedUnit]) -> None:
    """Releases the gathers that passes keep, which the next pass takes again."""
    sharding.drop([unit for unit in units if unit.sharding is sharding and not unit.uses])
    # The schedule has gathers of all units; the next pass makes another one.
    sharding.residency.release()


def check_unused(units: list[ShardedUnit]) -> None:
    """StateError for what the engine would refuse after `release_values`."""
    for unit in units:
        info = unit.unit.info()
        if info.leases > unit.memory.leases() or info.state == "updating":
            held = "being updated" if info.state == "updating" else "gathered by another caller"
            raise errors.StateError(
                f"unit '{unit.name}' is {held}",
                subject=unit.name,
                advice="Release its gathers and publish its updates first.",
            )


def agree(
    sharding: Sharding, model: torch.nn.Module, verb: str, refusal: errors.Error | None
) -> None:
    """Raises on all ranks what one of them has against it. Collective."""
    context = sharding.context
    refusing = np.zeros(context.world_size, np.float32)
    refusing[context.rank] = refusal is not None
    if context.world_size > 1:
        context.world.all_reduce(refusing)
    if refusal is not None:
        raise refusal
    if refusing.any():
        rank = int(refusing.argmax())
        raise errors.StateError(
            f"rank {rank} refuses to {verb} {type(model).__name__}: nothing was changed",
            advice=f"See the error on rank {rank}.",
        )


def refuse_use(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise errors.StateError(
        "this model was destroyed (meron.torch.destroy)", advice="Build and shard a new one."
    )


def optimizers_of(units: list[ShardedUnit]) -> list[Any]:
    """The engine's optimizers of some units; StateError for one that has units of others, too."""
    found: dict[Any, None] = {}
    for unit in units:
        optimizer = trained_by(unit)
        if optimizer is not None:
            found[optimizer] = None
    for optimizer in found:
        for unit in optimizer.sharded:
            if unit not in units:
                raise errors.StateError(
                    f"an optimizer of this model has unit '{unit.name}' of another one, too",
                    subject=unit.name,
                    advice="Call its release() on all ranks first; steps end then for both models.",
                )
    return list(found)


def remove_all(units: list[ShardedUnit]) -> None:
    """Destroys unused units of any shardings. Collective; in the same order on all ranks."""
    for sharding in shardings_of(units):
        remove(sharding, [unit for unit in units if unit.sharding is sharding])


def remove(sharding: Sharding, units: list[ShardedUnit]) -> None:
    """Destroys unused units. Collective; in the same order on all ranks."""
    for unit in units:
        unit.unpin()
    release_values(sharding, units)
    sharding.reducer.discard(units)
    sharding.passes.forget_uses()
    gone: set[ShardedUnit] = set()
    try:
        for unit in units:
            unit.unit.destroy()
            sharding.concealed.pop(unit, None)
            sharding.persistent.discard(unit)
            unit.end()
            gone.add(unit)
    finally:  # also where one is refused
        sharding.units = [unit for unit in sharding.units if unit not in gone]
        for scope in sharding.scopes:  # of modules that live on, with other params
            if not gone.isdisjoint(scope.units):
                scope.units = [unit for unit in scope.units if unit not in gone]
        for index, unit in enumerate(sharding.units):
            unit.index = index
        sharding.units_have_changed()


def destroy_lost(sharding: Sharding) -> None:
    """Destroys the units whose models are gone on every rank. Collective."""
    units = sharding.units
    if not units:
        return
    lost = np.array([is_lost(unit) for unit in units], np.float32)
    context = sharding.context
    if context.world_size > 1:
        context.world.all_reduce(lost)
    counts = list(zip(units, lost.tolist()))
    for unit, count in counts:
        if count > 0:  # on some rank no backward comes that could use it
            sharding.passes.entered.pop(unit, None)
    gone = [unit for unit, count in counts if count == context.world_size]
    if gone:
        remove(sharding, gone)


def is_lost(unit: ShardedUnit) -> bool:
    """True if only the unit references its params, and no caller can use it."""
    if unit.lost:
        return True
    used = unit.uses > int(unit.retained is not None)  # a graph is no user
    if used or unit.pinned is not None:
        return False
    if not unit.replaced and (unit.owner is None or unit.owner() is not None):
        return False
    if unit.optimizer is not None and unit.optimizer() is not None:
        return False
    # Params live while they are referenced: release the unit's references, and look.
    params = [weakref.ref(param) for param in unit.params]
    with plain():
        frees = [param.requires_grad for param in unit.params]
    kinds = unit.data.kinds
    unit.release_params()
    if all(param() is None for param in params):
        unit.lost = True
        return True
    held = []
    for param, empty, requires_grad in zip(params, unit.data.placeholders, frees):
        kept = param()
        if kept is None:  # no reference was left
            kept = torch.nn.Parameter(empty.data, requires_grad)
        held.append(kept)
    unit.take_again(held, kinds)
    return False
