# SPDX-License-Identifier: Apache-2.0
"""Passes over the units of a context: the uses of modules, their order, and the ends of their
backwards.

A *pass* is the forward of a root module and the backward that follows. `clock` numbers forwards.
Passes report the start of a pass and each use of a unit to the residency. It records the order of
uses, and gathers ahead in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch

from meron.torch.gradients.accumulation import GIVEN
from meron.torch.gradients.backward import NEVER
from meron.torch.gradients.reducer import GradientReducer
from meron.torch.residency import Residency
from meron.torch.torch_internals import (
    call_after_backward,
    current_graph_task,
    keeps_graph,
)
from meron.torch.unit import ShardedUnit

KINDS = 16  # recorded orders of a schedule
grad_enabled = torch.is_grad_enabled


class Active(Protocol):
    """A user of params that runs now: a Use, or zero.gathered.LazyGather."""

    def use_of_other(self, unit: ShardedUnit) -> None:
        """A param of another module's unit is used in it."""


class Scope(Protocol):
    """hooks.Scope: a sharded module, and the units whose params it uses."""

    passes: Passes
    units: list[ShardedUnit]
    autograd_device: torch.device | None


class Use:
    """One forward of a sharded module; with gradients, its backward too."""

    __slots__ = ("entered", "first", "last", "scope", "task", "units")

    def __init__(self, scope: Scope, first: int) -> None:
        self.scope = scope
        self.entered: list[ShardedUnit] = []  # by its forward, until its end
        self.units: Sequence[ShardedUnit] = ()  # entered by its backward
        # By Passes.clock: its number; and that of the first use that may begin after its forward.
        self.first = self.last = first
        self.task = 0  # the backward that runs its recomputed graph

    def use_of_other(self, unit: ShardedUnit) -> None:
        """A param of another module's unit is used in this forward: from now on always."""
        scope = self.scope
        unit.enter()
        scope.passes.record(unit, torch.is_grad_enabled())
        self.entered.append(unit)
        if unit not in scope.units:
            scope.units.append(unit)

    def __call__(self, gradient: Any) -> None:
        """The gradient of an output that has a node has arrived. (Not a method with a name: that
        would be one more object for Python's garbage collector to look at.)"""
        if self.units:
            return
        passes = self.scope.passes
        if not passes.in_backward:
            passes.begin_backward(grad_enabled())
        # (A node of another device is of another queue, whose order says nothing of this one's.)
        device = self.scope.autograd_device
        if device is None or gradient.device == device:
            passes.pass_by(self.last)
        self.enter()

    def begin_at_leaf(self, _gradient: Any) -> None:
        """As the call, of an output that is a leaf: its gradient is complete as soon as its last
        use has ended its backward, whatever else has not."""
        if self.units:
            return
        if not self.scope.passes.in_backward:
            self.scope.passes.begin_backward(grad_enabled())
        self.enter()

    def enter(self) -> None:
        scope = self.scope
        passes = scope.passes
        if self.first > passes.backward_clock:
            self.task = current_graph_task()
        passes.uses.append(self)
        self.units = entered = []
        for unit in scope.units:
            unit.enter()
            entered.append(unit)
        if passes.recorded:
            passes.retain(entered)

    def end_if_done(self) -> None:
        for unit in self.units:
            # Values of frozen params may be needed for the gradients of inputs still.
            own = unit.gradients
            if unit.partly_frozen or not (own.progress is GIVEN or len(own.arrived) == own.wanted):
                return
        self.scope.passes.uses.remove(self)
        self.end()

    def end(self) -> None:
        units, self.units = self.units, ()
        for unit in units:
            unit.leave()


class Owner(Protocol):
    """The sharding, as passes need it."""

    units: list[ShardedUnit]
    residency: Residency
    reducer: GradientReducer
    concealed: dict[ShardedUnit, None]
    stays_whole: bool

    def hold(self, units: Iterable[ShardedUnit]) -> None: ...

    def finish_step(self) -> None: ...


class Passes:
    """Attributes that others read:

    active:      the sharded modules whose forward runs now, outermost first
    uses:        those of this backward that have not ended yet
    in_backward: whether a backward has used a unit, and not ended
    recorded:    whether autograd records that backward (create_graph=True)
    """

    def __init__(self, sharding: Owner) -> None:
        self.sharding = sharding
        self.looked_for_writes = False  # since the last pass
        self.active: list[Active] = []
        # Modules whose forward began a pass: a number, how many units there were, those below, and
        # which of these may not be used as they are.
        self.roots: weakref.WeakKeyDictionary[
            torch.nn.Module, tuple[int, int, list[ShardedUnit], list[ShardedUnit]]
        ] = weakref.WeakKeyDictionary()
        self.passed = 0  # roots so far: ranks drop those that are gone at different times
        self.uses: list[Use] = []
        self.temporary: list[Any] = []  # handles of hooks on leaves, which would live on
        # Units used since the last backward, in order, each with the number of its first use.
        self.entered: dict[ShardedUnit, int] = {}
        self.clock = 0  # number of the last use that has begun
        self.since = 0  # of the first that `entered` may have
        self.backward_clock = 0  # `clock` as the present backward began
        self.kept: list[ShardedUnit] = []  # entered until the next backward has ended
        self.in_backward = self.recorded = self.keeps_graph = False
        # Units that a recorded backward has used. The graph that it made needs their values: in
        # nodes that run before any node of the forward, which would gather them.
        self.retained: list[ShardedUnit] = []

    def forget_units(self) -> None:
        """Some units have gone."""
        self.roots.clear()
        self.passed = 0

    # ---- Forwards ------------------------------------------------------------------------------

    def start_pass(self, root: torch.nn.Module) -> None:
        """A root module's forward begins, outside of any backward."""
        self.sharding.finish_step()
        self.recover_if_stale()
        self.end_kept()
        sharding = self.sharding
        number, count, units, checked = self.roots.get(root, (-1, 0, [], []))
        if number < 0:
            number = self.passed
            self.passed += 1
        if count != len(sharding.units):
            units = units_below(root)
            checked = [unit for unit in units if unit.frozen or unit.unmade]
            self.roots[root] = (number, len(sharding.units), units, checked)
        for unit in checked:
            unit.check()
        # A step looks before it changes values: between two steps one pass need not.
        if not self.looked_for_writes:
            sharding.residency.refuse_written()
        self.looked_for_writes = False
        if sharding.concealed:  # after an error
            sharding.hold(units)
        kind = (2 * number + (0 if torch.is_grad_enabled() else 1)) % KINDS
        sharding.residency.begin(kind)
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
        """The backward has reached a use whose forward ended before use `last` began: the backwards
        of all uses from `last` on have ended."""
        for use in self.uses:
            if use.first >= last:
                self.end_uses([use for use in self.uses if use.first >= last])
                break
        if last >= self.since:  # else of an older graph
            self.sharding.reducer.pass_by(last)

    def recompute(self, units: list[ShardedUnit]) -> None:
        """The backward has reached a segment that is recomputed. Its first use is of `units`."""
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
            self.sharding.reducer.pass_by(until)

    def end_uses(self, uses: list[Use]) -> None:
        for use in uses:
            self.uses.remove(use)
            use.end()

    def begin_backward(self, recorded: bool = False) -> None:
        """Called when the first unit is used in a backward pass, to be called again at its end.

        A backward within a backward (recomputation of torch.utils.checkpoint) is part of it.
        """
        if self.in_backward:
            return
        self.in_backward = True
        self.recorded = recorded and not self.sharding.stays_whole
        self.keeps_graph = keeps_graph()
        call_after_backward(self.end_backward)
        self.backward_clock = self.clock
        self.sharding.reducer.begin_backward(self.entered, self.since)

    def end_backward(self) -> None:
        self.in_backward = self.recorded = False
        uses, self.uses = self.uses, []
        for use in uses:
            use.end()
        self.end_kept()
        # After torch.autograd.grad the graph that it kept may have its backward still.
        if not self.keeps_graph or self.sharding.reducer.has_arrived():
            self.forget_uses()
        self.sharding.reducer.end_backward()

    def retain(self, units: list[ShardedUnit]) -> None:
        """Keeps units unsharded for the graph of a recorded backward. Its end is not seen, so they
        stay until values are written."""
        for unit in units:
            if unit.retained is None:
                unit.retain()
                self.retained.append(unit)

    def release_retained(self) -> None:
        retained, self.retained = self.retained, []
        for unit in retained:
            unit.release()

    def forget_uses(self) -> None:
        """Later uses belong to another pass."""
        self.entered = {}
        self.clock += 2  # no use of before has `since` as its `last`
        self.since = self.clock

    def end_kept(self) -> None:
        kept, self.kept = self.kept, []
        for unit in kept:
            unit.leave()

    def recover_if_stale(self) -> None:
        """An exception in the user's backward skips the call at its end: makes up for it."""
        if (self.uses or self.in_backward) and current_graph_task() == -1:
            self.recover()

    def recover(self) -> None:
        """After an exception in the user's forward or backward: as if the pass had not been."""
        self.in_backward = self.recorded = False
        self.active.clear()
        uses, self.uses = self.uses, []
        for use in uses:
            use.units = []
        self.kept.clear()
        self.forget_uses()
        for unit in self.sharding.units:
            unit.recover()
            unit.gradients.arrived.clear()
        self.sharding.residency.reset()


def units_below(module: torch.nn.Module) -> list[ShardedUnit]:
    """Units of a module and of its parts, in order."""
    found: dict[ShardedUnit, None] = {}
    for part in module.modules():
        scope = part.__dict__.get("_meron_scope")
        for unit in scope.units if scope is not None else ():
            found[unit] = None
    return list(found)
