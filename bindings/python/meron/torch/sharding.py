# SPDX-License-Identifier: Apache-2.0
"""All units of one context: made, written, and found by their params."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.gradients.reducer import GradientReducer
from meron.torch.guard import plain
from meron.torch.passes import Passes
from meron.torch.residency.device import DeviceResidency
from meron.torch.residency.devices import torch_device_of
from meron.torch.residency.host import HostResidency
from meron.torch.sharded_context import ShardedContext
from meron.torch.tensors import dtype_name
from meron.torch.torch_internals import current_graph_task
from meron.torch.unit import ShardedUnit
from meron.torch.values.write import is_first, source_of, with_masters, write_sources


class Sharding(ShardedContext):
    """Attributes that others read, beside those of its context:

    units:   in the order in which they were made
    passes:  the uses of their modules
    reducer: of their gradients
    """

    def __init__(self, context: meron.Context, limits: dict[str, int]) -> None:
        super().__init__(context, limits)
        self.units: list[ShardedUnit] = []
        device = torch_device_of(context.device)
        self.residency = HostResidency(self) if device is None else DeviceResidency(self, device)
        self.reducer: GradientReducer = self.residency.reducer(self)
        self.passes = Passes(self)
        self.concealed: dict[ShardedUnit, None] = {}  # units that the next pass unshards, for good
        # Units that stay unsharded between uses, though the plan shards params: `persist`.
        self.persistent: set[ShardedUnit] = set()
        self.scopes: weakref.WeakSet[Any] = weakref.WeakSet()  # of the modules that use its units
        self._counts: tuple[int, bool] = (0, True)
        context._caller_gradients = weakref.WeakMethod(self.reducer.held)
        context._closing = weakref.WeakMethod(self.close)
        self.copying = False  # a save reads states that Python holds

    # ---- Units ---------------------------------------------------------------------------------

    def add_unit(
        self,
        name: str,
        params: list[torch.nn.Parameter],
        names: list[str],
        dtype: torch.dtype | None,
        broadcast: bool,
    ) -> ShardedUnit:
        """Makes a unit of whole torch parameters. Collective.

        With `broadcast` rank 0's values count, else those of all ranks are equal. Params on the
        device "meta" have none yet: they are zero until they are written.
        """
        handles = []
        for param, own in zip(params, names):
            full_name = f"{name}.{own}"
            kind = dtype_name(dtype or param.dtype, full_name)
            frozen = not param.requires_grad
            handles.append(self.context.param(full_name, tuple(param.shape), kind, frozen=frozen))
        unit = self.context.unit(name, handles)
        values = [param.detach() for param in params]
        sharded = ShardedUnit(self, name, params, names, handles, unit)
        sharded.index = len(self.units)
        self.units.append(sharded)
        for i, param in enumerate(params):
            param._meron = (sharded, i)  # type: ignore[attr-defined]
        if self.stays_whole:
            self.concealed[sharded] = None
        real = {i: value for i, value in enumerate(values) if i not in sharded.unmade}
        if real:
            if broadcast and self.context.world_size > 1:
                real = {i: self.broadcast(value) for i, value in real.items()}
            self.write(sharded, real)
        self.residency.renew()
        return sharded

    def counts(self) -> bool:
        """True if this rank's parts count in a sum over all ranks. Replicas own the same elements,
        and only those of the first one count. Collective."""
        if not self.alike:
            return True
        if self._counts[0] != len(self.units):
            self._counts = (len(self.units), is_first(self.context, self.units))
        return self._counts[1]

    def write(self, unit: ShardedUnit, values: dict[int, torch.Tensor]) -> None:
        """Writes whole values, equal on all ranks, as the next version; or each rank's own range,
        as FlatShards. Collective."""
        # All that may fail is done before the ranks wait for each other.
        sources = {i: source_of(value) for i, value in values.items()}
        self.drop([unit])
        self.wait_copied()
        for i in values:
            unit.unmade.pop(i, None)
        write_sources(self.context, unit, sources)
        self.hold([unit])

    def takes_writes(self, _unit: ShardedUnit) -> bool:
        return not (self.coded or self.passes.active or current_graph_task() != -1)

    def publish(self, unit: ShardedUnit, values: dict[int, torch.Tensor]) -> None:
        """Writes whole values that this rank has made of those of a unit out of use. Of each param
        the ranks' own shards count; under a plan that shards nothing, the values of rank 0.

        Elements that have not changed keep the f32 values that an optimizer updates.
        """
        names = ", ".join(f"'{unit.handles[i].name}'" for i in values)
        try:
            if self.updates_everything and self.context.world_size > 1:
                values = {i: self.broadcast(value) for i, value in values.items()}
            with plain():
                exact = {i: with_masters(unit, i, value) for i, value in values.items()}
            self.write(unit, exact)
        except errors.GroupError as error:
            raise type(error)(
                f"{names} was written out of use on this rank: {error.message}",
                operation=error.operation,
                subject=unit.name,
                advice="Write to a param on all ranks alike.",
                rank=error.rank,
                peer=error.peer,
            ) from error

    def wait_copied(self) -> None:
        """Before states that Python holds are changed: a save may be reading them. Blocks on this
        rank's drive."""
        if self.copying:
            self.context.wait_copied()
            self.copying = False

    def units_have_changed(self) -> None:
        """Some have gone: what was made of the list of units is made anew."""
        self._counts = (-1, True)
        for each in (self.passes, self.reducer, self.residency):
            each.forget_units()

    def close(self) -> None:
        """Prepares for the end of the context, which ends the memory of params."""
        self.residency.renew()
        for unit in self.units:
            if not unit.stays:  # else its params are the model's, as any array is its holder's
                unit.forget_memory()
        self.residency.close()
        registry.shardings.pop(self.context, None)

    # ---- Values between passes -------------------------------------------------------------------

    def drop(self, written: Iterable[ShardedUnit] = ()) -> None:
        """Releases units that are kept full, before values are written: those of `written`."""
        self.finish_step()
        self.passes.recover_if_stale()
        self.passes.end_kept()
        self.passes.release_retained()
        self.residency.refuse_written()
        self.passes.looked_for_writes = True
        written = list(written)
        for unit in written:
            if self.stays_whole or unit in self.persistent:
                unit.conceal()
                self.concealed[unit] = None
        self.residency.drop(written)

    def hold(self, units: Iterable[ShardedUnit]) -> None:
        """After values were written: has params unsharded between uses, where every rank keeps them
        whole, and those of `persist`. Collective; blocks on peers until all have published."""
        chosen = sorted(self.concealed.keys() & set(units), key=lambda unit: unit.index)
        for unit in chosen:
            unit.memory.keep_begin()
        for unit in chosen:
            unit.reveal()
            del self.concealed[unit]

    def persist(self, chosen: Iterable[ShardedUnit], units: Iterable[ShardedUnit]) -> None:
        """Has some of the units unsharded between uses too, and the others not. Collective.

        Their values can be read at any time, on one rank alone. Each update gathers them, in place
        of their next use. For small units: a rank holds them whole.
        """
        if self.stays_whole:
            return
        self.finish_step()
        wanted = set(chosen)
        for unit in self.persistent.intersection(units) - wanted:
            unit.conceal()
            self.persistent.remove(unit)
            self.concealed.pop(unit, None)
        fresh = wanted - self.persistent
        self.persistent |= fresh
        self.concealed.update(dict.fromkeys(fresh))
        self.hold(fresh)


def sharding_of(context: meron.Context, limits: dict[str, int] | None = None) -> Sharding:
    """The sharding of a context, made where there is none; `limits` are added to its own."""
    sharding: Sharding | None = registry.shardings.get(context)
    if sharding is None:
        sharding = registry.shardings[context] = Sharding(context, limits or {})
    elif limits and limits != sharding.limits:
        sharding.limits = {**sharding.limits, **limits}
        sharding.residency.renew()
    return sharding


def sharding_with(unit: ShardedUnit) -> Sharding:
    """The sharding that a unit is in."""
    assert isinstance(unit.sharding, Sharding)
    return unit.sharding


def unit_of(param: torch.Tensor) -> tuple[ShardedUnit, int] | None:
    """The unit of a sharded torch parameter, and its index there; else None."""
    return getattr(param, "_meron", None)


def placed(param: torch.Tensor) -> tuple[ShardedUnit, int]:
    """The unit and index of a sharded param; ArgumentError for another tensor."""
    place = unit_of(param)
    if place is None:
        raise errors.argument(
            f"this tensor of shape {tuple(param.shape)} is no sharded param",
            advice="Pass a param of a module that meron.torch.shard has sharded.",
        )
    return place


def by_sharding(
    places: Iterable[tuple[ShardedUnit, int]],
) -> dict[Sharding, list[tuple[ShardedUnit, int]]]:
    """Some params, each once, by the sharding that they are in, in order."""
    found: dict[Sharding, list[tuple[ShardedUnit, int]]] = {}
    for place in dict.fromkeys(places):
        found.setdefault(sharding_with(place[0]), []).append(place)
    return found
