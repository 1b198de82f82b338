# SPDX-License-Identifier: Apache-2.0
"""Messages over torch.distributed groups, and how their transports end."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from process_groups import (
    DEADLINE,
    MakeTransports,
    asked_groups,
    gloo_groups,
    in_threads,
    open_over,
    settle,
    transports_over,
)

from meron.torch import registry
from meron.torch.transport import INLINE, MAX_MESSAGE, SEND_WINDOW, GroupTransport

BIG = 3 * INLINE


@pytest.fixture(params=["gloo", "asked"])
def make(request: pytest.FixtureRequest) -> MakeTransports:
    return transports_over(request.param)


@pytest.fixture
def pair(make: MakeTransports) -> Iterator[list[GroupTransport]]:
    ends = make(2)
    yield ends
    for end in ends:
        end.closed()
    settle(*ends)


def done(end: GroupTransport, request: int | None, *others: GroupTransport) -> int:
    assert request is not None
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        for other in others:
            other.idle(0)
            if not other._threads:
                other._poll()
        size = end.test(request)
        if size is not None:
            return size
        end.idle(0.001)
    raise AssertionError("not done in time")


def message(size: int, seed: int) -> bytearray:
    return bytearray(np.random.default_rng(seed).integers(0, 256, size, np.uint8))


# ---- Messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, INLINE, INLINE + 1, 100_000, MAX_MESSAGE])
def test_messages_of_any_size(pair: list[GroupTransport], size: int) -> None:
    a, b = pair
    data, into = message(size, size), bytearray(size)
    sent = a.send(1, 2**64 - 1, memoryview(data))
    got = b.receive(0, 2**64 - 1, memoryview(into))
    assert done(b, got, a) == size
    assert done(a, sent, b) == size
    assert into == data


def test_a_message_without_a_receive_blocks_no_other(pair: list[GroupTransport]) -> None:
    a, b = pair
    tags = [2**63 + 5, 0, 2**40, 7]
    sizes = [BIG, 10, INLINE, MAX_MESSAGE]
    data = [message(size, tag % 97) for tag, size in zip(tags, sizes)]
    sent = [a.send(1, tag, memoryview(part)) for tag, part in zip(tags, data)]
    for tag, part in reversed(list(zip(tags, data))):
        into = bytearray(len(part))
        assert done(b, b.receive(0, tag, memoryview(into)), a) == len(part)
        assert into == part
    for request in sent:
        done(a, request, b)


def test_messages_of_a_tag_come_in_order(pair: list[GroupTransport]) -> None:
    a, b = pair
    data = [message(size, size) for size in (BIG, 5, INLINE, BIG + 1, 0, 9)]
    places = [bytearray(len(part)) for part in data]
    # Half of the receives are there before the messages, and the later are asked for first.
    wanted = [b.receive(0, 3, memoryview(place)) for place in places[:3]]
    sent = [a.send(1, 3, memoryview(part)) for part in data]
    wanted += [b.receive(0, 3, memoryview(place)) for place in places[3:]]
    assert b.test(wanted[-1]) is None
    for request in sent:
        done(a, request, b)
    assert b.test(wanted[-1]) is None
    for request in wanted:
        done(b, request, a)
    assert places == data


def test_both_ways_at_once(pair: list[GroupTransport]) -> None:
    requests = []
    for rank, end in enumerate(pair):
        for tag in range(8):
            into = bytearray(BIG)
            requests.append((end, end.receive(1 - rank, tag, memoryview(into)), into, tag))
    for rank, end in enumerate(pair):
        for tag in range(8):
            data = message(BIG, 10 * (1 - rank) + tag)
            requests.append((end, end.send(1 - rank, tag, memoryview(data)), None, tag))
    for end, request, into, tag in requests:
        assert done(end, request, *pair) == BIG
        if into is not None:
            assert into == message(BIG, 10 * pair.index(end) + tag)


def test_a_cancelled_receive_leaves_memory_alone(pair: list[GroupTransport]) -> None:
    a, b = pair
    first, second = bytearray(BIG), bytearray(BIG)
    cancelled = b.receive(0, 1, memoryview(first))
    kept = b.receive(0, 1, memoryview(second))
    b.cancel(cancelled)
    data = message(BIG, 1)
    done(a, a.send(1, 1, memoryview(data)), b)
    assert done(b, kept, a) == BIG
    assert second == data
    assert first == bytearray(BIG)


def test_a_cancelled_send_may_change_its_memory(pair: list[GroupTransport]) -> None:
    a, b = pair
    data = message(MAX_MESSAGE, 1)
    sent = a.send(1, 1, memoryview(data))
    assert sent is not None
    a.cancel(sent)
    expected = bytes(data)
    data[:] = bytes(len(data))
    into = bytearray(len(data))
    assert done(b, b.receive(0, 1, memoryview(into)), a) == len(data)
    assert into == expected


def test_messages_longer_than_the_receive_are_cut_and_report_their_size(
    pair: list[GroupTransport],
) -> None:
    a, b = pair
    for size in (100, BIG):
        data, into = message(size, size), bytearray(20)
        a.send(1, size, memoryview(data))
        assert done(b, b.receive(0, size, memoryview(into)[:10]), a) == size
        assert into == data[:10] + bytes(10)


def test_a_peer_that_takes_nothing_is_not_buried() -> None:
    a = GroupTransport(asked_groups(2)[0], 0, threads=False)
    data = memoryview(bytearray(MAX_MESSAGE))
    taken = 0
    while a.send(1, 1, data) is not None:
        taken += 1
        assert taken < 100
    assert SEND_WINDOW <= taken * MAX_MESSAGE <= SEND_WINDOW + 2 * MAX_MESSAGE
    assert a.send(1, 0, data[:100]) is not None, "short messages go on"
    registry.polled.discard(a)


# ---- Ends ---------------------------------------------------------------------------------------


def test_goodbye(make: MakeTransports) -> None:
    a, b = make(2)
    data, into = message(BIG, 1), bytearray(BIG)
    done(a, a.send(1, 1, memoryview(data)), b)
    assert b.alive(0)
    a.closed()
    until = time.monotonic() + DEADLINE
    while b.alive(0):
        assert time.monotonic() < until
        for end in (a, b):
            if not end._threads:
                end._poll()
    # The side that is still open has answered: the other is left with nothing.
    settle(a)
    assert done(b, b.receive(0, 1, memoryview(into))) == BIG, "what came before is still there"
    assert into == data
    assert done(b, b.send(0, 1, memoryview(data))) == BIG, "goes nowhere"
    assert b.test(b.receive(0, 2, memoryview(into))) is None
    b.closed()
    settle(a, b)


def test_the_collector_frees_a_context_while_its_thread_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = [GroupTransport(group, 0) for group in gloo_groups(2)]
    contexts = in_threads(2, lambda rank: open_over(ends[rank], 2))
    send = ends[1]._start_send
    collected = []

    def collect_and_send(*args: Any) -> None:
        if threading.current_thread().name.startswith("meron-group"):
            collected.append(gc.collect())
        send(*args)

    monkeypatch.setattr(ends[1], "_start_send", collect_and_send)
    gc.disable()
    try:
        cycle: list[Any] = [contexts.pop()]
        cycle.append(cycle)
        del cycle
        contexts.pop().close()  # its goodbye is answered by a thread of the other rank
        settle(*ends)
    finally:
        gc.enable()
    assert sum(collected) > 0


def test_a_peer_that_is_gone() -> None:
    groups = asked_groups(2)
    a, b = (GroupTransport(group, 0, threads=False) for group in groups)
    request = b.receive(0, 1, memoryview(bytearray(10)))
    assert b.test(request) is None
    groups[0].wire.dead.add(0)
    assert b.test(request) is None
    assert not b.alive(0)
    registry.polled.difference_update((a, b))
