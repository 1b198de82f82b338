# SPDX-License-Identifier: Apache-2.0
"""Meron over torch.distributed groups. Ranks are threads: over real gloo, and over a group that has
to be asked whether a message is done, as MPI's."""

from __future__ import annotations

import collections
import datetime
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import meron
from meron.torch import registry, transport
from meron.torch.transport import INLINE, MAX_MESSAGE, SEND_WINDOW, GroupTransport

DEADLINE = 20.0
BIG = 3 * INLINE


class AskedWork:
    """Of an AskedGroup: a message that is done when both sides have begun, and somebody asks."""

    def __init__(self, wire: AskedWire, key: tuple[int, int, int], tensor: torch.Tensor) -> None:
        self.wire, self.key, self.tensor = wire, key, tensor
        self.done = False

    def is_completed(self) -> bool:
        with self.wire.lock:
            sends, receives = self.wire.sends[self.key], self.wire.receives[self.key]
            while sends and receives:
                out, into = sends.popleft(), receives.popleft()
                into.tensor.copy_(out.tensor)  # equal sizes, as gloo wants them
                out.done = into.done = True
            if not self.done and self.wire.dead & set(self.key[:2]):
                raise RuntimeError("the peer is gone")
        return self.done

    def wait(self, timeout: Any = None) -> bool:
        assert self.done, "would block"
        return True


class AskedWire:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.dead: set[int] = set()
        self.sends: Any = collections.defaultdict(collections.deque)
        self.receives: Any = collections.defaultdict(collections.deque)


class AskedGroup:
    """A rank's end of a process group, as far as the transport uses it."""

    def __init__(self, wire: AskedWire, rank: int, size: int) -> None:
        self.wire, self.number, self.ranks = wire, rank, size

    def rank(self) -> int:
        return self.number

    def size(self) -> int:
        return self.ranks

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> AskedWork:
        work = AskedWork(self.wire, (self.number, peer, tag), tensors[0])
        self.wire.sends[work.key].append(work)
        return work

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> AskedWork:
        work = AskedWork(self.wire, (peer, self.number, tag), tensors[0])
        self.wire.receives[work.key].append(work)
        return work


def asked_groups(ranks: int) -> list[Any]:
    wire = AskedWire()
    return [AskedGroup(wire, rank, ranks) for rank in range(ranks)]


def gloo_groups(ranks: int) -> list[Any]:
    timeout = datetime.timedelta(seconds=2)  # of gloo's own: idle transports must not care
    # Gloo's handshake has the same limit, which a busy machine may pass.
    for _ in range(5):
        store = dist.HashStore()
        groups = in_threads(
            ranks, lambda rank, store=store: dist.ProcessGroupGloo(store, rank, ranks, timeout)
        )
        failed = [error for error in groups if isinstance(error, Exception)]
        if not failed:
            return groups
    raise failed[0]


def in_threads(ranks: int, body: Callable[[int], Any]) -> list[Any]:
    """What `body` returned on each rank, or the error that ended it."""
    results: list[Any] = [None] * ranks

    def run(rank: int) -> None:
        try:
            results[rank] = body(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * DEADLINE)
        assert not thread.is_alive(), "a rank hangs"
    return results


MakeTransports = Callable[..., list[GroupTransport]]


@pytest.fixture(params=["gloo", "asked"])
def make(request: pytest.FixtureRequest) -> MakeTransports:
    def make(ranks: int, number: int = 0, groups: list[Any] | None = None) -> list[GroupTransport]:
        gloo = request.param == "gloo"
        groups = groups or (gloo_groups(ranks) if gloo else asked_groups(ranks))
        return [GroupTransport(group, number, threads=gloo) for group in groups]

    return make


@pytest.fixture
def pair(make: MakeTransports) -> Iterator[list[GroupTransport]]:
    ends = make(2)
    yield ends
    for end in ends:
        end.closed()
    settle(*ends)


def settle(*ends: GroupTransport) -> None:
    """The goodbyes of both sides arrive; no thread stays."""
    until = time.monotonic() + DEADLINE
    while any([end._poll() for end in ends if not end._threads]):
        assert time.monotonic() < until
    for thread in list(registry.threads):
        thread.join(DEADLINE)
        assert not thread.is_alive()


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


def test_a_message_nobody_wants_yet_blocks_no_other(pair: list[GroupTransport]) -> None:
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


def test_what_is_longer_than_its_place_is_cut_and_told(pair: list[GroupTransport]) -> None:
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


def test_the_collector_frees_a_context_while_its_thread_says_goodbye(
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


# ---- Whole contexts -----------------------------------------------------------------------------


def open_over(end: GroupTransport, ranks: int, **options: Any) -> meron.Context:
    rank = end._group.rank()
    return meron.open(rank, ranks, end, **{"timeout": DEADLINE, **options})


def train(context: meron.Context, elements: int) -> list[float]:
    """Three steps on one param; the values that matter, equal on all ranks."""
    param = context.param("w", (elements,))
    unit = context.unit("u", [param])
    optimizer = context.adamw([unit], lr=0.1)
    values = []
    for _ in range(3):
        with unit.gather() as gather:
            values.append(float(gather[param].sum(dtype=np.float64)))
        gradient = np.full(elements, context.rank + 1, np.float32)
        unit.reduce({param: gradient}).wait()
        optimizer.step()
    total = np.ones(elements, np.float32)
    context.world.all_reduce(total)
    return [*values, float(total[-1])]


@pytest.mark.parametrize("ranks", [2, 3])
def test_contexts(make: MakeTransports, ranks: int) -> None:
    ends = make(ranks)
    for end in ends:
        end.max_message = 64 << 10  # so that parts are several messages

    def body(rank: int) -> list[float]:
        with open_over(ends[rank], ranks) as context:
            assert context.transport == "group"
            return train(context, 200_001)

    results = in_threads(ranks, body)
    assert all(result == results[0] for result in results), results
    assert results[0][-1] == ranks
    settle(*ends)


def test_contexts_share_a_group(make: MakeTransports) -> None:
    first = make(2)
    groups = [end._group for end in first]
    second = make(2, 1, groups)

    def body(rank: int) -> tuple[list[float], list[float]]:
        with open_over(first[rank], 2) as one, open_over(second[rank], 2, plan="zero1") as two:
            return train(one, 1000), train(two, 2000)

    results = in_threads(2, body)
    assert results[0] == results[1]
    settle(*first, *second)
    third = make(2, 2, groups)

    def later(rank: int) -> list[float]:
        with open_over(third[rank], 2) as context:
            return train(context, 1000)

    assert in_threads(2, later) == [results[0][0]] * 2
    settle(*third)


def test_diverging_calls_are_named(make: MakeTransports) -> None:
    ends = make(2)

    def body(rank: int) -> None:
        with open_over(ends[rank], 2) as context:
            context.world.all_reduce(np.ones(10 + rank, np.float32))

    for error in in_threads(2, body):
        assert isinstance(error, meron.MismatchError), error
        assert "44 bytes" in str(error)
        assert "40 bytes" in str(error)
    settle(*ends)


def test_a_rank_that_does_not_come(make: MakeTransports) -> None:
    ends = make(3)
    begun = time.monotonic()
    errors = in_threads(2, lambda rank: open_over(ends[rank], 3, timeout=0.5))
    assert time.monotonic() - begun < 5
    for error in errors:
        assert isinstance(error, meron.DeadlineError), error
        assert error.peer == 2
    ends[2].closed()
    settle(*ends)


def test_a_rank_that_left_is_named(make: MakeTransports) -> None:
    ends = make(3)

    def body(rank: int) -> Any:
        with open_over(ends[rank], 3) as context:
            context.world.barrier()
            if rank != 2:
                context.world.all_reduce(np.ones(4, np.float32))

    errors = in_threads(3, body)
    assert errors[2] is None
    for error in errors[:2]:
        assert isinstance(error, meron.PeerClosedError), error
        assert error.peer == 2
    settle(*ends)


def test_a_group_is_needed() -> None:
    with pytest.raises(meron.ArgumentError, match="not initialised"):
        transport.group_transport(None)
