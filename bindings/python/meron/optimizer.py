# SPDX-License-Identifier: Apache-2.0
"""Update rules on this rank's shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from meron import errors
from meron._memory import Loans, as_part
from meron._native import Owner, call, initial, lib, new, receive, sized
from meron.future import Future
from meron.param import Param, Unit, unit_table

if TYPE_CHECKING:
    from meron.context import Context

STATES = {
    "master": lib.MERON_STATE_MASTER,
    "exp_avg": lib.MERON_STATE_EXP_AVG,
    "exp_avg_sq": lib.MERON_STATE_EXP_AVG_SQ,
}


class Optimizer(Owner):
    """States and update rule for the trainable params of some units. Made by `Context.adamw`.

    Attributes:
        units: the units that it updates.
    """

    _release_function = lib.meron_optimizer_release

    def __init__(self, context: Context, units: Iterable[Unit], **values: float) -> None:
        self._context = context
        self.units: tuple[Unit, ...] = tuple(units)
        options = initial("meron_optimizer_options")
        for name, value in values.items():
            setattr(options, name, value)
        table, count = unit_table(self.units)
        self._handle = receive(
            "meron_optimizer *", lib.meron_optimizer_create, table, count, options
        )
        self._loans = Loans()

    def __repr__(self) -> str:
        return f"<meron.Optimizer of {len(self.units)} units>"

    def step(self) -> None:
        """Takes a step and waits for its end: norm, clipping, update, publication.

        Needs the reduced gradient of every unit, and no gather of any of them on this rank.
        Collective over the units' group; blocks on peers, with the GIL given up.

        Raises:
            StateError: names the unit that is gathered or not reduced.
            NonFiniteError: the gradients hold NaN or infinity, on all ranks: nothing was changed,
            the gradients are discarded.
            GroupError.
        """
        self.step_begin().wait()

    def step_begin(self) -> Future:
        """Begins a step; NonFiniteError comes from the future's wait."""
        self._context._require_open()
        future = receive("meron_future *", lib.meron_optimizer_step_begin, self._handle)
        self._loans.end()
        for unit in self.units:
            unit._reduced.end()
        return Future(self._context, future)

    @property
    def lr(self) -> float:
        """The learning rate of the next steps; set it to the same value on all ranks."""
        return float(self._info().learning_rate)

    @lr.setter
    def lr(self, value: float) -> None:
        self._context._require_open()
        call(lib.meron_optimizer_set_learning_rate, self._handle, value)

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return int(self._info().steps)

    @property
    def norm(self) -> float:
        """The global 2-norm of the last step's gradients, before clipping."""
        return float(self._info().norm)

    def state(self, param: Param, name: str) -> npt.NDArray[Any]:
        """This rank's part (`param.owned`) of a state, a flat float32 array, in place.

        Args:
            name: "exp_avg", "exp_avg_sq", or "master" (the f32 values; the param itself, and then
                read-only, where that is f32).

        Valid until the next step. Not to be called during a step. Raises ArgumentError for a param
        that this optimizer does not have. Never blocks.
        """
        if name not in STATES:
            raise errors.argument(f"unknown state {name!r}: {', '.join(STATES)} are known")
        lifetime = self._context._require_open()
        view = new("meron_view *")
        call(lib.meron_optimizer_state_view, view, self._handle, param._handle, STATES[name])
        return self._loans.add(as_part(view, lifetime))

    def _info(self) -> Any:
        self._context._require_open()
        info = sized("meron_optimizer_info")
        call(lib.meron_optimizer_get_info, info, self._handle)
        return info
