# SPDX-License-Identifier: Apache-2.0
"""Operations under way."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from meron import errors
from meron._base_context import BaseContext
from meron._dropped import Dropped, name_end
from meron._native import (
    ERROR_OUT,
    IN_PROGRESS,
    NULL,
    Owner,
    call,
    finalizer,
    interrupts,
    lib,
    nanoseconds,
    new,
    nothing,
    settle,
)

CANCELLED = lib.MERON_E_CANCELLED


class Future(Owner):
    """An operation that was begun and yields nothing but its end.

    Waiting for it advances every operation of the context. `await future` waits in an event loop of
    asyncio, beside other tasks. Releasing it does not stop the operation, because the ranks must
    stay in step; an array that the operation still uses is kept alive until it has ended.

    If a future is dropped and its operation fails, the next call that begins an operation of the
    context raises the error instead, once; of a save the next save does. So does the end of
    `with ctx`. A dropped step makes the next such call wait for its end.
    """

    __del__: Any = finalizer("_finalize")
    _finalize: Callable[[], Any] = nothing
    _keep: Any = None
    _ended = False  # well, and a wait has seen it
    _failed = False  # and a wait has raised the error
    _called: str = "Future.wait"  # names the operation in errors

    def __init__(self, context: BaseContext, keep: Any = None) -> None:
        self._context = context
        self._keep = keep  # memory that the operation reads or writes

    def __repr__(self) -> str:
        ended = "ended" if self._ended else "failed" if self._failed else "under way"
        state = "released" if self._handle is None else ended
        return f"<meron.Future, {state}>"

    def __await__(self) -> Generator[Any, None, None]:
        """Waits in the running loop of asyncio. Raises as `wait`."""
        from meron._awaiting import until  # asyncio takes longer to import than all of this package

        return until(self._context, self.done).__await__()

    def _begin(self, function: Any, *arguments: Any) -> Future:
        """Begins the operation by a function of the library, whose first parameter is a future.

        Raises the error of an earlier operation that was dropped and has failed.
        """
        self._context._raise_dropped()
        out = new("meron_future *")
        self._handle = out[0]  # before the call, as in Owner._receive
        dropped = Dropped(self._handle, self._keep, self._called)
        self._finalize = partial(self._context._dropped.append, dropped)
        call(function, out, *arguments)
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
        self._finalize()
        self._finalize = nothing
        self._handle = self._keep = None

    def _has_begun(self) -> bool:
        return self._handle is not None and bool(self._handle.id)

    def _look(self, function: Any, *arguments: Any) -> bool:
        if self._handle is None:
            raise errors.StaleError("this future was released")
        error = new(ERROR_OUT)
        status = function(self._handle, *arguments, error)
        if status < 0 and status != CANCELLED:
            self._failed = True
            self._end()
        if status < 0 or interrupts:
            self._settle(status, error)
        if status == IN_PROGRESS:
            return False
        self._ended = True
        self._end()
        return True

    def _end(self) -> None:
        """A call has seen the end: the library uses no memory of the caller's any more."""
        self._finalize = partial(lib.meron_future_release, self._handle, NULL)
        self._keep = None

    def _settle(self, status: int, error: Any) -> None:
        try:
            settle(status, error)
        except errors.Error as failed:
            name_end(failed, self._called)
            raise


def begin(context: Any, function: Any, *arguments: Any, keep: Any = None) -> Future:
    """Begins an operation of a context, which uses `keep` until it has ended."""
    return Future(context, keep)._begin(function, *arguments)
