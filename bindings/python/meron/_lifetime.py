# SPDX-License-Identifier: Apache-2.0
"""The close of the library's context: by the user, the garbage collector or the end of the
process."""

from __future__ import annotations

import atexit
import functools
import weakref
from typing import Any, ClassVar

from meron._dropped import DroppedOperations
from meron._finalizers import finalize, finish
from meron._native import Owner, lib


class Lifetime(Owner):
    """Closes the library's context when it dies.

    A Context holds one, and so does every array that shows the context's memory: closing unmaps
    that memory, so it waits until the last of these arrays is gone.
    """

    _finalize: ClassVar[Any] = staticmethod(finalize)

    def __init__(self, callbacks: tuple[Any, ...], options: Any) -> None:
        """Opens the context. Blocks on peers."""
        self.callbacks = callbacks  # called as long as the context is open
        self.dropped = DroppedOperations()
        opened.add(self)
        self._receive("meron_context *", lib.meron_context_open, options)

    def __del__(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None and handle.id:
            needed = (self.callbacks, self.dropped)  # until the close has ended
            self._finalize(functools.partial(self._close, handle, self._null, needed))

    @staticmethod
    def _close(handle: Any, null: Any, _needed: Any, close: Any = lib.meron_context_close) -> None:
        close(handle, null)


# At the interpreter's end contexts are closed while callbacks can still run, and without regard to
# arrays: no code that reads those runs any more.
opened: weakref.WeakSet[Lifetime] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    for lifetime in list(opened):
        lifetime.__del__()
    finish()
