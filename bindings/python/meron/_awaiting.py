# SPDX-License-Identifier: Apache-2.0
"""Operations in an event loop of asyncio.

The context's descriptor becomes readable when an operation may have ended. One watcher for each
loop then looks at all operations that tasks of the loop await. docs/event-loops.md
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from meron import errors
from meron._base_context import BaseContext
from meron._native import call, lib, receive

Poll = Callable[[], bool]


class Watcher:
    """Ends the waits of a loop's tasks for a context. Threads: the loop's; `context_closed` any."""

    def __init__(self, context: BaseContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop
        self._pending: list[tuple[Poll, asyncio.Future[None]]] = []
        self._descriptor = receive("int32_t *", lib.meron_context_event_fd, context._for_call())
        context._watchers[loop] = self
        loop.add_reader(self._descriptor, self._look)

    async def end(self, poll: Poll) -> None:
        """Waits until `poll` returns True. Raises its error."""
        ended = self._loop.create_future()
        pair = (poll, ended)
        self._pending.append(pair)
        try:
            self._look()  # it may have ended meanwhile: then no sign follows
            await ended
        finally:
            if pair in self._pending:  # the task was cancelled
                self._remove(pair)

    def context_closed(self) -> None:
        """Lets the polls raise the context's error."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        with contextlib.suppress(errors.Error):  # which the polls raise
            call(lib.meron_context_progress, self._context._handle)  # clears the descriptor, too
        for pair in list(self._pending):
            poll, ended = pair
            try:
                if not poll():
                    continue
            except Exception as error:
                if not ended.done():
                    ended.set_exception(error)
            if not ended.done():
                ended.set_result(None)
            self._remove(pair)

    def _remove(self, pair: tuple[Poll, asyncio.Future[None]]) -> None:
        self._pending.remove(pair)
        if not self._pending and self._context._watchers.pop(self._loop, None) is self:
            self._loop.remove_reader(self._descriptor)


async def until(context: BaseContext, poll: Poll) -> None:
    """Waits until `poll` returns True, beside the other tasks of the running loop."""
    if poll():
        return
    loop = asyncio.get_running_loop()
    await (context._watchers.get(loop) or Watcher(context, loop)).end(poll)
