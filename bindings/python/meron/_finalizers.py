# SPDX-License-Identifier: Apache-2.0
"""Finalizers that must not run where the collector happens to run.

The collector runs at any allocation, so also inside a function that the library calls and inside a
transport's own thread, which may hold a lock there. Closing a context waits for such threads and
calls the transport: on one of them it would wait for itself. So there a finalizer only puts its
work into a queue, and a thread that holds no lock does it.
"""

from __future__ import annotations

import _thread
import collections
import functools
import os
import threading
from collections.abc import Callable
from typing import Any


class State(threading.local):
    """Of a thread: how many functions it is in that must not be waited for."""

    depth = 0


here = State()
# Without locks of Python's: a finalizer may interrupt this thread while it holds one.
waiting: collections.deque[Callable[[], Any]] = collections.deque()
running = _thread.allocate_lock()  # held while a thread works on the queue


def called_back(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, within which finalizers are put off. For what the library calls, and for
    the main functions of a transport's threads."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        here.depth += 1
        try:
            return function(*args)
        finally:
            here.depth -= 1

    return call


def finalize(work: Callable[[], Any]) -> None:
    """Does `work` now, or on another thread if this one is within a `called_back` function.

    Blocks: as long as `work`, or never within such a function. Threads: any.
    """
    if here.depth == 0:
        work()
        return
    waiting.append(work)
    start()


def start() -> None:
    if not running.acquire(blocking=False):
        return
    try:
        _thread.start_new_thread(work_off, ())
    except RuntimeError:  # no more threads: `finish`, or the next one, does it
        running.release()


def work_off() -> None:
    try:
        while waiting:
            waiting.popleft()()
    finally:
        running.release()
    if waiting:  # put there after the last look
        start()


def finish() -> None:
    """Waits for the thread, and does what is left. Blocks: as long as that takes."""
    while waiting or running.locked():
        with running:
            while waiting:
                waiting.popleft()()


def forget() -> None:
    """In a child of a fork, which has neither the thread nor the contexts."""
    global running
    waiting.clear()
    running = _thread.allocate_lock()


os.register_at_fork(after_in_child=forget)
