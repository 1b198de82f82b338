# SPDX-License-Identifier: Apache-2.0
"""Ends the accumulation of gradients: for a step, or to drop them.

`finish` divides the sums by the number of ranks. Ranks agree on which params have a gradient on
any rank: optimizers skip the others, as in plain torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from meron import errors
from meron._native import call, error_slot, free_slots, interrupts, lib, new, settle
from meron.torch.gradients.accumulation import BEGUN, COMPLETE, EMPTY, ENDED, FINISHED
from meron.torch.gradients.backward import BackwardReducer
from meron.torch.gradients.flags import LEFT, gradient_flags
from meron.torch.guard import plain
from meron.torch.tensors import tensor_of
from meron.torch.unit import ShardedUnit

reduce_finish_begin = lib.meron_reduce_finish_begin
reduce_consume = lib.meron_reduce_consume
reduce_discard = lib.meron_reduce_discard


class GradientReducer(BackwardReducer):
    """One per context. Attributes that others set are BackwardReducer's."""

    def finish(self, units: Iterable[ShardedUnit]) -> list[ShardedUnit]:
        """Ends the accumulation of some units. Returns those with a gradient. Collective."""
        units = [unit for unit in units if unit.trainable]
        fresh = [unit for unit in units if unit.gradients.phase is not FINISHED]
        if fresh:
            self.wait()
            with plain():
                self._agree(fresh)
            for unit in fresh:
                own = unit.gradients
                if own.seen:
                    if own.phase is not ENDED:
                        self._begin_finish(unit)
                    own.finish()
                elif own.phase is not EMPTY:  # it was entered, and has no gradient on any rank
                    self._discard(unit)
            self.wait()
            for unit in fresh:
                self._zero_dropped(unit)
        return [unit for unit in units if unit.gradients.seen]

    def _agree(self, units: list[ShardedUnit]) -> None:
        """Makes `seen` equal on all ranks. Passes gradients that no_sync left to the engine."""
        own, flags, again = gradient_flags(self.sharding.context, units)
        for unit, flag in zip(units, again):
            unit.gradients.settled = not flag
        if max(flags) < LEFT and all(own):
            return  # no gradient of no_sync is left, and all params are seen already
        values = iter(flags)
        of_units = [[next(values) for _ in unit.trainable] for unit in units]
        for unit, of_params in zip(reversed(units), reversed(of_units)):
            if max(of_params) >= LEFT:
                self.give(unit)
        self.wait()
        for unit, of_params in zip(units, of_units):
            present = {i for i, flag in zip(unit.trainable, of_params) if flag}
            if unit.gradients.dropped & present:
                self._refuse_partial_drop(unit, unit.gradients.dropped & present)
            unit.gradients.seen.update(present)

    def _refuse_partial_drop(self, unit: ShardedUnit, indices: set[int]) -> None:
        name = unit.handles[min(indices)].name
        raise errors.StateError(
            f"rank {self.sharding.context.rank} set the gradient of '{name}' to None, and another "
            "rank did not",
            subject=name,
            advice="Call zero_grad, or set param.grad to None, on all ranks.",
        )

    def finish_rest(self, units: list[ShardedUnit]) -> None:
        """After `finish`: finishes units without any gradient too, as zero. Collective."""
        for unit in units:
            if unit.gradients.phase is not FINISHED:
                self._begin_finish(unit)
                unit.gradients.finish()
        self.wait()

    def _begin_finish(self, unit: ShardedUnit) -> None:
        options = self._ending
        options.divisor = unit.gradients.divisor
        self._begin(reduce_finish_begin, unit.unit._handle, options)

    def drop(self, unit: ShardedUnit, indices: Iterable[int]) -> None:
        """Forgets the gradients of some params of a unit since their last step. All ranks must do
        so."""
        own = unit.gradients
        if own.empty:
            return
        if own.drop(i for i in indices if i in own.trainable):
            self.discard([unit])
        elif own.phase is FINISHED:
            self._zero_dropped(unit)

    def _zero_dropped(self, unit: ShardedUnit) -> None:
        """The engine's optimizers update whole units, and take these as zero."""
        own = unit.gradients
        if own.dropped and own.phase is FINISHED:
            for i in own.dropped:
                self.part(unit, i).zero_()
            own.dropped.clear()

    def has_grad(self, unit: ShardedUnit, i: int) -> bool:
        """True if a param has a gradient on this rank; once its unit is finished, on any rank."""
        return i in unit.gradients.seen

    def has_any(self, unit: ShardedUnit) -> bool:
        return bool(unit.gradients.seen)

    def part(self, unit: ShardedUnit, i: int) -> torch.Tensor:
        """The finished gradient of what this rank updates of a param, f32, flat, writable."""
        view = self.part_view(unit, i)
        return tensor_of(view, (view.count,), self.sharding.context._require_open())

    def parts(self, places: list[tuple[ShardedUnit, int]]) -> list[torch.Tensor]:
        """`part` of those of some params that have a gradient, which it finishes. Collective."""
        self.finish(dict.fromkeys(unit for unit, _ in places))
        return [self.part(*place) for place in places if self.has_grad(*place)]

    def part_view(self, unit: ShardedUnit, i: int) -> Any:
        view = new("meron_view *")
        call(lib.meron_reduced_view, view, unit.handles[i]._handle)
        return view

    def used(self, units: Iterable[ShardedUnit]) -> None:
        """The finished gradients of some units are used up."""
        for unit in units:
            unit.gradients.clear()

    def drop_empty(self) -> None:
        """Ends accumulations of units without a gradient on any rank, for example if no loss used
        the output of a model. A load would take them for a pending step. Collective."""
        begun = [u for u in self.sharding.units if u.gradients.phase in (BEGUN, ENDED)]
        if not begun:
            return
        self.wait()
        seen = np.array([bool(unit.gradients.seen) for unit in begun], np.float32)
        if self.sharding.context.world_size > 1:
            self.sharding.context.world.all_reduce(seen)
        with plain():
            for unit, ranks in zip(begun, seen.tolist()):
                if not ranks:
                    self._discard(unit)

    def _discard(self, unit: ShardedUnit) -> None:
        self._end(reduce_discard, unit)

    def _end(self, how: Any, unit: ShardedUnit) -> None:
        slot = error_slot()
        status = how(unit.unit._handle, slot)
        if status < 0 or interrupts:
            settle(status, slot)
        free_slots.append(slot)
        unit.gradients.clear()

    def consume(self, units: Iterable[ShardedUnit]) -> None:
        """Forgets gradients that an optimizer of torch has used. The codec's feedback stays. All
        ranks must do so."""
        units = list(units)
        self.wait()
        for unit in units:
            if unit.gradients.phase is FINISHED:
                self._end(reduce_consume, unit)
        self.discard(units)

    def scale_feedback(self, units: Iterable[ShardedUnit], factor: float) -> None:
        """Scales the codec's feedback of some units, before gradients that are `factor` times as
        large. Local; waits for reductions."""
        self.wait()
        for unit in units:
            unit.unit.scale_feedback(factor)

    def discard(self, units: Iterable[ShardedUnit]) -> None:
        """Forgets the gradients of some units since their last step, with the codec's feedback.
        All ranks must do so."""
        self.wait()
        with plain():
            for unit in units:
                own = unit.gradients
                if not own.empty:
                    self._discard(unit)
                if own.progress is COMPLETE:
                    self.waiting -= own.bytes
                own.forget_arrived()
                for param, _, _ in own.sources.places:
                    if param.grad is not None:
                        param.grad = None
