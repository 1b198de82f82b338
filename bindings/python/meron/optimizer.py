# SPDX-License-Identifier: Apache-2.0
"""Update rules on this rank's shards."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from meron import errors
from meron._arguments import set_number
from meron._base_context import BaseContext
from meron._by_name import find, named_params
from meron._dropped import STEP
from meron._interrupts import Interrupts
from meron._loans import Loans
from meron._methods import OptimizerMethods
from meron._native import (
    NULL,
    Owner,
    call,
    defaults_of,
    ffi,
    lib,
    new,
    receive,
    refuse_unknown,
    sized,
)
from meron._values import OPTIMIZER_STATES as STATES
from meron._values import OptimizerState
from meron.dtypes import as_float32
from meron.future import Future
from meron.param import Param, handles_of
from meron.unit import Unit, unit_table


@dataclass(frozen=True)
class OptimizerGroup:
    """Options that the params of one group share. An update rule may use only some of them."""

    lr: float
    betas: tuple[float, float]  # SGD: the first is the momentum, 0 in all groups or in none
    eps: float
    weight_decay: float
    lr_decay: float = 0.0  # of Adagrad


class Optimizer(OptimizerMethods, Owner):
    """States and update rule for the trainable params of some units.

    Made by `Context.adamw`, `adam`, `adagrad`, `lion` and `sgd`. Params are in groups: at first all
    in group 0, whose numbers those functions take.

    Attributes:
        units: the units that it updates.
    """

    _release_function = lib.meron_optimizer_release
    __setattr__ = refuse_unknown
    units: tuple[Unit, ...]

    def __init__(
        self, context: BaseContext, units: Iterable[Unit], kind: int, **values: Any
    ) -> None:
        context._require_open()
        self._context = context
        self.units = tuple(units)
        options = defaults_of(kind)
        if "betas" in values:
            options.beta1, options.beta2 = two_betas(values.pop("betas"))
        for name, value in values.items():
            set_number(options, name, value)
        self._max_norm = float(options.max_norm)
        self._loans = Loans()
        context._state_loans.add(self._loans)
        self._step: Future | None = None  # of `step`, until a wait has seen its end
        table, count = unit_table(self.units)
        self._receive("meron_optimizer *", lib.meron_optimizer_create, table, count, options)

    def __repr__(self) -> str:
        return f"<meron.Optimizer of {len(self.units)} units>"

    def step(self) -> None:
        """Takes a step and waits for its end: norm, clipping, update, publication.

        Needs the reduced gradient of every unit, and no gather of any of them on this rank.
        Collective over the units' group; blocks on peers, and releases the GIL. Ctrl-C ends the
        wait, not the step: `wait_step` continues to wait for it.

        Raises:
            StateError: names the unit that is gathered or not reduced, or the array of `state` or
            `Unit.reduced` from which one that is still alive was derived.
            NonFiniteError: on all ranks. The gradients hold NaN or infinity, or the step would
            make a state infinite or a value too large for its dtype. Nothing was changed, and the
            gradients are discarded.
            GroupError.
        """
        future = Future(self._context)
        try:
            self._begin_step(future)
        finally:
            if future._has_begun():
                self._step = future
        self.wait_step()

    def wait_step(self, timeout: float | None = None) -> bool:
        """Waits for the end of a `step` whose wait was interrupted by Ctrl-C or should_stop.

        Args:
            timeout: seconds; None waits until the step's own deadline.

        Returns:
            True if no such step is under way, False after `timeout`; it continues.

        Blocks on peers, and releases the GIL. Raises the errors of `step`, once for each step.
        """
        step = self._step
        if step is None:
            return True
        try:
            ended = step.wait(timeout)
        except errors.CancelledError:
            raise  # should_stop ended the wait
        except errors.Error:
            self._step = None
            raise
        if ended:
            self._step = None
        return ended

    def step_begin(self) -> Future:
        """Begins a step; the future's wait raises NonFiniteError. Other errors as `step`.

        If the future is dropped, the next call that begins an operation waits for the step, and
        raises its error.
        """
        future = Future(self._context)
        self._begin_step(future)
        return future

    def _begin_step(self, future: Future) -> None:
        """Begins a step, or raises. After an interrupt the future says whether it has begun."""
        self._context._require_open()
        self._require_returned()
        future._called = STEP
        try:
            future._begin(lib.meron_optimizer_step_begin, self._handle)
        finally:
            if future._has_begun():
                self._loans.end()
                for unit in self.units:
                    unit._reduced.end()

    def _require_returned(self) -> None:
        """StateError if something is alive that could write states or gradients in a step."""
        self._loans.require_returned("the optimizer cannot step")
        for unit in self.units:
            unit._reduced.require_returned("the optimizer cannot step")

    def _step_to_its_end(self) -> None:
        """As `step`, but an interrupt is raised when the step has ended. A second one is raised at
        once, and leaves the step to `wait_step`."""
        interrupts = Interrupts()
        future = Future(self._context)
        try:
            self._begin_step(future)
        except BaseException as error:
            if not future._has_begun():
                raise
            interrupts.keep(error)  # Python's own signal handler raised it behind the call
        self._step = future
        interrupts.wait(self.wait_step)
        interrupts.raise_first()

    @property
    def lr(self) -> float:
        """The learning rate of group 0 in the next steps; set it alike on all ranks."""
        return float(self._info().learning_rate)

    @lr.setter
    def lr(self, value: float) -> None:
        self._context._require_open()
        call(lib.meron_optimizer_set_learning_rate, self._handle, value)

    @property
    def steps(self) -> int:
        """Number of steps that were taken, counted from the number that was set.

        Set it to the same number on all ranks, for this optimizer and all of its params, when an
        optimizer continues from a checkpoint, beside its states. Adam's bias corrections, the first
        step of SGD with a momentum and the random rounding of states in 16 or 8 bits depend on it.
        Raises ArgumentError for one below 0 or above 2^53, StateError (a step is under way).
        """
        return int(self._info().steps)

    @steps.setter
    def steps(self, value: int) -> None:
        self._context._require_open()
        call(lib.meron_optimizer_set_steps, self._handle, checked_steps(value))

    def skip(self, params: Iterable[Param | str]) -> None:
        """Makes the next steps leave some params as they are, and no others.

        Their values, states and counts of steps stay, like those of a torch.optim param whose
        gradient is None. Gradients of skipped params still count in `norm`. States in 8 bits are
        rounded anew if they share a block with a param that is not skipped. All ranks give the same
        params before the next step.

        Args:
            params: that this optimizer trains, or their names; none: the next steps skip no param.

        Raises ArgumentError, StateError (a step is under way). Never blocks.
        """
        self._context._require_open()
        handles = handles_of(map(self._find, params), Param)
        table = new("meron_param[]", handles) if handles else NULL
        call(lib.meron_optimizer_set_skipped, self._handle, table, len(handles))

    def param_steps(self, param: Param | str) -> int:
        """Returns the number of steps that a param has taken.

        These are the optimizer's, without the steps that skipped the param. Raises ArgumentError
        for a param that this optimizer does not train. Never blocks.
        """
        self._context._require_open()
        handle = self._find(param)._handle
        return int(receive("uint64_t *", lib.meron_optimizer_param_steps, self._handle, handle))

    def set_param_steps(self, param: Param | str, steps: int) -> None:
        """Sets the number of steps that one param has taken, the same on all ranks.

        For states that begin anew (0, beside `write_state` of zeros) or come from elsewhere.
        Setting `steps` resets it. Raises ArgumentError for a number below 0 or above 2^53 and for a
        param that this optimizer does not train, StateError (a step is under way). Never blocks.
        """
        self._context._require_open()
        call(
            lib.meron_optimizer_set_param_steps,
            self._handle,
            self._find(param)._handle,
            checked_steps(steps),
        )

    @property
    def max_norm(self) -> float:
        """The norm that the next steps clip gradients to; 0: none. Set it alike on all ranks."""
        return self._max_norm

    @max_norm.setter
    def max_norm(self, value: float) -> None:
        self.set_max_norm(value)

    def set_max_norm(self, max_norm: float) -> None:
        super().set_max_norm(max_norm)
        self._max_norm = float(max_norm)

    set_max_norm.__doc__ = OptimizerMethods.set_max_norm.__doc__

    @property
    def norm(self) -> float:
        """The global 2-norm of the last step's gradients, before clipping."""
        return float(self._info().norm)

    @property
    def groups(self) -> int:
        """How many optimizer groups there are, at least 1."""
        return int(self._info().groups)

    @property
    def states(self) -> int:
        """How many states the rule keeps of an element, besides the master."""
        return int(self._info().states)

    @property
    def nvme_bytes(self) -> int:
        """Bytes of this rank's states on tier nvme."""
        return int(self._info().nvme_bytes)

    @property
    def offloaded_bytes(self) -> int:
        """Bytes of this rank's states that `offload` has moved off memory."""
        return int(self._info().offloaded_bytes)

    def offload(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Moves this rank's states from memory to its file on a drive, and gives their memory back.

        For a phase that needs the memory for something else, as DeepSpeed's offload_states.
        Params can be gathered meanwhile; `reload` before the next step. Views of states end.
        Blocks on this rank's drive, never on peers.

        Args:
            folder: on a drive; None for the plan's nvme.path, or where this rank's file is already.

        Raises ArgumentError (no folder, one that will not do), StateError (a step is under way,
        they are offloaded), NoSpaceError, InputOutputError: they are where they were then.
        """
        self._loans.require_returned("states cannot be offloaded")
        path = ffi.NULL if folder is None else os.fsencode(folder)
        call(lib.meron_optimizer_offload, self._handle, path)
        self._loans.end()

    # ---- Optimizer groups ----------------------------------------------------------------------

    def add_group(
        self,
        params: Iterable[Param | str],
        *,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        lr_decay: float | None = None,
    ) -> int:
        """Gives some params numbers of their own, for example no weight decay.

        All ranks must do the same before the next step.

        Args:
            params: that this optimizer trains, or their names; none is in a group that was added.
            lr, betas, eps, weight_decay: as in `Context.adamw`; None is what group 0 has now.
            lr_decay: as in `Context.adagrad`.

        Returns:
            The group's number: 1, 2, ...

        Raises ArgumentError, DuplicateError (a param is in a group already), StateError (a step is
        under way). Blocks while another thread begins an operation.
        """
        group = self._changed_group(0, lr, betas, eps, weight_decay, lr_decay)
        handles = handles_of(map(self._find, params), Param)
        table = new("meron_param[]", handles) if handles else NULL
        return int(
            receive(
                "uint32_t *",
                lib.meron_optimizer_add_group,
                self._handle,
                table,
                len(handles),
                group,
            )
        )

    def group(self, number: int) -> OptimizerGroup:
        """The numbers of a group: 0, or one that `add_group` gave.

        Raises ArgumentError for another one. Never blocks.
        """
        out = self._raw_group(number)
        return OptimizerGroup(
            out.learning_rate,
            (out.beta1, out.beta2),
            out.epsilon,
            out.weight_decay,
            out.lr_decay,
        )

    def set_group(
        self,
        number: int,
        *,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        lr_decay: float | None = None,
    ) -> None:
        """Sets numbers of a group for the next steps, the same on all ranks; None leaves one.

        Raises ArgumentError. Never blocks.
        """
        group = self._changed_group(number, lr, betas, eps, weight_decay, lr_decay)
        call(lib.meron_optimizer_set_group, self._handle, number, group)

    def _raw_group(self, number: int) -> Any:
        self._context._require_open()
        out = sized("meron_optimizer_group")
        call(lib.meron_optimizer_get_group, out, self._handle, group_number(number))
        return out

    def _changed_group(
        self,
        number: int,
        lr: float | None,
        betas: tuple[float, float] | None,
        eps: float | None,
        weight_decay: float | None,
        lr_decay: float | None,
    ) -> Any:
        """The numbers of a group for the library, with what is not None instead of its own."""
        raw = self._raw_group(number)
        if betas is not None:
            raw.beta1, raw.beta2 = two_betas(betas)
        for name, value in (
            ("learning_rate", lr),
            ("epsilon", eps),
            ("weight_decay", weight_decay),
            ("lr_decay", lr_decay),
        ):
            if value is not None:
                set_number(raw, name, value)
        return raw

    # ---- States --------------------------------------------------------------------------------

    def state(self, param: Param | str, name: OptimizerState) -> npt.NDArray[Any]:
        """This rank's shard (`param.shard_range`) of a state, a flat float32 array, in place.

        Args:
            param: that this optimizer trains, or its name.
            name: "exp_avg", "exp_avg_sq", or "master" (the f32 values; the param itself, and then
                read-only, where that is f32).

        Valid until the next step, which makes it read-only. Delete slices and reshapes of it before
        that, and the array itself before a save, an export or a load. Do not call it during a step.

        Blocks until a save has copied the states, and while another thread exports or loads. Raises
        ArgumentError for a param that this optimizer does not have, or a state that its rule does
        not keep; UnsupportedError for states on nvme, or of 16 or 8 bits: `read_state` copies
        these.
        """
        view = new("meron_view *")
        code = state_code(name)
        param = self._find(param)
        keep = (self, *param._keep())
        asked = f"optimizer.state({param.name!r}, {name!r})"
        with self._context._states:
            call(lib.meron_optimizer_state_view, view, self._handle, param._handle, code)
            if view.writable:  # what is written now is not of the save's moment
                self._context._wait_copied()
            return self._loans.lend(view, (view.count,), keep, asked)

    def read_state(self, param: Param | str, name: OptimizerState) -> npt.NDArray[np.float32]:
        """A copy of this rank's shard (`param.shard_range`) of a state, of any tier and dtype.

        Args:
            name: as for `state`.

        Returns:
            A flat float32 array of the caller's.

        Blocks on this rank's drive for states on nvme, and releases the GIL meanwhile. Raises
        ArgumentError as `state`, StateError (a step is under way), InputOutputError, CorruptError.
        """
        code = state_code(name)
        self._context._require_open()
        param = self._find(param)
        out = np.empty(len(param.shard_range), np.float32)
        call(
            lib.meron_optimizer_read_state,
            ffi.cast("float *", out.ctypes.data) if out.size else NULL,
            out.size,
            self._handle,
            param._handle,
            code,
        )
        return out

    def write_state(self, param: Param | str, name: OptimizerState, values: npt.ArrayLike) -> None:
        """Replaces this rank's shard (`param.shard_range`) of a state.

        Args:
            name: as for `state`, but no "master" that is the param itself: write that through an
                update.
            values: as many real numbers as `param.shard_range` has, within the range of f32. States
                of 16 or 8 bits are rounded to nearest.

        Blocks and raises as `read_state`.
        """
        code = state_code(name)
        self._context._require_open()
        param = self._find(param)
        data = as_float32(values, f"{name} of {param.name}")
        call(
            lib.meron_optimizer_write_state,
            self._handle,
            param._handle,
            code,
            ffi.cast("const float *", data.ctypes.data) if data.size else NULL,
            data.size,
        )

    def _find(self, key: Param | str) -> Param:
        return find(key, lambda: named_params(self.units), self)

    def _info(self) -> Any:
        self._context._require_open()
        info = sized("meron_optimizer_info")
        call(lib.meron_optimizer_get_info, info, self._handle)
        return info


def two_betas(betas: tuple[float, float]) -> tuple[float, float]:
    if len(betas) != 2:
        raise errors.argument(f"betas are two numbers, not {len(betas)}: {betas!r}", "betas")
    return betas


def checked_steps(value: int) -> int:
    if not 0 <= value < 1 << 64:
        raise errors.argument(f"steps is {value}", subject="steps")
    return value


def state_code(name: OptimizerState) -> int:
    if name not in STATES:
        raise errors.argument(f"unknown state {name!r}: {', '.join(STATES)} are known")
    return STATES[name]


def group_number(number: int) -> int:
    if not 0 <= number < 1 << 32:
        raise errors.argument(f"there is no optimizer group {number}")
    return number
