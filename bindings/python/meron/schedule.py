# SPDX-License-Identifier: Apache-2.0
"""The order in which a trainer uses its units, recorded and replayed.

`enter` and `leave` are called for every module of every pass: each is one call of the library, and
allocates no lasting memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from meron import errors
from meron._arguments import set_number
from meron._base_context import BaseContext
from meron._memory import as_array
from meron._methods import ScheduleMethods
from meron._native import (
    DEFAULT_TIMEOUT,
    Owner,
    call,
    ffi,
    initial,
    interrupts,
    lib,
    nanoseconds,
    new,
    settle,
    sized,
    whole,
)
from meron._values import ScheduleInfo
from meron.device import DeviceArray, Tier, stream_pointer, tier_code
from meron.gather import spare_slots, take_slot
from meron.param import Param
from meron.unit import Unit, unit_table

schedule_enter = lib.meron_schedule_enter
schedule_leave = lib.meron_schedule_leave

KINDS: int = lib.MERON_SCHEDULE_KINDS


class Schedule(ScheduleMethods, Owner):
    """Units, and the order in which passes use them. Made by `Context.schedule`.

        schedule.start_pass()               # a forward and backward
        for index, unit in enumerate(schedule.units):
            schedule.enter(index)           # full from here
            ... schedule.view(param) ...
            schedule.leave(index)           # to here
        schedule.drop()                     # before an optimizer's step

    A pass records the order of its uses, and the next pass of its kind follows it: gathers are
    prefetched, and units that are used again soon stay full. The calls alone determine the gathers,
    so ranks that make the same calls stay in step. Let one thread at a time use it.

    Attributes:
        units: the schedule's units; enter and leave take a unit's index in it.
    """

    _release_function = lib.meron_schedule_release

    def __init__(
        self,
        context: BaseContext,
        units: Iterable[Unit],
        tier: Tier = "host",
        stream: int = 0,
        **limits: int | None,
    ) -> None:
        self._context = context
        self.units: tuple[Unit, ...] = tuple(units)
        options = initial("meron_schedule_options")
        options.tier = tier_code(tier)
        options.stream = stream_pointer(stream)
        self._remote = tier == "device" and context._remote  # where NumPy cannot read
        for name, value in limits.items():
            if value is not None:
                set_number(options, name, value)
        table, count = unit_table(self.units)
        self._index = {unit: index for index, unit in enumerate(self.units)}
        self._receive("meron_schedule *", lib.meron_schedule_create, table, count, options)

    def __repr__(self) -> str:
        return f"<meron.Schedule of {len(self.units)} units>"

    def index(self, unit: Unit) -> int:
        """The index of a unit, for enter and leave; KeyError if it is not here."""
        return self._index[unit]

    def start_pass(self, kind: int = 0) -> None:
        """Starts a pass: the forward, and backward if there is one, of a micro-batch.

        Args:
            kind: 0 to 15; each has a recorded order of its own, e.g. 0 for training and 1 for
                evaluation.

        Releases prefetched units that were not used. Local; blocks if this rank is 1,024 calls
        ahead of a peer. Raises StateError if units are entered (see `reset`), ArgumentError.
        """
        call(lib.meron_schedule_start_pass, self._for_call(), whole(kind, "kind", 0, KINDS))

    def enter(self, index: int, timeout: float | None = None) -> bool:
        """Enters a unit: it is full until it was left as often as it was entered.

        Collective over the units' group where the unit is not full already.

        Args:
            index: of the unit in `units`.
            timeout: seconds; None waits until the operation's deadline.

        Returns:
            True when it is full; False after `timeout`: then it is not entered, and the next enter
            of the unit continues the same use.

        Blocks on peers if it is not full, and releases the GIL.

        Raises:
            StateError: the unit, or a prefetched one, is being updated. ArgumentError, StaleError,
            GroupError.
        """
        handle = self._handle
        if handle is None or self._context._lifetime is None:
            self._for_call()
        slot = take_slot()
        until = DEFAULT_TIMEOUT if timeout is None else nanoseconds(timeout)
        try:
            status = schedule_enter(handle, index, until, slot)
        except OverflowError:
            raise no_unit(index) from None
        if status or interrupts:
            settle(status, slot)
        spare_slots.append(slot)
        return not status

    def leave(self, index: int) -> None:
        """Leaves a unit once. Local; blocks if this rank is 1,024 calls ahead of a peer.

        Raises StateError when it is not entered.
        """
        handle = self._handle
        if handle is None or self._context._lifetime is None:
            self._for_call()
        slot = take_slot()
        try:
            status = schedule_leave(handle, index, slot)
        except OverflowError:
            raise no_unit(index) from None
        if status or interrupts:
            settle(status, slot)
        spare_slots.append(slot)

    def view(self, param: Param) -> Any:
        """The whole tensor of a param whose unit is entered, with the param's shape and dtype.

        A read-only array of memory that the ranks share, without a copy. Once its unit was left it
        shows whatever the memory holds by then, so do not keep it for longer. With tier "device"
        it is for work of the schedule's stream: a DeviceArray in a CUDA device's memory.

        Raises StateError when the unit is not entered, ArgumentError when it is not here. Never
        blocks.
        """
        view = new("meron_view *")
        call(lib.meron_schedule_view, view, self._for_call(), param._handle)
        if self._remote:
            address = int(ffi.cast("uintptr_t", view.data))
            return DeviceArray(address, param.shape, param.dtype_name, keep=self)
        return as_array(view, param.shape, param._keep())

    def info(self) -> ScheduleInfo:
        """Information about the schedule. Never blocks."""
        out = sized("meron_schedule_info")
        call(lib.meron_schedule_get_info, out, self._for_call())
        names = (field.name for field in dataclasses.fields(ScheduleInfo))
        return ScheduleInfo(*(getattr(out, name) for name in names))

    def release(self) -> None:
        """Releases the schedule and all that it holds; doing so twice is fine."""
        self.__del__()


def no_unit(index: int) -> errors.ArgumentError:
    return errors.argument(
        f"the schedule has no unit {index}", "index", "Give an index of `units`."
    )
