# SPDX-License-Identifier: Apache-2.0
"""All units of one context, and the pass that runs over them.

A *pass* is the forward of a root module and the backward that follows. The engine's schedule is
told when a pass begins and which unit is used when; it records that order, and gathers ahead along
it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.gradients.reducer import NEVER, GradientReducer
from meron.torch.residency.device import DeviceUnit
from meron.torch.residency.device_gradients import DeviceReducer
from meron.torch.residency.host import HostSchedule
from meron.torch.residency.read_ahead import ReadAhead
from meron.torch.residency.written import refuse_written
from meron.torch.sharded_context import ShardedContext
from meron.torch.tensors import dtype_name
from meron.torch.torch_internals import call_after_backward, current_graph_task
from meron.torch.unit import ShardedUnit
from meron.torch.use import Active, Use
from meron.torch.values.write import is_first, source_of, write_sources

KINDS = 16  # recorded orders of a schedule


class Sharding(ShardedContext):
    """Attributes that others read, beside those of its context:

    units:   in the order in which they were made
    active:  the sharded modules whose forward runs now, outermost first
    """

    def __init__(self, context: meron.Context, limits: dict[str, int]) -> None:
        super().__init__(context, limits)
        self.units: list[ShardedUnit] = []
        self.looked_for_writes = False  # since the last pass
        self.concealed: dict[ShardedUnit, None] = {}  # units that are to be so again
        self._counts: tuple[int, bool] = (0, True)
        self.schedule = HostSchedule(self.make_schedule)
        # In place of a schedule, for a device.
        self.read_ahead = ReadAhead(self, lambda: self.units)
        self.reducer = (
            GradientReducer(self) if self.device is None else DeviceReducer(self, self.device)
        )
        context._caller_gradients = weakref.WeakMethod(self.reducer.held)
        context._closing = weakref.WeakMethod(self.close)
        self.active: list[Active] = []
        # Modules whose forward began a pass: a number, and the units below, as of so many units.
        self.roots: weakref.WeakKeyDictionary[
            torch.nn.Module, tuple[int, int, list[ShardedUnit]]
        ] = weakref.WeakKeyDictionary()
        self.passed = 0  # roots so far: ranks drop those that are gone at different times
        self.uses: list[Use] = []  # of this backward, not ended yet
        self.temporary: list[Any] = []  # handles of hooks on leaves, which would live on
        # Units used since the last backward, in order, each with the number of its first use.
        self.entered: dict[ShardedUnit, int] = {}
        self.clock = 0  # number of the last use that has begun
        self.since = 0  # of the first that `entered` may have
        self.backward_clock = 0  # `clock` as the present backward began
        self.kept: list[ShardedUnit] = []  # entered until the next backward has ended
        self.in_backward = False
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
            handles.append(self.context.param(full_name, tuple(param.shape), kind, frozen))
        unit = self.context.unit(name, handles)
        values = [param.detach() for param in params]
        common = (self, self.schedule, name, params, names, handles, unit)
        sharded = (
            ShardedUnit(*common)
            if self.device is None
            else DeviceUnit(self.device, self.read_ahead, *common)
        )
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
        self.renew_schedule()
        return sharded

    def counts(self) -> bool:
        """Whether this rank's parts count where those of all ranks are put together: of replicas,
        which own the same, the first one's do. Collective."""
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

    def wait_copied(self) -> None:
        """Before states that Python holds are changed: a save may be reading them. Blocks on this
        rank's drive."""
        if self.copying:
            self.context.wait_copied()
            self.copying = False

    def units_have_changed(self) -> None:
        """Some have gone: what was made of the list of units is made anew."""
        self.roots.clear()
        self.passed = 0
        self._counts = (-1, True)
        self.reducer.forget_units()
        self.read_ahead.forget_units()

    def close(self) -> None:
        """The context is about to be closed: memory that params show goes with it."""
        self.renew_schedule()
        for unit in self.units:
            if not unit.stays:  # else its params are the model's, as any array is its holder's
                unit.forget_memory()
        if self.copies is not None:
            self.copies.close()
        registry.shardings.pop(self.context, None)

    # ---- The schedule --------------------------------------------------------------------------

    def renew_schedule(self) -> None:
        """Units or limits have changed."""
        self.schedule.renew()

    def make_schedule(self) -> meron.Schedule:
        """The engine's schedule over all units. Collective."""
        units = [unit.unit for unit in self.units]
        return self.context.schedule(units, **self.limits)  # type: ignore[arg-type]

    def drop(self, written: Iterable[ShardedUnit] = ()) -> None:
        """Gives back what is kept full, before values are written: those of `written`."""
        self.recover_if_stale()
        self.end_kept()
        if self.copies is not None:
            refuse_written(self.copies, self.units)
            self.looked_for_writes = True
        written = list(written)
        if self.stays_whole:
            for unit in written:
                unit.conceal()
                self.concealed[unit] = None
        if self.device is not None:
            self.read_ahead.drop(written)
            return
        for unit in self.units:
            if unit.ahead is not None:
                unit.end_prefetch()
        self.schedule.drop()

    def hold(self, units: Iterable[ShardedUnit]) -> None:
        """After values were written: has params unsharded between uses, where every rank keeps them
        whole. Collective; blocks on peers until all have published."""
        if not self.stays_whole:
            return
        chosen = sorted(self.concealed.keys() & set(units), key=lambda unit: unit.index)
        for unit in chosen:
            unit.reveal_begin()
        for unit in chosen:
            unit.reveal()
            del self.concealed[unit]

    # ---- Passes --------------------------------------------------------------------------------

    def begin_pass(self, root: torch.nn.Module) -> None:
        """A root module's forward begins, outside of any backward."""
        self.recover_if_stale()
        self.end_kept()
        number, count, units = self.roots.get(root, (-1, 0, []))
        if number < 0:
            number = self.passed
            self.passed += 1
        if count != len(self.units):
            units = units_below(root)
            self.roots[root] = (number, len(self.units), units)
        for unit in units:
            unit.check()
        if self.copies is not None:
            # A step looks before it changes values: between two steps one pass need not.
            if not self.looked_for_writes:
                refuse_written(self.copies, self.units)
            self.looked_for_writes = False
        if self.concealed:  # after an error
            self.hold(units)
        kind = (2 * number + (0 if torch.is_grad_enabled() else 1)) % KINDS
        (self.schedule if self.device is None else self.read_ahead).begin(kind)
        for handle in self.temporary:
            handle.remove()
        self.temporary.clear()

    def use_outside(self, unit: ShardedUnit) -> None:
        """A param is read where its unit is not in use."""
        if self.active:
            self.active[-1].use_of_other(unit)
        elif current_graph_task() != -1:
            # Recomputation of a segment whose params have got gradients from another one already.
            self.begin_backward()
            unit.enter()
            self.kept.append(unit)

    def record(self, unit: ShardedUnit, graded: bool) -> None:
        """A unit is used, in a forward that autograd records or not. The first recorded use
        counts, and where there is none, the first of all."""
        if graded:
            if unit.graded < self.since:
                self.entered.pop(unit, None)
                self.entered[unit] = unit.graded = self.clock
        elif not self.in_backward:
            self.entered.setdefault(unit, self.clock)
            if unit.ungraded < self.since:
                unit.ungraded = self.clock
            unit.until = NEVER

    def end_ungraded(self, use: Use) -> None:
        """The end of a use that autograd has not recorded, but may recompute (reentrant
        checkpoints). Of a unit with two of them it would not be known which is recomputed."""
        if not self.in_backward:
            for unit in use.entered:
                if unit.ungraded == use.first:
                    unit.until = self.clock + 1

    def pass_by(self, last: int) -> None:
        """The backward has come to a use whose forward ended before use `last` began: all from
        there on have ended theirs."""
        for use in self.uses:
            if use.first >= last:
                self.end_uses([use for use in self.uses if use.first >= last])
                break
        if last >= self.since:  # else of an older graph
            self.reducer.pass_by(last)

    def recompute(self, units: list[ShardedUnit]) -> None:
        """The backward has come to a segment that is recomputed, and whose first use is of
        `units`."""
        task = current_graph_task()
        until = NEVER
        if units and units[0].graded < self.since <= units[0].ungraded:
            until = units[0].until
        # Backwards of other segments run within this one's, and have ended; their numbers grow.
        # Those of segments around this one have not.
        self.end_uses(
            [
                use
                for use in self.uses
                if use.task > task or until <= use.first <= self.backward_clock
            ]
        )
        if until != NEVER:
            self.reducer.pass_by(until)

    def end_uses(self, uses: list[Use]) -> None:
        for use in uses:
            self.uses.remove(use)
            use.end()

    def begin_backward(self) -> None:
        """The first unit is used in a backward pass: its end is to be seen.

        A backward within a backward (recomputation of torch.utils.checkpoint) is part of it.
        """
        if self.in_backward:
            return
        self.in_backward = True
        call_after_backward(self.end_backward)
        self.backward_clock = self.clock
        self.reducer.begin_backward(self.entered, self.since)

    def end_backward(self) -> None:
        self.in_backward = False
        uses, self.uses = self.uses, []
        for use in uses:
            use.end()
        self.end_kept()
        self.forget_uses()
        self.reducer.end_backward()

    def forget_uses(self) -> None:
        """What is used from now on is of another pass."""
        self.entered = {}
        self.clock += 2  # no use of before has `since` as its `last`
        self.since = self.clock

    def end_kept(self) -> None:
        kept, self.kept = self.kept, []
        for unit in kept:
            unit.leave()

    def recover_if_stale(self) -> None:
        """After an exception in the user's backward, nobody tells that it has ended."""
        if (self.uses or self.in_backward) and current_graph_task() == -1:
            self.recover()

    def recover(self) -> None:
        """After an exception in the user's forward or backward: as if the pass had not been."""
        self.in_backward = False
        self.active.clear()
        uses, self.uses = self.uses, []
        for use in uses:
            use.units = []
        self.kept.clear()
        self.forget_uses()
        for unit in self.units:
            if unit.uses:
                unit.uses = 0
                unit.scheduled = False
                unit.hide()
            unit.arrived.clear()
        if self.device is not None:
            self.read_ahead.reset()
        else:
            self.schedule.reset()


def sharding_of(context: meron.Context, limits: dict[str, int] | None = None) -> Sharding:
    """The sharding of a context, made where there is none; `limits` are added to its own."""
    sharding: Sharding | None = registry.shardings.get(context)
    if sharding is None:
        sharding = registry.shardings[context] = Sharding(context, limits or {})
    elif limits and limits != sharding.limits:
        sharding.limits = {**sharding.limits, **limits}
        sharding.renew_schedule()
    return sharding


def sharding_with(unit: ShardedUnit) -> Sharding:
    """The sharding that a unit is in."""
    assert isinstance(unit.sharding, Sharding)
    return unit.sharding


def unit_of(param: torch.Tensor) -> tuple[ShardedUnit, int] | None:
    """Where a torch parameter is sharded: its unit, and its index there."""
    return getattr(param, "_meron", None)


def units_below(module: torch.nn.Module) -> list[ShardedUnit]:
    """Units of a module and of its parts, in order."""
    found: dict[ShardedUnit, None] = {}
    for part in module.modules():
        scope = part.__dict__.get("_meron_scope")
        for unit in scope.units if scope is not None else ():
            found[unit] = None
    return list(found)


def placed(param: torch.Tensor) -> tuple[ShardedUnit, int]:
    """The unit and index of a sharded param; ArgumentError for another tensor."""
    place = unit_of(param)
    if place is None:
        raise errors.argument(
            f"this tensor of shape {tuple(param.shape)} is no sharded param",
            advice="Pass a param of a module that meron.torch.shard has sharded.",
        )
    return place
