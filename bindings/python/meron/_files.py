# SPDX-License-Identifier: Apache-2.0
"""Opening files that users name, without waiting for one that never delivers."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import BinaryIO

PIPE_PATIENCE = 10.0  # seconds for what `<(program)` of a shell delivers


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, for reading. A pipe or a device is an OSError, and is not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return os.fdopen(fd, "rb")


def read_text(path: str | os.PathLike[str]) -> str:
    """A whole file as text, which may be a pipe whose writer delivers within PIPE_PATIENCE."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return read_pipe(fd, path).decode("utf-8")
        return file.readall().decode("utf-8")


def read_pipe(fd: int, path: str | os.PathLike[str]) -> bytes:
    deadline = time.monotonic() + PIPE_PATIENCE
    waiter = select.poll()
    waiter.register(fd, select.POLLIN)
    parts: list[bytes] = []
    while waiter.poll(max(0.0, deadline - time.monotonic()) * 1000):
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    raise OSError(
        errno.ETIMEDOUT,
        f"nothing came through this pipe for {PIPE_PATIENCE:.0f} s",
        os.fspath(path),
    )
