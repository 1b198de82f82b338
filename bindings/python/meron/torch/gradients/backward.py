# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way from autograd to the engine, in a backward.

Every backward adds to the engine's accumulation, as it adds to `param.grad` in plain torch. Ranks
must give units in one order, whatever came first on each: the reverse of the order in which the
forward first used them. A unit is complete when all its params have their gradients, or when the
backward of its first use has ended (see hooks.py); what is missing then counts as zero. So a param
without a gradient on one rank, or a data-dependent branch, is no reason to hang, and one that no
rank uses is none to hold back the gradients of others.

A unit that autograd has not recorded in a pass (a teacher under no_grad), or whose params are all
frozen by now, is not reduced. Ranks agree on that without a word: they use the same units.
"""

from __future__ import annotations

from typing import Any

import torch

from meron import errors
from meron._native import (
    DEFAULT_TIMEOUT,
    NULL,
    error_slot,
    free_slots,
    initial,
    interrupts,
    lib,
    new,
    settle,
)
from meron.torch.gradients import Owner
from meron.torch.gradients.accumulation import ARRIVING, COMPLETE, ENDED, FINISHED, GIVEN
from meron.torch.gradients.sources import sources_of_some
from meron.torch.guard import plain
from meron.torch.torch_internals import hook_last
from meron.torch.unit import ShardedUnit

reduce_begin = lib.meron_reduce_begin
strided = torch.strided

NEVER = 1 << 62  # in place of the number of a use


class BackwardReducer:
    """Attributes that others set: `sync`, whether backward passes reduce (see no_sync), and `last`,
    whether the present one is the last before a step (see set_is_last_backward)."""

    def __init__(self, sharding: Owner) -> None:
        self.sharding = sharding
        # Where gradients are kept whole, giving them away only adds them up: without communication.
        self.local = sharding.keeps_gradients
        self.sync = True
        self.last = False
        # Of this backward: units, each with the number of its first use.
        self.order: list[tuple[ShardedUnit, int]] = []
        self.position = 0  # of the first that was not given yet
        self.complete_from = NEVER  # uses of this number and above have ended their backward
        self.since = 0  # number of the first use that this backward may be of
        self.any_arrived = False
        self.waiting = 0  # bytes of gradients of units that are complete, and not given yet
        self.peak = 0  # the most of these
        self.under_way = False  # something was begun and not waited for
        self._table: tuple[int, Any] = (0, NULL)  # so many units of the sharding, for the engine
        self._options = initial("meron_reduce_options")
        self._options.op = lib.MERON_REDUCE_OP_MEAN
        self._options.boundary = 0
        # With the unit's divisor; its initial value ends the accumulation.
        self._ending = initial("meron_reduce_options")
        self._ending.op = lib.MERON_REDUCE_OP_MEAN

    def watch(self, unit: ShardedUnit) -> list[Any]:
        """Sees the gradients of a unit's params arrive."""
        handles = []
        for i in unit.trainable:
            hook = self._hook(unit, i)
            handles.append(hook_last(unit.params[i], hook))
        return handles

    def _hook(self, unit: ShardedUnit, i: int) -> Any:
        own = unit.gradients
        wanted, arrived = own.wanted, own.arrived
        passes = self.sharding.passes

        def hook(param: torch.Tensor) -> None:
            arrived.add(i)
            if len(arrived) < wanted:
                return
            if own.progress is not COMPLETE:
                own.progress = COMPLETE
                self.waiting += own.bytes
                if self.waiting > self.peak:
                    self.peak = self.waiting
            if self.sync or self.local:
                self.any_arrived = True
                if not passes.in_backward:
                    passes.begin_backward()
                self.give_complete()
            for use in passes.uses[:]:
                if unit in use.units:
                    use.end_if_done()

        return hook

    # ---- A backward pass -----------------------------------------------------------------------

    def begin_backward(self, entered: dict[ShardedUnit, int], since: int) -> None:
        self.order = order = []
        self.position = 0
        self.complete_from = NEVER
        self.since = since
        for item in reversed(entered.items()):
            own = item[0].gradients
            if own.wanted:
                order.append(item)
                if own.progress is GIVEN:
                    own.progress = ARRIVING

    def pass_by(self, last: int) -> None:
        """Uses of the number `last` and above have ended their backward."""
        if last < self.complete_from:
            self.complete_from = last
        order, position = self.order, self.position
        if position == len(order) or order[position][1] < last or not (self.sync or self.local):
            return
        # A backward without gradients for params (torch.autograd.grad) reduces none.
        if not self.any_arrived:
            for unit, first in order[position:]:
                if first < last:
                    return
                if unit.gradients.arrived:
                    self.any_arrived = True
                    break
            else:
                return
        self.give_complete()

    def give_complete(self) -> None:
        order = self.order
        while self.position < len(order):
            unit, first = order[self.position]
            own = unit.gradients
            if len(own.arrived) < own.wanted:
                if first < self.complete_from:
                    return
                if not own.arrived and not self._brings(unit):
                    self.position += 1
                    continue
            self.position += 1
            ends = self.last and self.sync and own.settled
            if unit.uses:
                self.give(unit, ends)
            else:  # it waited for its turn
                with plain():
                    self.give(unit, ends)

    def _brings(self, unit: ShardedUnit) -> bool:
        """Whether a unit may get gradients in this backward, on some rank. Equal on all ranks."""
        return unit.graded >= self.since and any(
            unit.params[i].requires_grad for i in unit.trainable
        )

    def has_arrived(self) -> bool:
        """True if this backward has computed a gradient of a param on this rank."""
        return self.any_arrived or any(unit.gradients.arrived for unit in self.sharding.units)

    def end_backward(self) -> None:
        units = self.sharding.units
        if (self.sync or self.local) and self.has_arrived():
            with plain():
                while self.position < len(self.order):
                    unit = self.order[self.position][0]
                    self.position += 1
                    if unit.gradients.arrived or self._brings(unit):
                        self.give(unit, self.last and self.sync and unit.gradients.settled)
                # Units that this pass did not enter (a second backward through an older graph), and
                # gradients that came again (recomputation of a segment that shares params).
                for unit in reversed(units):
                    if unit.gradients.arrived:
                        unit.gradients.again = True
                        self.give(unit)
        for unit in units:
            unit.gradients.arrived.clear()
        self.order = []
        self.position = 0
        self.any_arrived = False
        self.wait()

    def give(self, unit: ShardedUnit, ending: bool = False) -> None:
        """Hands the gradients of a unit's params to the engine. Collective."""
        own = unit.gradients
        if own.phase is FINISHED:
            raise errors.StateError(
                f"backward ran after the gradients of '{unit.name}' were finished",
                advice="Call optimizer.step() or optimizer.zero_grad() between clip_grad_norm_ or "
                "full_grad and the next backward.",
            )
        if own.phase is ENDED:
            raise errors.StateError(
                f"gradients of '{unit.name}' arrived after those of the last backward of a step",
                advice="Call optimizer.step() between, or zero_grad() to drop all of them, and "
                "set_is_last_backward(model, False) before a pass that others follow, or that "
                "computes gradients of a unit more than once.",
            )
        options = self._options
        if ending:
            options = self._ending
            options.divisor = own.divisor
        if own.dropped:
            self.refuse_again(unit)
        # Addresses alone are new where all is as it was registered.
        sources = own.sources
        for param, dtype, place in sources.places:
            grad = param.grad
            if (
                grad is None
                or grad.dtype is not dtype
                or grad.layout is not strided
                or not grad.is_contiguous()
            ):
                self._give_some(unit, options)
                break
            place[0] = grad.data_ptr()
        else:
            try:
                slot = free_slots.pop()
            except IndexError:
                slot = error_slot()
            self.under_way = True  # `wait` waits, also where an interrupt comes
            status = reduce_begin(NULL, unit.unit._handle, sources.table, own.wanted, options, slot)
            if status < 0:
                settle(status, slot)
            free_slots.append(slot)
            if len(own.seen) < own.wanted:
                own.seen.update(own.trainable)
            # Only what the engine has taken is gone: an interrupt while it waits loses nothing.
            for param, _, _ in sources.places:
                param.grad = None
        if own.progress is COMPLETE:
            self.waiting -= own.bytes
        own.give(ending)

    @staticmethod
    def refuse_again(unit: ShardedUnit) -> None:
        """StateError for a gradient that the user has set to None since the last step, as it would
        be added to the one that the engine still has."""
        again = unit.gradients.dropped & unit.gradients.arrived
        if again:
            name = unit.handles[min(again)].name
            raise errors.StateError(
                f"a backward computed a gradient of '{name}' again: it was set to None since the "
                f"last step, and that of another param of '{unit.name}' was not",
                subject=name,
                advice="Call optimizer.zero_grad() or model.zero_grad(), or set the gradients of "
                "all params of the unit to None.",
            )

    def held(self) -> tuple[int, int]:
        """Bytes of whole gradients that this rank has in `param.grad`: now, and at most so far of
        units that were complete."""
        now = 0
        with plain():
            for unit in self.sharding.units:
                for param in unit.params:
                    if param.grad is not None:
                        now += param.grad.nbytes
        return now, max(now, self.peak)

    def _give_some(self, unit: ShardedUnit, options: Any) -> None:
        """Where gradients are missing, or not as the engine takes them."""
        present = [i for i in unit.trainable if unit.params[i].grad is not None]
        # `_keep` is what the engine reads during the call.
        sources, _keep = sources_of_some(unit.params, unit.handles, present)
        self._begin(reduce_begin, unit.unit._handle, sources, len(present), options)
        for i in present:
            unit.params[i].grad = None
        unit.gradients.seen.update(present)

    def _begin(self, function: Any, *arguments: Any) -> None:
        """Begins an operation, for which `wait` waits; an interrupt of it is left to that too."""
        slot = error_slot()
        self.under_way = True
        status = function(NULL, *arguments, slot)
        if status < 0:
            settle(status, slot)
        free_slots.append(slot)

    def wait(self) -> None:
        """Waits for what was begun. An interrupt leaves the rest for the next wait."""
        if not self.under_way:
            return
        units = self.sharding.units
        count, table = self._table
        if count != len(units):
            count, table = len(units), new("meron_unit[]", [unit.unit._handle for unit in units])
            self._table = (count, table)
        slot = error_slot()
        status = lib.meron_reduce_wait(table, count, DEFAULT_TIMEOUT, slot)
        if status < 0 or interrupts:
            settle(status, slot)
        free_slots.append(slot)
        self.under_way = False

    def forget_units(self) -> None:
        """Some units have gone."""
        self._table = (0, NULL)
