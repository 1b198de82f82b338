# SPDX-License-Identifier: Apache-2.0
"""Torch optimizers whose rule and states are the engine's: their params, groups and steps.

An engine's optimizer updates whole units. Each param group of torch is one of the engine's; numbers
of a group may change between steps, by a scheduler too, and are handed on when a step begins.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Union

import torch

import meron
from meron import errors
from meron._call_names import calling
from meron.torch.api import require_units
from meron.torch.guard import plain
from meron.torch.optim import groups
from meron.torch.optim.agreement import require_same
from meron.torch.optim.packed import agreed_states, first_values, pack_states, set_counts
from meron.torch.optim.replacement import (
    ended,
    engine_optimizers,
    refuse_taken,
    replaced_by,
    torch_optimizers,
    wanted_by,
)
from meron.torch.optim.shards import check_alone, check_covered
from meron.torch.optim.states import read_state, write_state
from meron.torch.sharding import sharding_with, unit_of
from meron.torch.torch_internals import run_eagerly
from meron.torch.unit import ShardedUnit

logger = logging.getLogger("meron.torch")

# A sharded module, or what optimizers of torch take.
Params = Union[
    torch.nn.Module,
    "Iterable[torch.Tensor]",
    "Iterable[dict[str, Any]]",
    "Iterable[tuple[str, torch.Tensor]]",
]
Numbers = dict[str, Any]  # of a group, as meron.Optimizer.set_group takes them


class EngineOptimizer(torch.optim.Optimizer):
    """Base of AdamW, Adam, Adagrad, Lion and SGD of meron.torch.

    The engine updates all params of a unit together. If some params have a gradient, and others
    have none on any rank, the gradient of these is zero. If no param has one, a step changes
    nothing.
    A step skips params that do not require gradients when it begins, and trainable params of those
    units that are in no group: their values, states and counts of steps do not change. Gradients of
    params in no group count in `grad_norm`.

    All ranks create it, change it and step in the same way. As in torch, calls come from one thread
    at a time.

    Attributes:
        sharded: the units that it updates.
        max_norm: the global 2-norm that gradients are scaled to at most; 0 does not clip.
    """

    _meron_on_shards = True
    # The rule's states: torch's name, the engine's.
    state_names: ClassVar[dict[str, str]] = {}
    # The engine's names of numbers, torch's.
    number_names: ClassVar[dict[str, str]] = {
        "learning_rate": "lr",
        "beta1": "betas[0]",
        "beta2": "betas[1]",
        "epsilon": "eps",
        "weight_decay": "weight_decay",
    }
    # Keys whose values are restricted over all groups, with the restriction as errors name it.
    common: ClassVar[dict[str, str]] = {}

    def __init__(self, params: Params, defaults: dict[str, Any], max_norm: float) -> None:
        self._max_norm = max_norm
        self._native: meron.Optimizer | None = None
        self._end = ""  # why it has no engine, once it had one
        self._ready = False
        self._told = False
        self._idle = False  # True if the last step had no gradient on any rank
        super().__init__(params_of(params), defaults)
        self.sharded = self._units()
        self.sharding = sharding_with(self.sharded[0])
        self._replace_others()
        self._make_engine()
        self._ready = True

    # ---- For subclasses: the rule --------------------------------------------------------------

    def create(self, units: list[meron.Unit], group: dict[str, Any]) -> meron.Optimizer:
        """The engine's optimizer, with the numbers of `group`. Collective."""
        raise NotImplementedError

    def numbers(self, group: dict[str, Any]) -> Numbers:
        """The numbers of a group, by the engine's names."""
        raise NotImplementedError

    def initial_states(self, _group: dict[str, Any]) -> dict[str, float]:
        """States that are not zero at first, by torch's name."""
        return {}

    def has_states(self, _group: dict[str, Any]) -> bool:
        return True

    def common_of(self, group: dict[str, Any]) -> dict[str, Any]:
        """The values of one group that must be equal in all groups."""
        return {key: group[key] for key in self.common}

    # ---- Its engine ----------------------------------------------------------------------------

    @property
    def engine(self) -> meron.Optimizer:
        """The meron.Optimizer, which owns the states. StateError once it was released, or another
        optimizer has replaced this one."""
        if self._native is None:
            raise ended(self._name(), self._end)
        return self._native

    @property
    def released(self) -> bool:
        """True if it has no engine any more, and cannot step."""
        return self._native is None

    def replace(self, by: str) -> None:
        """Releases the units to an optimizer of the class `by`. Calls of this one raise StateError
        from now on. Blocks on peers if a step is under way, and on this rank's drive."""
        self.wait_step()
        self.release(replaced_by(by))

    def _replace_others(self) -> None:
        """Replaces the optimizers that have params of the same units. If this one cannot be made
        of its numbers, they stay."""
        params = [param for group in self.param_groups for param in group["params"]]
        wanted = wanted_by(params)
        others = engine_optimizers(self._name(), wanted)
        check_alone(params, None)
        others += torch_optimizers(wanted)
        if not others:
            return
        units = [unit.unit for unit in self.sharded]
        for number, group in enumerate(self.param_groups):
            # The engine looks at the numbers before it looks for another optimizer.
            with self._named(number), contextlib.suppress(errors.DuplicateError):
                self.create(units, group).__del__()
        for other in others:
            other.replace(self._name())

    # ---- Params and groups ---------------------------------------------------------------------

    @property
    def max_norm(self) -> float:
        """Gradients are scaled to at most this 2-norm over all params and ranks; 0: no clipping.

        Set it alike on all ranks. ArgumentError for a number below 0 or not finite.
        """
        return self._max_norm

    @max_norm.setter
    def max_norm(self, value: float) -> None:
        self.engine.set_max_norm(value)
        self._max_norm = value

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, as torch's. All ranks must do so before the next step.

        Its params are of units that the optimizer updates already and were in no group; before the
        first step they may be of others, and it is collective then.

        Raises ArgumentError for params that are not sharded, UnsupportedError for options that the
        engine lacks and for params of other units after a step; ValueError as torch's. They name
        the group, and it is not added.
        """
        if self._ready:
            self._require_engine()
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        try:
            if self._ready:
                self.wait_step()
            where = f"param group {number} of {self._name()}: "
            groups.check_numbers(where, self.param_groups[number])
            self._check_group(number)
            for param in self.param_groups[number]["params"]:
                first = next(p for g in self.param_groups for p in g["params"])
                groups.check_param(self._name(), number, param, first)
            if self._ready:
                self._take_group(number)
        except BaseException:
            self.param_groups.pop()
            raise

    def _check_group(self, number: int) -> None:
        """The options of a group that are no numbers of the engine's groups."""
        group = self.param_groups[number]
        groups.refuse_options(self._name(), number, group)
        ignored = groups.without_effect(group)
        if ignored and not self._told:
            self._told = True
            logger.info("%s: %s without effect", self._name(), ", ".join(ignored))
        common = self._made_with if self._ready else self.common_of(self.param_groups[0])
        own = self.common_of(group)
        groups.refuse_others(self._name(), number, group, self.common, own, common)

    def _units(self) -> list[ShardedUnit]:
        """The trainable units of all groups, in the order in which they were made."""
        found: dict[ShardedUnit, None] = {}
        for group in self.param_groups:
            for param in group["params"]:
                place = unit_of(param)
                assert place is not None
                if place[1] in place[0].trainable:
                    found[place[0]] = None
        if not found:
            raise errors.argument(
                f"{self._name()} was given no trainable param", advice="Let some require gradients."
            )
        return sorted(found, key=lambda unit: unit.index)

    @staticmethod
    def _trainable(group: dict[str, Any]) -> list[tuple[ShardedUnit, int]]:
        places = [place for place in map(unit_of, group["params"]) if place is not None]
        return [(unit, i) for unit, i in places if i in unit.trainable]

    def _take_group(self, number: int) -> None:
        """The engine learns of a group that was added. Collective where its units are new."""
        group = self.param_groups[number]
        new = [place for place in self._trainable(group) if place[0] not in self.sharded]
        if new:
            name = groups.name_of(*new[0])
            where = f"param group {number} of {self._name()} has '{name}'"
            if self.steps:
                raise errors.UnsupportedError(
                    f"{where}, of a unit that no group had before the first step",
                    subject=name,
                    advice="Give its params from the start, in a group with lr=0.",
                )
            refuse_taken(where, dict.fromkeys(unit for unit, _ in new))
            before = self.sharded
            self.release()
            try:
                self.sharded = self._units()
                self._make_engine()
            except BaseException:
                self.param_groups.pop()
                self.sharded = before
                self._make_engine()
                self.param_groups.append(group)
                raise
            return
        with self._named(number):
            self._add_to_engine(group)
        self._begin_states(group)

    def _make_engine(self) -> None:
        """An engine's optimizer for the units and groups, with its first states. Collective."""
        first = self.param_groups[0]
        self._made_with = self.common_of(first)
        name, context = self._name(), self.sharding.context
        require_same(context, name, self.param_groups, list(self.defaults), self._max_norm)
        with calling(f"mt.{name}"), self._named(0), self._numbers_of_mismatch():
            self._native = self.create([unit.unit for unit in self.sharded], first)
        try:
            self._furnish()
        except BaseException:
            self._release_engine()
            raise

    def _furnish(self) -> None:
        """Groups and first states of a new optimizer of the engine. Local."""
        # Each group has the same number as the engine's. The engine's group 0 also has the params
        # that are in no group, which steps skip.
        self._set_numbers: list[Numbers] = [{}]
        self._skipped: list[tuple[ShardedUnit, int]] = []
        for number, group in enumerate(self.param_groups[1:], 1):
            with self._named(number):
                self._add_to_engine(group)
        for unit in self.sharded:
            for i, values in unit.masters.items():
                write_state(self, unit, i, "master", values)
            unit.masters.clear()
            unit.optimizer = weakref.ref(self)
        self._grouped: set[tuple[ShardedUnit, int]] = set()
        for group in self.param_groups:
            self._begin_states(group)

    def _begin_states(self, group: dict[str, Any]) -> None:
        places = self._trainable(group)
        self._grouped.update(places)
        for key, value in self.initial_states(group).items():
            for unit, i in places:
                write_state(self, unit, i, key, first_values(unit, i, value))

    def _add_to_engine(self, group: dict[str, Any]) -> None:
        handles = [unit.handles[i] for unit, i in self._trainable(group)]
        numbers = self.numbers(group)
        self.engine.add_group(handles, **numbers)
        self._set_numbers.append(numbers)

    def release(self, end: str = "was released") -> None:
        """Releases the engine's optimizer and its states. The f32 values of 16-bit params stay with
        their units, for another optimizer. Local; blocks on this rank's drive. Does nothing if that
        was done.

        `end` says what happened, for errors of later calls.
        """
        if self._native is None:
            return
        for unit in self.sharded:
            for i in unit.trainable:
                if unit.handles[i].dtype_name != "f32":
                    unit.masters[i] = read_state(self, unit, i, "master")
        self._release_engine(end)

    def _release_engine(self, end: str = "was released") -> None:
        engine, self._native = self._native, None
        self._end = end
        if engine is not None:
            engine.__del__()  # now: an error that somebody keeps may hold it

    def _require_engine(self) -> None:
        """StateError if it has no engine any more."""
        if self._native is None:
            raise ended(self._name(), self._end)

    def _hand_on(self) -> None:
        """Tells the engine what changed in the groups."""
        for number, group in enumerate(self.param_groups):
            self._check_group(number)
            numbers = self.numbers(group)
            if numbers != self._set_numbers[number]:
                with self._named(number):
                    self.engine.set_group(number, **numbers)
                self._set_numbers[number] = numbers
        with plain():
            skipped = [
                (unit, i)
                for unit in self.sharded
                for i in unit.trainable
                if (unit, i) not in self._grouped or not unit.params[i].requires_grad
            ]
        if skipped != self._skipped:
            self.engine.skip([unit.handles[i] for unit, i in skipped])
            self._skipped = skipped

    def _named(self, number: int) -> contextlib.AbstractContextManager[None]:
        return groups.named(f"param group {number} of {self._name()}: ", self.number_names)

    @contextlib.contextmanager
    def _numbers_of_mismatch(self) -> Iterator[None]:
        """Adds this rank's numbers to the error of ranks that call with different ones: the
        engine's message names the calls alone."""
        try:
            yield
        except errors.MismatchError as error:
            own = [f"max_norm {self.max_norm:g}"]
            for number, group in enumerate(self.param_groups):
                values = ", ".join(f"{key} {group[key]}" for key in self.defaults if key in group)
                own.append(f"param group {number}: {values}")
            raise errors.MismatchError(
                f"{error.message.rstrip('.')}. On this rank {self._name()} has {'; '.join(own)}",
                operation=error.operation,
                subject=error.subject,
                advice=error.advice,
                rank=error.rank,
                peer=error.peer,
            ) from error

    def _name(self) -> str:
        return type(self).__name__

    # ---- Steps ---------------------------------------------------------------------------------

    @property
    def grad_norm(self) -> float:
        """The global 2-norm of the last step's gradients, before clipping. 0 if no rank had one."""
        return 0.0 if self._idle else float(self.engine.norm)

    @property
    def steps(self) -> int:
        """Number of steps that were taken, with those of the checkpoint that was loaded. A param
        that steps skipped has taken fewer: "step" of its state in state_dict."""
        return self.engine.steps

    @run_eagerly
    def step(self, closure: Any = None) -> Any:
        """One step with the groups as they are now; publishes the new values. Collective; blocks on
        peers, and on this rank's drive if states reside there. Returns the result of `closure`.

        If no rank has a gradient, nothing changes, as with torch's optimizers: no weight decay, no
        momentum, and `steps` does not count the step. `grad_norm` is 0 then.

        Ctrl-C is raised when the step has ended, as its peers complete it. A second one is raised
        at once; the next call that needs the step's values waits for it, and so does `wait_step`.

        Raises ArgumentError and UnsupportedError that name a group and its key, and StateError that
        names a param that is in use, or was written to then: nothing was changed, gradients stay.
        NonFiniteError on all ranks when the gradients hold NaN or infinity: nothing was changed,
        and the gradients are dropped.
        """
        self._require_engine()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.wait_step()
        self._hand_on()
        reducer = self.sharding.reducer
        self._idle = not reducer.finish(self.sharded)
        if self._idle:
            return loss
        reducer.finish_rest(self.sharded)
        self.sharding.drop(self.sharded)
        begun = True
        try:
            with self._end_of_step(), self._numbers_of_mismatch():
                self.engine._step_to_its_end()
        except errors.StateError:  # the engine has the gradients still
            begun = False
            raise
        finally:
            for unit in self.sharded if begun else ():
                reducer.used([unit])
                unit.masters.clear()  # what was set since then, and has changed now
        return loss

    @contextlib.contextmanager
    def _end_of_step(self) -> Iterator[None]:
        """Around a wait for the engine's step. If the step has ended and the group is whole, even
        by an error, units are held anew."""
        self.sharding.unfinished = None
        try:
            yield
        except (errors.NonFiniteError, errors.CancelledError):
            self._hold_or_leave()
            raise
        except errors.Error:
            raise
        except BaseException:  # of a signal's handler
            self._hold_or_leave()
            raise
        self._hold_or_leave()

    def _hold_or_leave(self) -> None:
        if self.engine._step is None:
            self.sharding.hold(self.sharded)
        else:  # a second interrupt ended the wait
            self.sharding.unfinished = self._wait_for_the_rest

    def _wait_for_the_rest(self) -> None:
        with self._end_of_step():
            self.engine.wait_step()

    def wait_step(self) -> None:
        """Waits for a step that a second Ctrl-C has left under way; does nothing if there is none.
        Blocks on peers. Raises the errors of `step`, once for each step."""
        self.sharding.finish_step()

    @run_eagerly
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops gradients. All ranks must do so."""
        self._require_engine()
        self.sharding.reducer.discard(self.sharded)

    # ---- Checkpoints ---------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """In torch's shape: `state` by number of the param, and `param_groups`.

        States are copies of this rank's shards, flat, f32, as with shard_optimizer; "step" is the
        number of steps that the param has taken, and "master" has the f32 values of 16-bit params.
        None before the first step. Local; blocks on this rank's drive if states reside there.
        """
        return self._packed(whole=False)

    def full_state_dict(self) -> dict[str, Any]:
        """As state_dict, with unsharded tensors of the params' shapes, on every rank: for any
        number of ranks, and for the optimizer of torch that has the rule. Collective; blocks on
        peers."""
        return self._packed(whole=True)

    def _packed(self, whole: bool) -> dict[str, Any]:
        self.wait_step()
        try:
            if self.steps:
                pack_states(self, whole)
            return super().state_dict()
        finally:
            self.state.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over the groups and states of state_dict, full_state_dict, or torch's class.

        Collective; blocks on peers and drives as `step`. Load a model of 16-bit params first, as
        that sets their f32 values too. Gradients are dropped. With states in f32 the next step has
        the bits that it would have had where the checkpoint was made; with bf16 too, where units
        have the same names; states in 8 bits are rounded anew.

        Raises ArgumentError naming a param and its state that does not fit, ValueError as torch's
        where groups do not fit: nothing was changed.
        """
        self._require_engine()
        self.wait_step()
        states, counts = agreed_states(self, state_dict)
        super().load_state_dict({**state_dict, "state": {}})
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
        self.sharding.reducer.discard(self.sharded)
        if self.common_of(self.param_groups[0]) != self._made_with:
            self.release()
            self._make_engine()
        set_counts(self, counts)
        for unit, i, key, values in states:
            write_state(self, unit, i, key, values)


def params_of(given: Params) -> Any:
    """The params for torch's Optimizer. Of a module, these are its trainable params."""
    if not isinstance(given, torch.nn.Module):
        return given
    units = [unit for unit in require_units(given) if unit.trainable]
    check_covered(given)
    return [unit.params[i] for unit in units for i in unit.trainable]
