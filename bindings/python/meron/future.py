# SPDX-License-Identifier: Apache-2.0
"""Operations under way."""

from __future__ import annotations

from typing import Any

from meron import errors
from meron._base_context import BaseContext
from meron._call_names import name_call
from meron._native import (
    ERROR_OUT,
    IN_PROGRESS,
    Owner,
    interrupts,
    lib,
    nanoseconds,
    new,
    settle,
)

WAITS = ("Future.wait", "Future.done")
CANCELLED = lib.MERON_E_CANCELLED


class Future(Owner):
    """An operation that was begun and yields nothing but its end.

    Waiting for it advances every operation of the context. Releasing it does not stop the
    operation, because the ranks must stay in step; an array that the operation still uses is kept
    alive until it has ended.
    """

    _release_function = lib.meron_future_release

    _keep: Any = None
    _called: str = "Future.wait"  # names the operation in errors

    def __init__(self, context: BaseContext, keep: Any = None) -> None:
        self._context = context
        self._keep = keep  # memory that the operation reads or writes
        self._ended = False

    def _begin(self, function: Any, *arguments: Any) -> Future:
        """Begins the operation by a function of the library, whose first parameter is a future."""
        self._receive("meron_future *", function, *arguments)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the operation has ended.

        Args:
            timeout: seconds; None waits until the operation's own deadline.

        Returns:
            True if it has succeeded, False after `timeout`; it continues.

        Blocks on peers, and releases the GIL; Ctrl-C ends the wait, not the operation.

        Raises:
            GroupError: a rank is dead, late, closed or made another call.
            NonFiniteError: of an optimizer's step.
            CancelledError: should_stop ended the wait. StaleError: the future was released.
        """
        if self._ended and self._handle is not None:
            return True
        return self._look(lib.meron_future_wait, nanoseconds(timeout))

    def done(self) -> bool:
        """True if the operation has succeeded; never blocks. Raises the error if it failed."""
        if self._ended and self._handle is not None:
            return True
        return self._look(lib.meron_future_poll)

    def release(self) -> None:
        """Releases the future; doing so twice is fine."""
        self.__del__()

    def _has_begun(self) -> bool:
        return self._handle is not None and bool(self._handle.id)

    def _look(self, function: Any, *arguments: Any) -> bool:
        if self._handle is None:
            raise errors.StaleError("this future was released")
        error = new(ERROR_OUT)
        status = function(self._handle, *arguments, error)
        if status < 0 and status != CANCELLED:
            self._keep = None  # it has ended: the library uses the memory no more
        if status < 0 or interrupts:
            self._settle(status, error)
        if status == IN_PROGRESS:
            return False
        self._ended = True
        self._keep = None
        return True

    def _settle(self, status: int, error: Any) -> None:
        try:
            settle(status, error)
        except errors.Error as failed:
            if failed.operation in WAITS:  # the library does not name the operation itself
                name_call(failed, self._called)
            raise

    def __del__(self) -> None:
        keep, self._keep = self._keep, None
        if keep is not None and self._has_begun():
            handle, self._handle = self._handle, None
            self._context._abandoned.append((handle, keep))
            return
        super().__del__()


def begin(context: Any, function: Any, *arguments: Any, keep: Any = None) -> Future:
    """Begins an operation of a context, which uses `keep` until it has ended."""
    if context._abandoned:
        sweep(context._abandoned)
    return Future(context, keep)._begin(function, *arguments)


def sweep(abandoned: list[tuple[Any, Any]]) -> None:
    """Releases abandoned futures of operations that have ended."""
    for _ in range(len(abandoned)):
        try:
            handle, keep = abandoned.pop(0)
        except IndexError:  # another thread sweeps too
            return
        if lib.meron_future_poll(handle, Owner._null) == IN_PROGRESS:
            abandoned.append((handle, keep))
        else:
            lib.meron_future_release(handle, Owner._null)
