# SPDX-License-Identifier: Apache-2.0
"""How micro-batches make up a step: the boundary, the divisor, the batch sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from meron import errors
from meron.torch.tensors import DTYPES
from meron.torch.unit import ShardedUnit
from meron.zero.facts import Facts
from meron.zero.gathered import opened
from meron.zero.generation import generating


class Accumulation(Facts):
    """Attributes: those of Engine, which sets them."""

    _boundary: bool | None
    _accumulated: int
    _backwards: int
    _backward_ran: bool
    _unsynced: bool
    _scaled: bool
    _coalesced = False  # gradients were reduced by coalesce_grad_reduction, for the next step
    _unscaled = False  # a backward of this accumulation ran past the loss scale

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        raise NotImplementedError

    def _update(self, lr_kwargs: dict[str, Any] | None) -> None:
        raise NotImplementedError

    def _end_micro_batch(self) -> None:
        raise NotImplementedError

    def zero_grad(self, set_to_none: bool = True) -> None:
        raise NotImplementedError

    def _note_scaling(self) -> None:
        """Under fp16, at the end of a micro-batch: whether its loss was scaled. Local."""
        self._unscaled |= self.loss_scaler is not None and not self._scaled

    def _require_scaled(self) -> None:
        """StateError on all ranks if the loss of one of them was not scaled under fp16: the
        gradients of all are dropped then. Collective under fp16."""
        if self.loss_scaler is None:
            return
        missing, self._unscaled = self._ranks_with(self._unscaled), False
        if not missing:
            return
        self.zero_grad()
        self._begin_again()
        raise errors.StateError(
            f"the loss was not scaled on {spelled_ranks(missing)}: under fp16 its gradients would "
            "be lost",
            operation="step",
            advice="Call engine.backward(loss), or engine.scale(loss).backward(); with Lightning "
            "self.manual_backward(loss) or fabric.backward(loss).",
        )

    def _ranks_with(self, flag: bool) -> list[int]:
        """The ranks on which a flag is set. Collective."""
        context = self.sharding.context
        flags = np.zeros(context.world_size, np.float32)
        flags[context.rank] = flag
        if context.world_size > 1:
            context.world.all_reduce(flags)
        return [rank for rank, value in enumerate(flags) if value]

    def _managed(self) -> bool:
        """True if the engine counts micro-batches; False if the caller sets the boundary."""
        return self.config.managed_accumulation and self._boundary is None

    def _samples(self) -> int:
        """Number of samples in the current accumulation."""
        if self.config.managed_accumulation:
            return self.config.train_batch_size or 0
        return max(self._backwards, 1) * (self.config.micro_batch_size or 0) * self.world_size

    def _set_divisor(self) -> None:
        divisor = self.gradient_accumulation_steps() * self.cur_scale
        if self.config.sums:
            divisor /= self.world_size  # by which gradients are divided in any case
        for unit in self.units:
            unit.gradients.divisor = divisor

    def is_gradient_accumulation_boundary(self) -> bool:
        """True if the next step() updates the params."""
        if self._coalesced:
            return True
        if self._boundary is not None:
            return self._boundary
        if not self.config.managed_accumulation:
            return True
        return self._accumulated + 1 >= self.gradient_accumulation_steps()

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        """Decides by hand whether the next step() updates, from now on.

        Raises StateError where the config leaves the boundary to the caller anyway: every step()
        updates then.
        """
        if not self.config.managed_accumulation:
            raise errors.StateError(
                "managed_gradient_accumulation is false: there is no boundary to set",
                operation="set_gradient_accumulation_boundary",
                advice="Call step() when the accumulation is complete.",
            )
        self._boundary = bool(is_boundary)

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Backward passes within add up on this rank, and are reduced once at the end of the block.
        Collective; blocks on peers at its end.

        The next step() updates the params, whatever the number of backward passes was; each is
        divided by the accumulation steps of the config, as always. It works at every stage
        (DeepSpeed's at 1 to 3). Sums are in f32: if a param has 16 bits, each backward at the
        stages 2 and 3 is reduced by itself, because this rank would add in 16 bits.

        Raises StateError within no_sync or another such block, with managed_gradient_accumulation
        false, or where gradients of the last block were not used by a step.
        """
        if not self.config.managed_accumulation:
            raise errors.StateError(
                "managed_gradient_accumulation is false: backward passes add up until step()",
                operation="coalesce_grad_reduction",
                advice="Leave coalesce_grad_reduction out.",
            )
        if self._coalesced:
            raise errors.StateError(
                "the gradients of the last coalesce_grad_reduction() were not used",
                operation="coalesce_grad_reduction",
                advice="Call engine.step() after each block, or engine.zero_grad().",
            )
        with self._reduced_at_each_backward() if self._adds_in_16_bits() else self.no_sync():
            yield
        if self.sharding.reducer.finish(self.units):
            self._coalesced = True

    def _adds_in_16_bits(self) -> bool:
        """True if this rank would add the gradients of a 16-bit param in 16 bits."""
        return not self.sharding.reducer.local and any(
            DTYPES[unit.handles[i].dtype_name].itemsize < 4
            for unit in self.units
            for i in unit.trainable
        )

    @contextlib.contextmanager
    def _reduced_at_each_backward(self) -> Iterator[None]:
        """As no_sync for the caller, whose step() raises within; gradients are reduced at once."""
        if self._unsynced:
            raise errors.StateError("coalesce_grad_reduction() within no_sync()")
        self._unsynced = True
        try:
            yield
        finally:
            self._unsynced = False

    def step_units(self, optimizer: torch.optim.Optimizer, units: list[ShardedUnit]) -> None:
        """One update by an optimizer that has some of the model's units, for models with several
        optimizers. Each call ends an accumulation; the scheduler is not stepped. Collective.

        Args:
            optimizer: an EngineOptimizer, or one that shard_optimizer has made run on shards.
            units: those that it updates, in one order on all ranks.

        Raises StateError: params are gathered, or under fp16 the loss was not scaled;
        UnsupportedError for one of several optimizers under a dynamic loss scale; NonFiniteError as
        `step`.
        """
        self._require_alive("step")
        self._require_one_scale(optimizer, units)
        self._require_sharded(units)
        if any(map(self.sharding.reducer.has_any, units)):
            self._note_scaling()
        self._require_scaled()
        before = self.optimizer, self.units, self.lr_scheduler
        self.optimizer, self.units, self.lr_scheduler = optimizer, units, None
        try:
            self._update(None)
        finally:
            self.optimizer, self.units, self.lr_scheduler = before
            if self._scales_dynamically:
                self._set_divisor()  # also of units that no optimizer has
            self.micro_steps += 1
            self._backwards = 0
            self._coalesced = False
            scaled = self._scaled
            self._end_micro_batch()
            # One backward may have given the gradients of several optimizers.
            self._scaled = scaled and any(map(self.sharding.reducer.has_any, self.units))

    def _require_one_scale(
        self, optimizer: torch.optim.Optimizer, units: list[ShardedUnit]
    ) -> None:
        alone = optimizer is self.optimizer or {u for u in self.units if u.trainable} <= {*units}
        if self._scales_dynamically and not alone:
            raise errors.UnsupportedError(
                f"step_units: {type(optimizer).__name__} is one of several optimizers, and its "
                "step would change the dynamic loss scale, by which gradients that wait for "
                "another one are scaled already",
                operation="step_units",
                subject="fp16.loss_scale",
                advice="Set fp16.loss_scale to a fixed value, or use bf16.",
            )

    def _require_sharded(self, units: list[ShardedUnit]) -> None:
        gathered = opened.keys() | generating
        held = [unit.name for unit in units if unit in gathered]
        if held:
            raise errors.StateError(
                f"step() while {', '.join(held[:8])} of the model are gathered",
                operation="step",
                subject=held[0],
                advice="Leave GatheredParameters or unwrap_model_for_generation first, or end "
                "all_gather by partition.",
            )

    def set_train_batch_size(self, train_batch_size: int) -> None:
        """Changes the accumulation steps so that a step takes that many samples.

        Raises StateError within an accumulation: its gradients are divided by one number.
        """
        self._require_alive("set_train_batch_size")
        check_samples(train_batch_size, "train_batch_size")
        begun = max(self._backwards, self._accumulated + self._backward_ran)
        if begun:
            raise errors.StateError(
                f"{begun} micro-batch(es) of an accumulation had their backward",
                operation="set_train_batch_size",
                advice="Change the batch size right after a step that updated the params.",
            )
        micro = self.config.micro_batch_size or 1
        steps, rest = divmod(train_batch_size, micro * self.world_size)
        if rest or steps < 1:
            raise errors.argument(
                f"train_batch_size {train_batch_size} is no multiple of {micro} x "
                f"{self.world_size} ranks",
                subject="train_batch_size",
            )
        self.config.accumulation_steps = steps
        self.config.train_batch_size = train_batch_size
        self._set_divisor()

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        """Changes what a step counts as samples. Batches themselves are the caller's."""
        check_samples(micro_batch_size, "micro_batch_size")
        self.config.micro_batch_size = micro_batch_size
        self.config.train_batch_size = (
            micro_batch_size * self.gradient_accumulation_steps() * self.world_size
        )

    def _require_wide_sums(self) -> None:
        asked = self.config.accumulation_dtype
        if asked is None or self.sharding.reducer.local:
            return
        for unit in self.units:
            for i in unit.trainable:
                if DTYPES[unit.handles[i].dtype_name].itemsize < asked.itemsize:
                    raise errors.UnsupportedError(
                        f"no_sync at stage {self.config.stage} adds up the gradients of "
                        f"{unit.name}.{unit.names[i]} in {unit.handles[i].dtype_name}, and "
                        "data_types.grad_accum_dtype is fp32",
                        subject="data_types.grad_accum_dtype",
                        advice="Leave no_sync out: each backward then adds to sums in fp32.",
                    )

    @contextlib.contextmanager
    def _last_backward(self) -> Iterator[None]:
        """Within, a backward that is known to be the last before a step ends the accumulation.

        Not at stages 0 and 1, where ranks may use different units.
        """
        reducer = self.sharding.reducer
        before = reducer.last
        known = self._managed() and not self._unsynced and not reducer.local
        reducer.last = known and self.is_gradient_accumulation_boundary()
        try:
            yield
        finally:
            reducer.last = before


def spelled_ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def check_samples(value: Any, name: str) -> None:
    """ArgumentError for what is no number of samples."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise errors.argument(f"{name} is {value!r}: it must be a whole number above 0", name)
