# SPDX-License-Identifier: Apache-2.0
"""A memory limit for a program and all that it starts: a memory cgroup, version 1 or 2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class NoLimit(Exception):
    """This process cannot limit memory on this system. The message gives the reason."""


def parent() -> tuple[Path, str]:
    """The group in which one may be made, and the name of its file for the limit."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    paths = {kinds: path for _, kinds, path in (line.split(":", 2) for line in lines)}
    for kinds, path in paths.items():
        if "memory" in kinds.split(","):
            return ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
    if (ROOT / "cgroup.controllers").exists() and "" in paths:
        return ROOT / paths[""].lstrip("/"), "memory.max"
    raise NoLimit("there are no memory cgroups")


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[Path]:
    """A new group that may use `limit` bytes, without swap. A process enters it by writing its
    number to the group's file cgroup.procs. Raises NoLimit."""
    above, file = parent()
    group = above / f"meron-example-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise NoLimit(f"cannot make a memory cgroup in {above}: {error.strerror}") from None
    try:
        try:
            (group / file).write_text(str(limit))
            with contextlib.suppress(OSError):
                (group / "memory.swap.max").write_text("0")
        except OSError as error:
            raise NoLimit(f"cannot set {group / file}: {error.strerror}") from None
        yield group
    finally:
        group.rmdir()


def peak(group: Path) -> int:
    """The most that the group has used. 0 where it is not known."""
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        with contextlib.suppress(OSError):
            return int((group / name).read_text())
    return 0
