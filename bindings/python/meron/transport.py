# SPDX-License-Identifier: Apache-2.0
"""A transport of the trainer's own: how bytes move between ranks that share no memory."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from meron._finalizers import called_back
from meron._native import IN_PROGRESS, ffi, initial, lib, new


class CustomTransport(abc.ABC):
    """The interface for Meron to run over other messages (MPI, torch.distributed, sockets).

    Meron builds its collectives, checks and failure handling on `send` and `receive` alone. Pass an
    instance as `meron.open(rank, world_size, transport=...)`; one instance serves one context. The
    rules are those of meron/transport.h:

    - No method blocks (`idle` may, up to its timeout), and none calls Meron.
    - Methods are called on threads that are inside a call of the context, one at a time.
    - Tags are at least 0 and below 2**28.
    - A message goes to the `receive` of the same tag that its destination started for this rank;
      several of one tag in the order in which they were started. A message whose receive has not
      been started yet must not keep those of other tags from arriving.

    An exception that a method raises goes to sys.unraisablehook and ends the use of the peer: its
    groups break with a PeerDeadError.

    Attributes:
        name:        for messages, and Context.transport.
        max_message: bytes that one message may have, at least 4096; 0 has no limit. The same on
                     all ranks.
    """

    name: str = "custom"
    max_message: int = 0

    @abc.abstractmethod
    def send(self, peer: int, tag: int, data: memoryview) -> int | None:
        """Starts to send `data`, which stays as it is until the request is done or cancelled.

        Returns a number by which the request is meant from then on, 0 to 2**64 - 1, or None when
        the message cannot be taken now: the same will be asked again.
        """

    @abc.abstractmethod
    def receive(self, peer: int, tag: int, into: memoryview) -> int | None:
        """Starts to receive a message of at most `into.nbytes` bytes. Otherwise as `send`."""

    @abc.abstractmethod
    def test(self, request: int) -> int | None:
        """The size of the request's message in bytes when it is done, else None.

        A request that is done is not asked about again. May also make progress.
        """

    @abc.abstractmethod
    def cancel(self, request: int) -> None:
        """Gives a request up; its memory must not be touched once this returns."""

    def alive(self, peer: int) -> bool:
        """Returns False only if the rank is known to be dead."""
        return True

    def closed(self) -> None:  # noqa: B027
        """The last call: the context was closed."""

    # Called with seconds where a subclass has it; otherwise Meron sleeps between tests.
    idle: Callable[[float], None] | None = None


def transport_table(transport: CustomTransport) -> tuple[Any, tuple[Any, ...]]:
    """The library's table for `transport`, and what must live as long as the context."""
    failed = lib.MERON_E_IO

    def send(_user: Any, request: Any, peer: int, tag: int, data: Any, size: int) -> int:
        return store(request, transport.send(peer, tag, memoryview(ffi.buffer(data, size))))

    def receive(_user: Any, request: Any, peer: int, tag: int, data: Any, size: int) -> int:
        return store(request, transport.receive(peer, tag, memoryview(ffi.buffer(data, size))))

    def test(_user: Any, request: int, size: Any) -> int:
        return store(size, transport.test(request))

    def cancel(_user: Any, request: int) -> None:
        transport.cancel(request)

    def idle(_user: Any, timeout_ns: int) -> None:
        if transport.idle is not None:
            transport.idle(timeout_ns / 1e9)

    def alive(_user: Any, peer: int) -> int:
        return 1 if transport.alive(peer) else 0

    def closed(_user: Any) -> None:
        transport.closed()

    table = initial("meron_transport")
    name = new("char[]", transport.name.encode())
    functions: dict[str, Any] = {
        "send": ffi.callback("meron_send_fn", called_back(send), error=failed),
        "receive": ffi.callback("meron_receive_fn", called_back(receive), error=failed),
        "test": ffi.callback("meron_test_fn", called_back(test), error=failed),
        "cancel": ffi.callback("meron_cancel_fn", called_back(cancel)),
        # If `alive` fails, the peer counts as alive.
        "alive": ffi.callback("meron_alive_fn", called_back(alive), error=1),
        "closed": ffi.callback("meron_closed_fn", called_back(closed)),
    }
    if transport.idle is not None:
        functions["idle"] = ffi.callback("meron_idle_fn", called_back(idle))
    table.name = name
    table.max_message = transport.max_message
    for field, function in functions.items():
        setattr(table, field, function)
    return table, (table, name, *functions.values())


def store(place: Any, value: int | None) -> int:
    if value is None:
        return IN_PROGRESS
    place[0] = value
    return 0
