# SPDX-License-Identifier: Apache-2.0
"""The custom transport of this runner: threads that put messages into each other's mailboxes."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict, deque

import meron

Address = tuple[int, int, int]  # from, to, tag


class Post:
    """The messages of a job that are not received yet, in the order of sending."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.messages: defaultdict[Address, deque[bytes]] = defaultdict(deque)


class Mailbox(meron.CustomTransport):
    """One rank's end. Sending copies, so that it is done at once."""

    def __init__(self, post: Post, rank: int) -> None:
        self._post = post
        self._rank = rank
        self._numbers = itertools.count()
        self._sent: dict[int, int] = {}
        self._wanted: dict[int, tuple[Address, memoryview]] = {}
        self._turns: defaultdict[Address, deque[int]] = defaultdict(deque)

    def send(self, peer: int, tag: int, data: memoryview) -> int:
        request = next(self._numbers)
        with self._post.changed:
            self._post.messages[self._rank, peer, tag].append(bytes(data))
            self._post.changed.notify_all()
        self._sent[request] = data.nbytes
        return request

    def receive(self, peer: int, tag: int, into: memoryview) -> int:
        request = next(self._numbers)
        address = (peer, self._rank, tag)
        self._wanted[request] = (address, into)
        self._turns[address].append(request)
        return request

    def test(self, request: int) -> int | None:
        if request in self._sent:
            return self._sent.pop(request)
        address, into = self._wanted[request]
        if self._turns[address][0] != request:
            return None
        with self._post.changed:
            if not self._post.messages[address]:
                return None
            message = self._post.messages[address].popleft()
        into[: len(message)] = message
        self._forget(request)
        return len(message)

    def cancel(self, request: int) -> None:
        self._sent.pop(request, None)
        if request in self._wanted:
            self._forget(request)

    def idle(self, timeout: float) -> None:
        with self._post.changed:
            self._post.changed.wait(timeout)

    def _forget(self, request: int) -> None:
        address, _ = self._wanted.pop(request)
        self._turns[address].remove(request)


joining = threading.Lock()
posts: dict[str, tuple[Post, set[int]]] = {}


def join(job: str, rank: int, world: int) -> Mailbox:
    """This rank's mailbox of a job; the first rank that asks makes the job's post."""
    with joining:
        post, ranks = posts.setdefault(job, (Post(), set()))
        ranks.add(rank)
        if len(ranks) == world:
            del posts[job]
    return Mailbox(post, rank)
