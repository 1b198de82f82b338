# SPDX-License-Identifier: Apache-2.0
"""The operations on files. Files of a case go with its session."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meron
from meron.dtypes import NUMPY
from meron.io import IO, IOInfo, Request
from operations import number, operation, wanted
from session import Session
from table import Statement
from values import Array, check, check_equal, check_has

# A statement's names for fields of IOInfo.
FIELDS = {"block": "block_bytes"}
NAMES = ("depth", "threads", "requests", "pending", "bytes_read", "bytes_written", "buffer_bytes")


@dataclass
class Begun:
    """A request, and the memory that it works on."""

    request: Request
    memory: Array

    @property
    def _handle(self) -> Any:
        return self.request._handle

    def release(self) -> None:
        self.request.release()


def file_of(session: Session, statement: Statement) -> Path:
    name = f"meron-{os.getpid()}-{session.case}-{session.setup.rank}-{wanted(statement, 'file')}"
    path = Path(tempfile.gettempdir()) / name
    if path not in session.files:
        path.unlink(missing_ok=True)
        session.files.append(path)
    return path


def memory_of(session: Session, statement: Statement, write: bool) -> Array:
    dtype, count = wanted(statement, "dtype"), int(wanted(statement, "count"))
    values = statement.get("with") if write else "fill:0"
    array = session.place.array(values or wanted(statement, "with"), dtype, (count,))
    if statement.get("buffer") is None:
        return array
    pinned: Array = session.held(wanted(statement, "buffer")).item.memory[: array.nbytes]
    pinned[:] = array.view("u1")
    return pinned.view(NUMPY[dtype])


def offset_of(statement: Statement) -> int:
    return int(number(statement, "offset", 0))


@operation
def io(session: Session, statement: Statement) -> None:
    usual = {"block": 1 << 20, "depth": 32, "threads": 1}
    given = {name: int(number(statement, name, value)) for name, value in usual.items()}
    given["block_bytes"] = given.pop("block")
    session.keep(statement.name, IO(statement.get("backend") or "auto", **given))  # type: ignore[arg-type]


@operation
def io_is(session: Session, statement: Statement) -> None:
    io = session.find(IO, statement.name)
    info: IOInfo = io.info()
    for name in ("block", *NAMES):
        value = statement.get(name)
        if value is not None:
            check_equal(name, getattr(info, FIELDS.get(name, name)), int(value))
    check_has(io.describe(), statement)


@operation
def io_write(session: Session, statement: Statement) -> None:
    memory = memory_of(session, statement, True)
    path = file_of(session, statement)
    session.find(IO, statement.name).write(path, memory, offset_of(statement))


@operation
def io_read(session: Session, statement: Statement) -> None:
    memory = memory_of(session, statement, False)
    path = file_of(session, statement)
    session.find(IO, statement.name).read(path, memory, offset_of(statement))
    session.place.check_data(statement, memory)


@operation
def io_write_begin(session: Session, statement: Statement) -> None:
    memory = memory_of(session, statement, True)
    io = session.find(IO, statement.get("io"))
    request = io.write_begin(file_of(session, statement), memory, offset_of(statement))
    session.keep(statement.name, Begun(request, memory))


@operation
def io_read_begin(session: Session, statement: Statement) -> None:
    memory = memory_of(session, statement, False)
    io = session.find(IO, statement.get("io"))
    request = io.read_begin(file_of(session, statement), memory, offset_of(statement))
    session.keep(statement.name, Begun(request, memory))


@operation
def io_data(session: Session, statement: Statement) -> None:
    session.place.check_data(statement, session.find(Begun, statement.name).memory)


@operation
def io_wait(session: Session, statement: Statement) -> None:
    check(session.find(IO, statement.name).wait(), "it has not ended")


@operation
def io_request_wait(session: Session, statement: Statement) -> None:
    check(session.find(Begun, statement.name).request.wait(), "it has not ended")


@dataclass
class Pinned:
    """A buffer. Python releases it with the last array that shows it; here the raw layer does."""

    memory: Array
    _handle: Any


@operation
def io_buffer(session: Session, statement: Statement) -> None:
    count = int(wanted(statement, "bytes"))
    memory = session.find(IO, statement.get("io")).buffer(count)
    check_equal("the buffer's bytes", memory.nbytes, count)
    check(memory.ctypes.data % 4096 == 0, "it does not begin at a page")
    check(not memory.any(), "the buffer is not 0")
    owner = meron.io.base_of(memory)
    session.keep(statement.name, Pinned(memory, owner._handle))
