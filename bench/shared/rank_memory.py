# SPDX-License-Identifier: Apache-2.0
"""Functions for the ranks of all arms: peak memory of a call, dropping files from the page cache,
times."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path


def status_bytes(key: str) -> int:
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


class Measured:
    """Seconds of a block, and by how much this process' memory exceeded what it had before."""

    seconds = 0.0
    extra_bytes = 0


@contextlib.contextmanager
def measured() -> Iterator[Measured]:
    result = Measured()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status_bytes("VmRSS")
    begin = time.perf_counter()
    yield result
    result.seconds = time.perf_counter() - begin
    result.extra_bytes = max(0, status_bytes("VmHWM") - before)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def evict(folder: Path) -> None:
    """Makes files durable and drops them from the page cache, so that reads go to the drive."""
    for path in files_below(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in files_below(folder))


def read_from_drive() -> int:
    """Bytes that this process has made the drives read."""
    found = re.search(r"^read_bytes: (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
