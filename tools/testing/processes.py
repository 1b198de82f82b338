# SPDX-License-Identifier: Apache-2.0
"""Ends every process that a run has started, also those that began a session of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

# Children inherit it, so that one that lost its parent is found too.
MARK = "MERON_TEST_RUN"
GRACE_SECONDS = 0.4
MOST_SECONDS = 1.4


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    started: int  # clock ticks since boot: tells processes apart that have the same pid
    state: str
    own_ticks: int
    waited_ticks: int  # of children that have ended and been waited for

    @property
    def ticks(self) -> int:
        return self.own_ticks + self.waited_ticks


def parse_stat(pid: int, text: str) -> Process:
    fields = text.rpartition(")")[2].split()
    numbers = [int(field) for field in fields[11:15]]
    return Process(
        pid=pid,
        parent=int(fields[1]),
        started=int(fields[19]),
        state=fields[0],
        own_ticks=numbers[0] + numbers[1],
        waited_ticks=numbers[2] + numbers[3],
    )


def all_processes() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path("/proc", entry, "stat").read_text(errors="replace")
            except OSError:
                continue  # it has ended
            yield parse_stat(int(entry), text)


def mark() -> str:
    """Marks the children of this process, and returns the mark."""
    own = f"[{os.getpid()}.{time.monotonic_ns()}]"
    os.environ[MARK] = os.environ.get(MARK, "") + own
    return own


def has_mark(pid: int, own: str) -> bool:
    try:
        return own.encode() in Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return False


def descendants(own: str) -> list[int]:
    """Returns the living processes below this one, and those that carry its mark."""
    processes = [process for process in all_processes() if process.state != "Z"]
    below = {os.getpid()}
    count = 0
    while count != len(below):
        count = len(below)
        below |= {process.pid for process in processes if process.parent in below}
    marked = {process.pid for process in processes if has_mark(process.pid, own)}
    return sorted((below | marked) - {os.getpid()})


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_all(own: str) -> None:
    """Ends all descendants: politely at first, and within MOST_SECONDS in any case."""
    begin = time.monotonic()
    send(descendants(own), signal.SIGTERM)
    while (left := descendants(own)) and time.monotonic() - begin < MOST_SECONDS:
        if time.monotonic() - begin > GRACE_SECONDS:
            send(left, signal.SIGKILL)
        time.sleep(0.05)


def end_all_on_interrupt(own: str, say: Callable[[str], None]) -> None:
    """From now on SIGINT, SIGTERM and SIGHUP end the run and all of its processes."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        with contextlib.suppress(OSError, RuntimeError):  # the terminal may be gone
            say("\ninterrupted: ending all tests and builds")
        end_all(own)
        # No thread may start anything more, so nothing is unwound.
        os._exit(128 + number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, interrupt)
