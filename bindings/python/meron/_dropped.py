# SPDX-License-Identifier: Apache-2.0
"""Operations whose futures were dropped before their ends were seen.

They continue, and may use memory of the caller's until they end. If one fails, a later call raises
its error instead of beginning anything: of a step or a reduction the next one that begins an
operation, of a save the next save. So all ranks raise it at the same call.
"""

from __future__ import annotations

import contextlib
from typing import Any

from meron import errors
from meron._call_names import name_call
from meron._native import DEFAULT_TIMEOUT, IN_PROGRESS, NULL, call, lib

SAVE = "Context.save"
STEP = "Optimizer.step"
WAITS = ("Future.wait", "Future.done")
ADVICE = "No call has waited for it. Keep its future, and wait for it."


def name_end(error: errors.Error, called: str) -> None:
    """Names the call that began an operation, whose end the library found in a wait."""
    if error.operation in WAITS:
        name_call(error, called)


class Dropped:
    """An operation.

    Attributes:
        handle: of its future; None if it has ended.
        keep:   memory that it uses.
        called: the call that began it.
        error:  the error that it has ended with, and that was not raised yet.
    """

    __slots__ = ("called", "error", "handle", "keep")

    def __init__(self, handle: Any, keep: Any, called: str) -> None:
        self.handle = handle
        self.keep = keep
        self.called = called
        self.error: errors.Error | None = None

    def poll(self) -> bool:
        """Returns True if it has ended."""
        handle = self.handle
        if handle is None or not handle.id:  # it was not begun
            return True
        try:
            if call(lib.meron_future_poll, handle) == IN_PROGRESS:
                return False
        except errors.CancelledError:
            pass  # a save that the user has cancelled
        except errors.Error as error:
            if self.is_news(error):
                name_end(error, self.called)
                error._add(ADVICE)
                self.error = error
        self.handle = self.keep = None
        lib.meron_future_release(handle, NULL)
        return True

    def wait(self) -> None:
        """Waits for its end. Raises CancelledError if should_stop has ended the wait."""
        try:
            if self.handle is not None and self.handle.id:
                call(lib.meron_future_wait, self.handle, DEFAULT_TIMEOUT)
        except errors.CancelledError:
            if not self.poll():
                raise
        except errors.Error:
            pass  # which the poll gets again
        self.poll()

    def is_news(self, error: errors.Error) -> bool:
        """False for what later calls raise in any case."""
        known = isinstance(error, (errors.GroupError, errors.ContextError))
        return self.called == SAVE or not known


class DroppedOperations(list[Dropped]):
    """Those of a context, in the order of their begins. Threads: any."""

    def sweep(self) -> None:
        """Releases those that have ended. They end in their order, but for saves. Never blocks."""
        for operation in tuple(self):
            if operation.poll():
                if operation.error is None:
                    self._forget(operation)
            elif operation.called != SAVE:
                break

    def raise_failure(self) -> None:
        """Raises an error that was not raised yet, but for those of saves. Blocks until steps have
        ended, whose errors all ranks have."""
        for operation in tuple(self):
            if operation.called == STEP:
                operation.wait()
        self.sweep()
        for operation in tuple(self):
            if operation.called != SAVE:
                self._raise(operation)

    def raise_failure_of_save(self) -> None:
        """Raises the error of a save that was not raised yet. Blocks until the saves have ended."""
        for operation in tuple(self):
            if operation.called == SAVE:
                operation.wait()
                self._raise(operation)

    def take_failures(self) -> list[errors.Error]:
        """Returns the errors that were not raised yet. Never blocks."""
        self.sweep()
        failed = [operation for operation in tuple(self) if operation.error is not None]
        for operation in failed:
            self._forget(operation)
        return [operation.error for operation in failed if operation.error is not None]

    def _raise(self, operation: Dropped) -> None:
        if operation.error is not None:
            self._forget(operation)
            raise operation.error

    def _forget(self, operation: Dropped) -> None:
        with contextlib.suppress(ValueError):  # another thread was first
            self.remove(operation)
