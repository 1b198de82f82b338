# SPDX-License-Identifier: Apache-2.0
"""Counts, times and bytes of checkpointed functions (`profile`)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class Running(threading.local):
    """True while this thread takes a time."""

    timed = False


running = Running()


@dataclass
class Profile:
    """The cost of checkpoints since configure() or reset().

    Attributes:
        forwards, forward_seconds: of checkpointed functions. Those within another count with it.
        recomputations, recomputation_seconds: in backward passes, with the gathers and copies of
            what was kept.
        kept_bytes, peak_kept_bytes: of arguments that are kept now, and the most at a time. An
            argument that is kept by reference counts, also where the model holds it anyway.
    """

    forwards: int = 0
    forward_seconds: float = 0.0
    recomputations: int = 0
    recomputation_seconds: float = 0.0
    kept_bytes: int = 0
    peak_kept_bytes: int = 0

    def keep(self, size: int) -> None:
        self.kept_bytes += size
        self.peak_kept_bytes = max(self.peak_kept_bytes, self.kept_bytes)

    def release(self, size: int) -> None:
        self.kept_bytes -= size

    @contextlib.contextmanager
    def forward(self, synchronize: Callable[[], None]) -> Iterator[None]:
        with self.timed(synchronize) as seconds:
            yield
        if seconds:
            self.forwards += 1
            self.forward_seconds += seconds[0]

    @contextlib.contextmanager
    def recomputation(self, synchronize: Callable[[], None]) -> Iterator[None]:
        with self.timed(synchronize) as seconds:
            yield
        if seconds:
            self.recomputations += 1
            self.recomputation_seconds += seconds[0]

    @contextlib.contextmanager
    def timed(self, synchronize: Callable[[], None]) -> Iterator[list[float]]:
        """Its list holds the seconds afterwards; nothing within another one, or on failure."""
        seconds: list[float] = []
        if running.timed:
            yield seconds
            return
        running.timed = True
        try:
            synchronize()
            begun = time.perf_counter()
            yield seconds
            synchronize()
            seconds.append(time.perf_counter() - begun)
        finally:
            running.timed = False

    def __str__(self) -> str:
        return (
            f"activation checkpointing: {self.forwards} forwards in "
            f"{1e3 * self.forward_seconds:.1f} ms, {self.recomputations} recomputations in "
            f"{1e3 * self.recomputation_seconds:.1f} ms, at most "
            f"{self.peak_kept_bytes / (1 << 20):.1f} MiB of activations kept"
        )
