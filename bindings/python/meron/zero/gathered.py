# SPDX-License-Identifier: Apache-2.0
"""GatheredParameters: whole params outside of forward and backward, to read or to change.

The whole values are a copy of this rank's own: what the ranks share is read-only, and a write to it
would end the process. A forward within the context uses the copy.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterable
from typing import Any, Union

import numpy as np
import torch

from meron import errors
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import exact_param
from meron.zero.external import register_external_parameter

Params = Union[torch.Tensor, "Iterable[torch.Tensor]"]
Place = tuple[ShardedUnit, int]


class Opened:
    """A unit some of whose params are whole outside of a forward.

    All params of the unit have copies, so that no write can reach shared memory.
    """

    def __init__(self, unit: ShardedUnit) -> None:
        self.unit = unit
        self.indices: set[int] = set()  # that were asked for
        self.copies: list[torch.Tensor] = []
        self.before: list[torch.Tensor] = []  # what they were, where changes are checked
        self.pin()

    def pin(self) -> None:
        unit = self.unit
        # A change is to leave the rest of a tensor as its owners have it.
        exact = (
            [exact_param(param).to(param.device) for param in unit.params]
            if unit.sharding.coded
            else []
        )
        self.pinned = unit.pinned is None
        unit.pin()
        fresh = exact or [whole.clone() for whole in unit.memory.wholes]
        self.before = unit.memory.wholes
        if exact and unit in checked:
            self.before = [whole.clone() for whole in exact]
        self.copies = [
            self.copies[i] if i in self.indices else whole for i, whole in enumerate(fresh)
        ]
        unit.lend(self.copies)

    def unpin(self) -> None:
        unit = self.unit
        unit.take_back()
        if self.pinned:
            unit.unpin()


opened: dict[ShardedUnit, Opened] = {}
# `held` maps each param that the library gathered by itself to its gather. While a caller gathers
# such a param by name, `lent` keeps the gather that holds it again afterwards.
held: dict[Place, ImplicitGather] = {}
lent: dict[Place, ImplicitGather] = {}
# Units whose params may change only with a modifier_rank; any other change is an error.
checked: weakref.WeakSet[ShardedUnit] = weakref.WeakSet()


def places_of(params: Iterable[Any]) -> list[Place]:
    """Where the sharded ones of some params are, each once, in one order on all ranks.

    As in DeepSpeed, anything else in the list is left out: None, as a module has it in place of a
    bias, and params that are not sharded. ArgumentError for names and modules, which could only be
    meant for params.
    """
    places: dict[Place, None] = {}
    for param in params:
        if isinstance(param, (str, tuple, list, torch.nn.Module)):
            raise errors.argument(
                f"a list of params has a {type(param).__name__} in it",
                subject="params",
                advice="Pass params themselves, as module.parameters() gives them.",
            )
        place = unit_of(param)
        if place is not None:
            places[place] = None
    return sorted(
        places, key=lambda place: (place[0].sharding.context.plan.json(), place[0].index, place[1])
    )


def is_open(place: Place) -> bool:
    """True if a param is gathered outside of a forward."""
    return place[0] in opened and place[1] in opened[place[0]].indices


def open_params(params: Iterable[torch.Tensor]) -> list[Place]:
    """Gathers params. Collective. Raises StateError for a param that is gathered already."""
    places = places_of(params)
    lenders = {place: held[place] for place in places if place in held}
    for holder in dict.fromkeys(lenders.values()):
        holder.give_up([place for place in places if lenders.get(place) is holder])
    for unit, i in places:
        if is_open((unit, i)):
            raise errors.StateError(
                f"{unit.name}.{unit.names[i]} is gathered already",
                subject=f"{unit.name}.{unit.names[i]}",
                advice="Do not nest GatheredParameters of the same param.",
            )
    done: list[Place] = []
    try:
        for unit, i in places:
            if unit not in opened:
                opened[unit] = Opened(unit)
            opened[unit].indices.add(i)
            done.append((unit, i))
            if (unit, i) in lenders:
                lent[unit, i] = lenders[unit, i]
    except BaseException:
        close_places(done, False)
        raise
    return places


def close_params(params: Iterable[torch.Tensor], write: bool) -> None:
    """Ends open_params; `write` writes each rank's part from its own values, else changes are
    dropped with a warning. Collective."""
    places = places_of(params)
    changed = [] if write else changed_places([place for place in places if is_open(place)])
    close_places(places, write)
    warn_of_changes(changed, "all_gather and partition", "has_been_updated=True")


def close_places(places: list[Place], write: bool) -> None:
    values: dict[ShardedUnit, dict[int, torch.Tensor]] = {}
    for unit, i in places:
        if not is_open((unit, i)):
            raise errors.StateError(
                f"{unit.name}.{unit.names[i]} is not gathered",
                subject=f"{unit.name}.{unit.names[i]}",
                advice="Call all_gather first.",
            )
        values.setdefault(unit, {})[i] = unit.params[i].data
    failure: BaseException | None = None
    for unit, changed in values.items():
        record = opened[unit]
        record.unpin()
        record.indices -= changed.keys()
        if not record.indices:
            del opened[unit]
        try:
            if write and failure is None:
                sharding_with(unit).write(unit, changed)
            if record.indices:
                record.pin()
        except BaseException as error:  # raised when nothing is left open
            failure = failure or error
    borrowed = [(place, lent.pop(place)) for place in places if place in lent]
    if failure is not None:
        raise failure
    for holder in dict.fromkeys(holder for _, holder in borrowed):
        holder.take_back([place for place, owner in borrowed if owner is holder])


class GatheredParameters:
    """Gathers params for the length of a `with`. Collective; blocks on peers.

        with meron.zero.GatheredParameters(model.head.weight, modifier_rank=0):
            if rank == 0:
                torch.nn.init.zeros_(model.head.weight)

    Args:
        params: a param, or several; None and params that are not sharded are left alone.
        modifier_rank: the rank (of the model's group) whose values count at the end. None drops
            changes, and warns of them by name (not of values that a codec gathered).
        fwd_module: a module whose forward uses the params from now on.
        enabled: False does nothing.

    Raises StateError for params that are gathered already.
    """

    def __init__(
        self,
        params: Params | None,
        modifier_rank: int | None = None,
        fwd_module: torch.nn.Module | None = None,
        enabled: bool = True,
    ) -> None:
        self.enabled = enabled
        self.modifier_rank = modifier_rank
        if isinstance(params, torch.nn.Module):
            raise errors.argument(
                f"params is a {type(params).__name__}, no params",
                subject="params",
                advice="Pass module.parameters().",
            )
        self.params: list[Any] = []
        if isinstance(params, torch.Tensor):
            self.params = [params]
        elif enabled and params is not None:
            self.params = list(params)
        self.fwd_module = fwd_module
        self.places: list[Place] = []

    def __enter__(self) -> GatheredParameters:
        if not self.enabled:
            return self
        if self.modifier_rank is not None:
            for unit, _ in places_of(self.params):
                world_size = unit.sharding.context.world_size
                if self.modifier_rank not in range(world_size):
                    raise errors.argument(
                        f"modifier_rank is {self.modifier_rank!r}: there are {world_size} ranks",
                        "modifier_rank",
                    )
        self.places = open_params(self.params)
        if self.fwd_module is not None:
            for unit, i in self.places:
                register_external_parameter(self.fwd_module, unit.params[i])
        return self

    def __exit__(self, *error: Any) -> None:
        places, self.places = self.places, []
        self.end(places, error[0] is None)

    def end(self, places: list[Place], fine: bool) -> None:
        """Ends the gather of some of its params; without `fine` changes are dropped."""
        if not places:
            return
        replaced = restore_shapes(places)
        if self.modifier_rank is not None and fine:
            try:
                for unit, i in places:
                    param = unit.params[i]
                    param.data = unit.sharding.broadcast(param.data, self.modifier_rank)
            except BaseException:
                close_places(places, False)
                raise
            close_places(places, True)
            if replaced:
                raise errors.argument(
                    f"param.data of {', '.join(replaced)} was replaced by a tensor of another "
                    "shape: the values from before were written",
                    subject=replaced[0],
                    advice="Give it a tensor of the same shape.",
                )
            return
        suspects = [(unit, i) for unit, i in places if unit in checked] if fine else []
        changed = changed_places(places) if fine else []
        close_places(places, False)
        refuse_changes(suspects, [place in changed for place in suspects])
        warn_of_changes(changed, "GatheredParameters", "modifier_rank")


def restore_shapes(places: list[Place]) -> list[str]:
    """Puts values of the right shape and dtype into params that a caller gave other data.

    Returns the names of those whose shape was wrong: their values are those from before. An error
    of one rank here would leave the others waiting, so the caller raises it at the end.
    """
    replaced = []
    for unit, i in places:
        param, copy = unit.params[i], opened[unit].copies[i]
        if param.shape != copy.shape:
            replaced.append(f"{unit.name}.{unit.names[i]}")
            param.data = copy
        elif param.dtype != copy.dtype:
            param.data = param.data.to(copy.dtype)
    return replaced


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors of a dtype are equal. NaN equals NaN."""
    if not one.numel():
        return True
    first, second = (t.contiguous().view(-1).view(torch.uint8) for t in (one, other))
    words = len(first) // 8 * 8
    if all(int(each.storage_offset()) % 8 == 0 for each in (first, second)):  # 5 times as fast
        same = torch.equal(first[:words].view(torch.int64), second[:words].view(torch.int64))
        return same and torch.equal(first[words:], second[words:])
    return torch.equal(first, second)


def changed_places(places: list[Place]) -> list[Place]:
    """Those whose values this rank has changed since the gather. Local.

    The comparison takes about as long as a copy of the values: 2 ms for 16 MiB. If a codec gathered
    the values, they are compared under enable_sanity_checks only, which keeps another copy.
    """
    return [
        (unit, i)
        for unit, i in places
        if (unit in checked or not unit.sharding.coded)
        and not same_bytes(unit.params[i].data, opened[unit].before[i])
    ]


def warn_of_changes(places: list[Place], within: str, remedy: str) -> None:
    if places:
        names = ", ".join(f"'{unit.name}.{unit.names[i]}'" for unit, i in places)
        rank = places[0][0].sharding.context.rank
        warnings.warn(
            f"{names} changed on rank {rank} within {within}, and the change is dropped. Pass "
            f"{remedy} to keep it",
            stacklevel=4,
        )


def refuse_changes(places: list[Place], changed: list[bool]) -> None:
    """Under enable_sanity_checks: StateError on all ranks when one of them changed a param."""
    names = []
    for sharding in dict.fromkeys(unit.sharding for unit, _ in places):
        flags = np.array(
            [flag for (unit, _), flag in zip(places, changed) if unit.sharding is sharding],
            np.float32,
        )
        own = [place for place in places if place[0].sharding is sharding]
        if sharding.context.world_size > 1:
            sharding.context.world.all_reduce(flags)
        names += [f"{unit.name}.{unit.names[i]}" for (unit, i), flag in zip(own, flags) if flag]
    if names:
        raise errors.StateError(
            f"{', '.join(names)} changed in a GatheredParameters without modifier_rank",
            subject=names[0],
            advice="Pass modifier_rank to keep the change.",
        )


class ImplicitGather(GatheredParameters):
    """A gather that the library makes by itself, around code of a model: rank 0's changes are kept.

    If code gathers such a param by name, this gather ends for the param, which keeps its changes,
    and resumes afterwards.
    """

    def __init__(self, params: Params) -> None:
        super().__init__(params, modifier_rank=0)
        self.active = False

    def __enter__(self) -> ImplicitGather:
        super().__enter__()
        self.active = True
        held.update(dict.fromkeys(self.places, self))
        return self

    def __exit__(self, *error: Any) -> None:
        self.active = False
        for place in self.places:
            del held[place]
        super().__exit__(*error)

    def give_up(self, places: list[Place]) -> None:
        """Ends the gather of some params, which keep their changes. Collective."""
        for place in places:
            self.places.remove(place)
            del held[place]
        self.end(places, True)

    def take_back(self, places: list[Place]) -> None:
        """Gathers some again, unless its time is over. Collective."""
        if self.active:
            open_params(unit.params[i] for unit, i in places)
            self.places.extend(places)
            held.update(dict.fromkeys(places, self))


class LazyGather:
    """Within it, params are gathered when their modules are asked for them, and rank 0's changes
    are kept. Without a sharding it does nothing.

    While one is the innermost of a sharding's active modules, code that builds or initialises a
    model sees and writes params of parts that are sharded already.
    """

    scope = None  # it is among uses of modules, and of none

    def __init__(self, sharding: Sharding | None) -> None:
        self.sharding = sharding
        self.contexts = contextlib.ExitStack()

    def __enter__(self) -> LazyGather:
        if self.sharding is not None:
            self.sharding.passes.active.append(self)
        return self

    def use_of_other(self, unit: ShardedUnit) -> None:
        self.contexts.enter_context(ImplicitGather(unit.params))

    def __exit__(self, *error: Any) -> None:
        active = self.sharding.passes.active if self.sharding is not None else []
        if active and active[-1] is self:
            active.pop()
        self.contexts.__exit__(*error)
