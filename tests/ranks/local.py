# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads of pytest's own process, over the transport `local`."""

from __future__ import annotations

import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import meron

TIMEOUT = 20.0  # seconds of each operation, so that a hang ends in an error soon
DEADLINE = 60.0
T = TypeVar("T")


def run(
    count: int, body: Callable[[meron.Context], T], *, deadline: float = DEADLINE, **options: Any
) -> list[T]:
    """Calls `body(context)` on ranks that are threads, and returns its values by rank.

    Args:
        options: of `meron.open`.

    Raises:
        AssertionError: a rank has not ended within `deadline` seconds; the text names the ranks and
            has their stacks. The threads continue, as nothing can end them.
        BaseException: the first failure that is no GroupError, which peers of a failed rank get.
    """
    job = secrets.token_hex(8)
    values: dict[int, T] = {}
    failures: list[BaseException] = []

    def main(rank: int) -> None:
        try:
            given = {"timeout": TIMEOUT, **options}
            with meron.open(rank, count, "local", job=job, **given) as context:
                values[rank] = body(context)
        except BaseException as error:
            failures.append(error)

    ranks = [
        threading.Thread(target=main, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(count)
    ]
    for thread in ranks:
        thread.start()
    until = time.monotonic() + deadline
    for thread in ranks:
        thread.join(max(until - time.monotonic(), 0.0))
    late = [thread for thread in ranks if thread.is_alive()]
    if late:
        names = ", ".join(thread.name for thread in late)
        stacks = "\n".join(f"{thread.name}:\n{stack_of(thread)}" for thread in late)
        raise AssertionError(f"{names} of {count} did not end within {deadline:g} s\n{stacks}")
    if failures:
        raise min(failures, key=lambda error: isinstance(error, meron.GroupError))
    return [values[rank] for rank in range(count)]


def stack_of(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "(it has ended)"
