# SPDX-License-Identifier: Apache-2.0
"""Waiting for any of several operations."""

from __future__ import annotations

from collections.abc import Sequence

from meron import errors
from meron._native import IN_PROGRESS, call, lib, nanoseconds, new
from meron.future import Future
from meron.gather import Gather


def wait_any(futures: Sequence[Future | Gather], timeout: float | None = None) -> int | None:
    """Waits until one of several operations of a context has ended, well or with an error.

    Args:
        futures: futures and gathers.
        timeout: seconds; None waits as long as the operations' own deadlines.

    Returns:
        The index of the first one that has ended: its `wait` then returns, or raises its error,
        at once. None if `timeout` passed first.

    Blocks on peers, and releases the GIL; Ctrl-C ends the wait, not the operations.

    Raises:
        HandleError: there are none, or they belong to different contexts.
        StaleError: one was released. CancelledError: should_stop ended the wait.
    """
    handles = []
    for number, future in enumerate(futures):
        handle = future._handle
        if handle is None:
            raise errors.StaleError(f"futures[{number}] was released")
        handles.append(handle)
    out = new("size_t *")
    table = new("meron_future[]", handles)
    status = call(lib.meron_future_wait_any, out, table, len(handles), nanoseconds(timeout))
    return None if status == IN_PROGRESS else int(out[0])
