# SPDX-License-Identifier: Apache-2.0
"""Gradients on their way from autograd to the engine.

Every backward adds to the engine's accumulation, as it adds to `param.grad` in plain torch. Ranks
must give units in one order, whatever came first on each: the reverse of the order in which the
forward first used them. A unit whose gradients are complete early waits for its turn; what is
missing when the backward ends counts as zero. So a param without a gradient on one rank, or a
data-dependent branch, is no reason to hang.

`finish` ends the accumulation: sums are divided by the number of ranks, and ranks agree on which
params have a gradient at all, because one that has none anywhere is to be left alone by optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from meron import errors
from meron._native import call, ffi, initial, lib, new
from meron.future import Future
from meron.torch.tensors import CODES_OF_TORCH, tensor_of

if TYPE_CHECKING:
    from meron.torch.sharding import Sharding
    from meron.torch.unit import ShardedUnit


_LEFT = 4096.0  # of ranks: a gradient that is still this rank's own, beside those that are not


class GradientReducer:
    """Attributes that others read: `sync`, whether backward passes reduce (see no_sync)."""

    def __init__(self, sharding: Sharding) -> None:
        self.sharding = sharding
        # Where gradients are kept whole, giving them away only adds them up: without communication.
        self.local = sharding.keeps_gradients
        self.sync = True
        self.order: list[ShardedUnit] = []  # of this backward
        self.position = 0  # of the first that was not given yet
        self.any_arrived = False
        self.seen: set[tuple[ShardedUnit, int]] = set()  # params with a gradient since their step
        self.futures: list[Future] = []
        self._options = initial("meron_reduce_options")
        self._options.op = lib.MERON_MEAN
        self._options.boundary = 0
        self._finish = initial("meron_reduce_options")
        self._finish.op = lib.MERON_MEAN

    def watch(self, unit: ShardedUnit) -> list[Any]:
        """Hooks that see the gradients of a unit's params arrive."""
        handles = []
        for i in unit.trainable:
            hook = self._hook(unit, i)
            handles.append(unit.params[i].register_post_accumulate_grad_hook(hook))
        return handles

    def _hook(self, unit: ShardedUnit, i: int) -> Any:
        wanted = len(unit.trainable)
        arrived = unit.arrived
        sharding = self.sharding

        def hook(param: torch.Tensor) -> None:
            arrived.add(i)
            if len(arrived) < wanted:
                return
            if self.sync or self.local:
                self.any_arrived = True
                if not sharding.in_backward:
                    sharding.begin_backward()
                self.give_complete()
            for use in list(sharding.uses):
                if use.inputs_left == 0 and unit in use.scope.units:
                    use.end_if_done()

        return hook

    # ---- A backward pass -----------------------------------------------------------------------

    def begin_backward(self, entered: dict[ShardedUnit, None]) -> None:
        self.order = [unit for unit in reversed(entered) if unit.trainable]
        self.position = 0
        for unit in self.order:
            unit.given = False

    def give_complete(self) -> None:
        order = self.order
        while self.position < len(order):
            unit = order[self.position]
            if len(unit.arrived) < len(unit.trainable):
                return
            self.position += 1
            self.give(unit)

    def end_backward(self) -> None:
        units = self.sharding.units
        if (self.sync or self.local) and (self.any_arrived or any(unit.arrived for unit in units)):
            while self.position < len(self.order):
                self.position += 1
                self.give(self.order[self.position - 1])
            # Units that this pass did not enter (a second backward through an older graph), and
            # gradients that came again (recomputation of a segment that shares params).
            for unit in reversed(units):
                if unit.arrived:
                    self.give(unit)
        for unit in units:
            unit.arrived.clear()
        self.order = []
        self.position = 0
        self.any_arrived = False
        self.wait()

    def give(self, unit: ShardedUnit) -> None:
        """Hands the gradients of a unit's params to the engine. Collective."""
        if unit.finished:
            raise errors.StateError(
                f"backward ran after the gradients of '{unit.name}' were finished",
                advice="Call optimizer.step() or optimizer.zero_grad() between clip_grad_norm_ or "
                "full_grad and the next backward.",
            )
        present = [i for i in unit.trainable if unit.params[i].grad is not None]
        sources = new("meron_source[]", max(len(present), 1))
        keep = []
        for source, i in zip(sources, present):
            grad = unit.params[i].grad
            assert grad is not None
            if grad.is_sparse:
                grad = grad.to_dense()
            grad = grad.contiguous()
            keep.append(grad)
            source.param = unit.handles[i]._handle
            source.data = ffi.cast("void *", grad.data_ptr())
            source.count = grad.numel()
            source.dtype = CODES_OF_TORCH[grad.dtype]
            self.seen.add((unit, i))
        out = new("meron_future *")
        call(lib.meron_reduce_begin, out, unit.unit._handle, sources, len(present), self._options)
        self.futures.append(Future(self.sharding.context, out[0]))
        for i in present:
            unit.params[i].grad = None
        unit.arrived.clear()
        unit.given = True

    def wait(self) -> None:
        futures, self.futures = self.futures, []
        for future in futures:
            future.wait()

    # ---- A step --------------------------------------------------------------------------------

    def finish(self, units: Iterable[ShardedUnit]) -> list[ShardedUnit]:
        """Ends the accumulation of some units; those that have a gradient, in order. Collective."""
        units = [unit for unit in units if unit.trainable]
        fresh = [unit for unit in units if not unit.finished]
        if fresh:
            self.wait()
            places = [(unit, i) for unit in fresh for i in unit.trainable]
            flags = np.zeros(len(places), np.float32)
            for k, (unit, i) in enumerate(places):
                left = unit.params[i].grad is not None  # by no_sync
                flags[k] = _LEFT if left else 1 if (unit, i) in self.seen else 0
            if self.sharding.context.world_size > 1:
                self.sharding.context.world.all_reduce(flags)
            left_units = {place[0] for place, flag in zip(places, flags) if flag >= _LEFT}
            for unit in reversed(fresh):
                if unit in left_units:
                    self.give(unit)
            self.wait()
            for place, flag in zip(places, flags):
                if flag:
                    self.seen.add(place)
            for unit in fresh:
                if self.has_any(unit):
                    self._begin_finish(unit)
                unit.finished = True
            self.wait()
        return [unit for unit in units if self.has_any(unit)]

    def finish_rest(self, units: list[ShardedUnit]) -> None:
        """Finishes units without any gradient too, as zero. Collective."""
        for unit in units:
            self._begin_finish(unit)
        self.wait()

    def _begin_finish(self, unit: ShardedUnit) -> None:
        out = new("meron_future *")
        self._finish.divisor = unit.divisor
        call(lib.meron_reduce_finish_begin, out, unit.unit._handle, self._finish)
        self.futures.append(Future(self.sharding.context, out[0]))

    def has_grad(self, unit: ShardedUnit, i: int) -> bool:
        """Whether a param has a gradient; of all ranks once its unit is finished."""
        return (unit, i) in self.seen

    def has_any(self, unit: ShardedUnit) -> bool:
        return any((unit, i) in self.seen for i in unit.trainable)

    def part(self, unit: ShardedUnit, i: int) -> torch.Tensor:
        """The finished gradient of what this rank updates of a param, f32, flat, writable."""
        view = self.part_view(unit, i)
        return tensor_of(view, (view.count,), self.sharding.context._require_open())

    def part_view(self, unit: ShardedUnit, i: int) -> Any:
        view = new("meron_view *")
        call(lib.meron_reduced_view, view, unit.handles[i]._handle)
        return view

    def used(self, units: Iterable[ShardedUnit]) -> None:
        """The finished gradients of some units are used up."""
        for unit in units:
            unit.finished = False
            for i in unit.trainable:
                self.seen.discard((unit, i))

    def discard(self, units: Iterable[ShardedUnit]) -> None:
        """Forgets the gradients of some units since their last step. All ranks must do so."""
        self.wait()
        units = list(units)
        for unit in units:
            unit.arrived.clear()
            for i in unit.trainable:
                unit.params[i].grad = None
            if self.has_any(unit):
                call(lib.meron_reduce_discard, unit.unit._handle)
        self.used(units)
