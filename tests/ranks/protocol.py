# SPDX-License-Identifier: Apache-2.0
"""Messages between pytest and the processes that fork ranks."""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

LENGTH = struct.Struct("Q")


@dataclass(frozen=True)
class Home:
    """A process that forks the cases of one module: what it imports, and its environment."""

    rank: int
    world_size: int
    module: str
    path: tuple[str, ...]  # sys.path
    plain: bool  # it has the variables with which the starter began
    environment: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class Call:
    """A function by its qualified name in a module, and its arguments."""

    module: str
    function: str
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A call on one rank."""

    call: Call
    environment: dict[str, str]  # of this case alone
    directory: str  # current one, as pytest's
    output: str  # file for stdout
    errors: str  # file for stderr
    outcome: str  # file for the pickled Outcome


@dataclass(frozen=True)
class Started:
    """The case runs in this process."""

    pid: int


@dataclass(frozen=True)
class Ended:
    """The exit code of a case; negative for a signal."""

    code: int


@dataclass(frozen=True)
class Refused:
    """The process or case could not be started."""

    reason: str


@dataclass
class Outcome:
    """Result of a function on one rank."""

    status: str  # passed, failed or skipped
    value: Any = None
    text: str = ""  # traceback, or the reason of a skip
    summary: str = ""  # last line of the traceback
    at: float = 0.0  # time.monotonic()


def send(connection: socket.socket, message: Any, fds: tuple[int, ...] = ()) -> None:
    data = pickle.dumps(message)
    header = LENGTH.pack(len(data))
    if fds:
        socket.send_fds(connection, [header], list(fds))
    else:
        connection.sendall(header)
    connection.sendall(data)


def receive(connection: socket.socket) -> Any:
    """Returns the next message. Raises EOFError if the peer has ended."""
    return pickle.loads(receive_bytes(connection, LENGTH.unpack(receive_header(connection))[0]))


def receive_with_fd(connection: socket.socket) -> tuple[Any, int]:
    """Returns the next message and the file descriptor that it carries."""
    header, fds, _, _ = socket.recv_fds(connection, LENGTH.size, 1)
    if not header:
        raise EOFError
    header += receive_bytes(connection, LENGTH.size - len(header))
    return pickle.loads(receive_bytes(connection, LENGTH.unpack(header)[0])), fds[0]


def receive_header(connection: socket.socket) -> bytes:
    return receive_bytes(connection, LENGTH.size)


def receive_bytes(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            part = connection.recv(count - len(data))
        except ConnectionError:
            part = b""
        if not part:
            raise EOFError
        data += part
    return bytes(data)
