# SPDX-License-Identifier: Apache-2.0
"""A custom transport in Python: ranks are threads that pass each other bytes through a mailbox."""

from __future__ import annotations

import itertools
import sys
import threading
from collections import defaultdict, deque
from typing import Any

import numpy as np
import pytest

import meron

DEADLINE = 20.0


class Mailbox:
    """Messages under way between all ranks, by (from, to, tag)."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: defaultdict[tuple[int, int, int], deque[bytes]] = defaultdict(deque)


class MailboxTransport(meron.CustomTransport):
    name = "mailbox"

    def __init__(self, rank: int, mailbox: Mailbox) -> None:
        self.rank, self.mailbox = rank, mailbox
        self.numbers = itertools.count()
        self.wanted: dict[int, tuple[tuple[int, int, int], memoryview]] = {}
        self.queues: defaultdict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self.sent: dict[int, int] = {}
        self.was_closed = False

    def send(self, peer: int, tag: int, data: memoryview) -> int | None:
        request = next(self.numbers)
        with self.mailbox.lock:
            self.mailbox.messages[self.rank, peer, tag].append(bytes(data))
        self.sent[request] = data.nbytes
        return request

    def receive(self, peer: int, tag: int, into: memoryview) -> int | None:
        request = next(self.numbers)
        key = (peer, self.rank, tag)
        self.wanted[request] = (key, into)
        self.queues[key].append(request)
        return request

    def test(self, request: int) -> int | None:
        if request in self.sent:
            return self.sent.pop(request)
        key, into = self.wanted[request]
        if self.queues[key][0] != request:
            return None
        with self.mailbox.lock:
            if not self.mailbox.messages[key]:
                return None
            message = self.mailbox.messages[key].popleft()
        into[: len(message)] = message
        self.queues[key].popleft()
        del self.wanted[request]
        return len(message)

    def cancel(self, request: int) -> None:
        self.sent.pop(request, None)
        if request in self.wanted:
            key, _ = self.wanted.pop(request)
            self.queues[key].remove(request)

    def closed(self) -> None:
        self.was_closed = True


def run(transports: list[Any], body: Any, **options: Any) -> list[Any]:
    """The result of each rank: what `body` returned, or the error that ended it."""
    results: list[Any] = [None] * len(transports)

    def main(rank: int) -> None:
        try:
            with meron.open(
                rank, len(transports), transports[rank], **{"timeout": DEADLINE, **options}
            ) as ctx:
                results[rank] = body(ctx)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=main, args=(rank,)) for rank in range(len(transports))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * DEADLINE)
        assert not thread.is_alive(), "a rank hangs"
    return results


def train(ctx: meron.Context) -> Any:
    weight = ctx.param("w", (5, 7))
    unit = ctx.unit("u", [weight])
    start = np.arange(35, dtype=np.float32).reshape(5, 7)
    with ctx.update([unit]) as update:
        update.write(weight, start)
    adam = ctx.adamw([unit], lr=0.1)
    for step in range(3):
        unit.reduce({weight: np.full((5, 7), 1.0 + ctx.rank + step, np.float32)})
        adam.step()
    with ctx.gather([unit]) as full:
        values = full[weight].copy()
    total = np.ones(1000, np.float32)
    ctx.world.all_reduce(total)
    return ctx.transport, values, total.sum()


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero2", "zero3"])
def test_it_trains_as_the_embedded_transports_do(plan: str) -> None:
    mailbox = Mailbox()
    transports = [MailboxTransport(rank, mailbox) for rank in range(3)]
    results = run(transports, train, plan=plan)
    expected = run(["local"] * 3, train, plan=plan, job=f"mailbox-{plan}")
    for own, other in zip(results, expected, strict=True):
        assert own[0] == "mailbox"
        assert own[1].tobytes() == other[1].tobytes()
        assert own[2] == 3000.0
    assert all(transport.was_closed for transport in transports)


@pytest.mark.parametrize("method", ["send", "receive", "test"])
def test_an_exception_ends_the_use_of_the_peer(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: seen.append(str(info.exc_value)))
    mailbox = Mailbox()
    transports = [MailboxTransport(rank, mailbox) for rank in range(2)]

    def body(ctx: meron.Context) -> None:
        ctx.world.barrier()
        if ctx.rank == 1:

            def fail(*_: Any) -> int:
                raise RuntimeError("out of order")

            setattr(transports[1], method, fail)
        for _ in range(20):  # rank 0 notices when it needs rank 1 again
            ctx.world.barrier()

    results = run(transports, body, timeout=2.0)
    assert isinstance(results[1], meron.PeerDeadError)
    assert results[1].peer == 0
    assert isinstance(results[0], meron.GroupError)
    assert any("out of order" in text for text in seen)


def test_a_world_of_one_needs_no_peers() -> None:
    transport = MailboxTransport(0, Mailbox())
    (result,) = run([transport], train)
    assert result[0] == "mailbox"
    assert transport.was_closed


def test_it_may_stand_beside_a_name_but_not_twice() -> None:
    with meron.open(0, 1, "custom", custom=MailboxTransport(0, Mailbox())) as ctx:
        assert ctx.transport == "mailbox"
    with pytest.raises(meron.ArgumentError, match="twice"):
        meron.open(0, 1, MailboxTransport(0, Mailbox()), custom=MailboxTransport(0, Mailbox()))


def test_small_messages_are_refused_before_anything_moves() -> None:
    transport = MailboxTransport(0, Mailbox())
    transport.max_message = 100
    (result,) = run([transport], train)
    assert isinstance(result, meron.ArgumentError)
    assert "max_message is 100" in str(result)
