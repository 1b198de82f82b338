# SPDX-License-Identifier: Apache-2.0
"""The engine's schedule over all units of a context, for params in host memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meron
from meron._native import DEFAULT_TIMEOUT, ERROR_OUT, call, ffi, lib, new, settle

schedule_enter = lib.meron_schedule_enter
schedule_leave = lib.meron_schedule_leave


class HostSchedule:
    """`make` returns a schedule over all units. Collective, when units or limits have changed."""

    def __init__(self, make: Callable[[], meron.Schedule]) -> None:
        self.make = make
        self.schedule: meron.Schedule | None = None
        self.handle: Any = None

    def renew(self) -> None:
        """Units or limits have changed."""
        self.schedule = None

    def require(self) -> meron.Schedule:
        if self.schedule is None:
            self.schedule = self.make()
            self.handle = self.schedule._handle
        return self.schedule

    def begin(self, kind: int) -> None:
        """A pass begins."""
        self.require().begin(kind)

    def enter(self, index: int) -> None:
        """Unit `index` is unsharded until `leave`. Blocks on peers."""
        if self.schedule is None:
            self.require()
        slot = ffi.new(ERROR_OUT)
        status = schedule_enter(self.handle, index, DEFAULT_TIMEOUT, slot)
        if status:
            settle(status, slot)

    def leave(self, index: int) -> None:
        slot = ffi.new(ERROR_OUT)
        status = schedule_leave(self.handle, index, slot)
        if status:
            settle(status, slot)

    def view(self, handle: meron.Param) -> Any:
        """The unsharded tensor of a param whose unit is entered, as a meron_view."""
        view = new("meron_view *")
        call(lib.meron_schedule_view, view, self.handle, handle._handle)
        return view

    def drop(self) -> None:
        """Releases what it keeps unsharded, before values are written."""
        if self.schedule is not None:
            self.schedule.drop()

    def reset(self) -> None:
        """After an exception: nothing is in use."""
        if self.schedule is not None:
            self.schedule.reset()

    def release(self) -> None:
        """Releases all gathers; the next pass makes another schedule."""
        if self.schedule is not None:
            self.schedule.release()
            self.schedule = None
