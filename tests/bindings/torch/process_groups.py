# SPDX-License-Identifier: Apache-2.0
"""Process groups between ranks that are threads: over real gloo, and over a group that has to be
asked whether a message is done, as MPI's. And Meron's transports and contexts over them."""

from __future__ import annotations

import collections
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import meron
from meron.torch import registry
from meron.torch.transport import GroupTransport

DEADLINE = 20.0


class AskedWork:
    """A message of an AskedGroup. It completes when both sides have begun and one of them polls."""

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
    """Runs `body` on each rank in a thread. Returns the results, or the errors in their place."""
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


def transports_over(kind: str) -> MakeTransports:
    """Of groups of gloo, or of groups that have to be asked."""

    def make(ranks: int, number: int = 0, groups: list[Any] | None = None) -> list[GroupTransport]:
        gloo = kind == "gloo"
        groups = groups or (gloo_groups(ranks) if gloo else asked_groups(ranks))
        return [GroupTransport(group, number, threads=gloo) for group in groups]

    return make


def settle(*ends: GroupTransport) -> None:
    """The goodbyes of both sides arrive; no thread stays."""
    until = time.monotonic() + DEADLINE
    while any([end._poll() for end in ends if not end._threads]):
        assert time.monotonic() < until
    for thread in list(registry.threads):
        thread.join(DEADLINE)
        assert not thread.is_alive()


def open_over(end: GroupTransport, ranks: int, **options: Any) -> meron.Context:
    rank = end._group.rank()
    return meron.open(rank, ranks, end, **{"timeout": DEADLINE, **options})
