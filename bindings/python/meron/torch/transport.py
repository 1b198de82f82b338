# SPDX-License-Identifier: Apache-2.0
"""Meron over any torch.distributed group that sends from CPU memory: gloo, mpi, others.

A group offers less than the engine needs (meron/transport.h):

- Both sides of a message must know its size, and tags are small numbers. So every message begins
  with a frame of fixed size, which has the engine's tag and the size; a short message is in the
  frame, a longer one follows. Frames use one tag of the group, and the rest of long messages
  another, in the order in which they were sent. Messages are received at once and kept by the
  engine's tag, even if the engine has not requested them: so no message blocks others.
- A message under way cannot be cancelled. So it is sent from, and received into, memory of this
  file's own, which lives until the group is done with it.
- gloo only reports the end of a message, or the loss of a peer, to threads that wait for it. So
  two threads per peer wait there; with other backends the engine's calls ask.
"""

from __future__ import annotations

import atexit
import collections
import datetime
import itertools
import queue
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from meron import errors
from meron._finalizers import called_back
from meron._lifetime import close_all
from meron.torch import registry
from meron.torch.torch_internals import cpu_backend, default_group
from meron.transport import CustomTransport

FRAME = 1024  # bytes
HEAD = struct.Struct("<QQ")  # the engine's tag, and the size of the message
INLINE = FRAME - HEAD.size
GOODBYE = 2**64 - 1  # as a size: nothing comes after this
FRAMES_AHEAD = 4  # receives of frames that are posted in advance
MAX_MESSAGE = 4 << 20
# Bytes of one peer that are under way, at most: beyond them longer messages have to wait.
SEND_WINDOW = 8 * MAX_MESSAGE

# Tags of the group's, which every backend takes; programs that send by these would disturb it.
FIRST_TAG, CONTEXTS = 24576, 4096
# gloo ends all of a group's connections when one wait takes too long; deadlines are the engine's.
FOREVER = datetime.timedelta(days=3650)
EXIT_PATIENCE = 2.0  # seconds

Address = tuple[int, int]  # rank, the engine's tag
Outgoing = tuple[int, list[torch.Tensor], list[Any]]  # request; memory and works that it needs


def group_transport(group: Any = None, number: int = 0) -> GroupTransport:
    """A transport over a torch.distributed group; None is the default group.

    Ranks are the group's. Several transports over one group at a time need different numbers, the
    same on all ranks.

    Raises ArgumentError when torch.distributed is not initialised, or the group is for GPUs only.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise errors.argument(
            "torch.distributed is not initialised: there is no group to send by",
            advice='Call torch.distributed.init_process_group("gloo") first.',
        )
    group = group if group is not None else default_group()
    try:
        backend = cpu_backend(group)
    except RuntimeError:
        raise errors.argument(
            f"the group's backend ({dist.get_backend(group)}) does not send from CPU memory",
            advice='Pass group=torch.distributed.new_group(backend="gloo"), or initialise '
            'torch.distributed with backend="cpu:gloo,cuda:nccl".',
        ) from None
    return GroupTransport(group, number, threads=backend == "gloo")


class Peer:
    """One other rank of the group."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ended = False  # it said goodbye, or cannot be reached
        self.under_way = 0  # bytes
        self.giving = threading.Lock()  # held while the group is given a message
        self.goodbye = False  # said to it, or not needed: guarded by `giving`
        # Messages for the group to send, in order; None is the end.
        self.outgoing: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self.sending: Outgoing | None = None  # its head, without threads
        self.incoming: Iterator[Any] | None = None
        self.awaited: Any = None  # what `incoming` waits for, without threads


class GroupTransport(CustomTransport):
    """The engine's messages over a torch.distributed group.

    One context uses it, as with every transport. Its end: a rank whose context is closed says
    goodbye, each peer's thread answers with its own, and nothing is left to the group then.
    """

    def __init__(self, group: Any, number: int = 0, threads: bool = True) -> None:
        self.name = "group"
        self.max_message = MAX_MESSAGE
        self._group = group
        self._frames_tag = FIRST_TAG + 2 * (number % CONTEXTS)
        self._rest_tag = self._frames_tag + 1
        self._threads = threads
        self._changed = threading.Condition()
        # Shared with the threads, guarded by _changed.
        self._messages: collections.defaultdict[Address, collections.deque[memoryview]]
        self._messages = collections.defaultdict(collections.deque)
        self._sent: dict[int, bool] = {}  # requests, whether they are done
        self._news = False  # since the last idle
        # Of the engine's calls, which come one at a time.
        self._numbers = itertools.count()
        self._sizes: dict[int, tuple[Peer, int]] = {}  # of requests to send
        self._wanted: dict[int, tuple[Address, memoryview]] = {}  # of requests to receive
        self._turns: collections.defaultdict[Address, collections.deque[int]]
        self._turns = collections.defaultdict(collections.deque)
        self._peers = {r: Peer(r) for r in range(group.size()) if r != group.rank()}
        for peer in self._peers.values():
            peer.incoming = self._take(peer)
            if threads:
                start(self._receive_all, peer)
                start(self._finish_sends, peer)
        if not threads:
            registry.polled.add(self)

    # ---- For the engine ------------------------------------------------------------------------

    def send(self, peer: int, tag: int, data: memoryview) -> int | None:
        to = self._peers[peer]
        if data.nbytes > INLINE and to.under_way > SEND_WINDOW:
            return None
        request = next(self._numbers)
        with self._changed:
            self._sent[request] = False
        self._sizes[request] = (to, data.nbytes)
        self._give(to, request, tag, data)
        return request

    def receive(self, peer: int, tag: int, into: memoryview) -> int:
        request = next(self._numbers)
        address = (peer, tag)
        self._wanted[request] = (address, into)
        self._turns[address].append(request)
        return request

    def test(self, request: int) -> int | None:
        if not self._threads:
            self._poll()
        if request in self._sizes:
            peer, size = self._sizes[request]
            # A message to a rank that is gone counts as sent: `alive` reports the loss.
            if not self._sent[request] and not peer.ended:
                return None
            self.cancel(request)
            return size
        address, into = self._wanted[request]
        if self._turns[address][0] != request:
            return None
        with self._changed:
            messages = self._messages.get(address)
            if not messages:
                return None
            message = messages.popleft()
            if not messages:
                del self._messages[address]
        part = min(message.nbytes, into.nbytes)
        into[:part] = message[:part]
        self.cancel(request)
        return message.nbytes

    def cancel(self, request: int) -> None:
        if request in self._sizes:
            del self._sizes[request]
            with self._changed:
                del self._sent[request]
        else:
            address, _ = self._wanted.pop(request)
            turns = self._turns[address]
            turns.remove(request)
            if not turns:
                del self._turns[address]

    def alive(self, peer: int) -> bool:
        return not self._peers[peer].ended

    def idle(self, timeout: float) -> None:
        if not self._threads:
            return time.sleep(min(timeout, 1e-4))
        with self._changed:
            if not self._news:
                self._changed.wait(timeout)
            self._news = False

    def closed(self) -> None:
        for peer in self._peers.values():
            self._say_goodbye(peer)

    # ---- Sending -------------------------------------------------------------------------------

    def _give(self, peer: Peer, request: int, tag: int, data: memoryview) -> None:
        """Gives a message to the group: a frame, and what does not fit into it."""
        frame = bytearray(FRAME)
        HEAD.pack_into(frame, 0, tag, data.nbytes)
        inline = data.nbytes <= INLINE
        if inline:
            frame[HEAD.size : HEAD.size + data.nbytes] = data
        memory = [torch.frombuffer(frame, dtype=torch.uint8)]
        if not inline:
            memory.append(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        with peer.giving:
            if not peer.goodbye:
                self._start_send(peer, request, memory)

    def _start_send(self, peer: Peer, request: int, memory: list[torch.Tensor]) -> None:
        works: list[Any] = []
        try:
            for tensor, tag in zip(memory, (self._frames_tag, self._rest_tag)):
                works.append(self._group.send([tensor], peer.rank, tag))
        except RuntimeError:
            self._end(peer)
        with self._changed:
            peer.under_way += longer(memory)
        peer.outgoing.put((request, memory, works))

    def _say_goodbye(self, peer: Peer) -> None:
        """Nothing is sent to a peer any more."""
        frame = bytearray(FRAME)
        HEAD.pack_into(frame, 0, 0, GOODBYE)
        with peer.giving:
            if peer.goodbye:
                return
            peer.goodbye = True
            # One for each receive that it has posted.
            for _ in range(FRAMES_AHEAD):
                self._start_send(peer, -1, [torch.frombuffer(frame, dtype=torch.uint8)])
            peer.outgoing.put(None)

    def _finish_sends(self, peer: Peer) -> None:
        """Of a thread: waits for what was given to the group, in order."""
        while (outgoing := peer.outgoing.get()) is not None:
            try:
                for work in outgoing[2]:
                    work.wait(FOREVER)
            except RuntimeError:
                self._end(peer)
            self._send_done(peer, outgoing)
            del outgoing

    def _send_done(self, peer: Peer, outgoing: Outgoing) -> None:
        request, memory, _ = outgoing
        with self._changed:
            if request in self._sent:
                self._sent[request] = True
            peer.under_way -= longer(memory)
            self._tell()

    # ---- Receiving -----------------------------------------------------------------------------

    def _take(self, peer: Peer) -> Iterator[Any]:
        """Receives all messages of a peer; yields each request that must end first."""
        posted: collections.deque[tuple[bytearray, Any]] = collections.deque()
        last = 0
        while last < FRAMES_AHEAD:
            while len(posted) < FRAMES_AHEAD - last:
                posted.append(self._post(peer))
            frame, work = posted.popleft()
            yield work
            tag, size = HEAD.unpack_from(frame)
            if size == GOODBYE:
                last += 1
                self._end(peer)
                self._say_goodbye(peer)
                continue
            if size <= INLINE:
                message = memoryview(frame)[HEAD.size : HEAD.size + size]
            else:
                rest = torch.empty(size, dtype=torch.uint8, device="cpu")
                yield self._group.recv([rest], peer.rank, self._rest_tag)
                message = rest.numpy().data
            with self._changed:
                self._messages[peer.rank, tag].append(message)
                self._tell()

    def _post(self, peer: Peer) -> tuple[bytearray, Any]:
        frame = bytearray(FRAME)
        tensor = torch.frombuffer(frame, dtype=torch.uint8)
        return frame, self._group.recv([tensor], peer.rank, self._frames_tag)

    def _receive_all(self, peer: Peer) -> None:
        """Of a thread."""
        assert peer.incoming is not None
        try:
            for work in peer.incoming:
                work.wait(FOREVER)
        except RuntimeError:  # the peer is gone
            self._end(peer)
            self._say_goodbye(peer)

    def _end(self, peer: Peer) -> None:
        with self._changed:
            peer.ended = True
            self._tell()

    def _tell(self) -> None:
        self._news = True
        self._changed.notify_all()

    # ---- Without threads -----------------------------------------------------------------------

    def _poll(self) -> bool:
        """Continues requests that are done; returns true if one is still under way."""
        busy = False
        for peer in self._peers.values():
            try:
                busy = self._poll_receives(peer) or busy
                busy = self._poll_sends(peer) or busy
            except RuntimeError:
                peer.incoming = None
                self._end(peer)
                self._say_goodbye(peer)
        return busy

    def _poll_receives(self, peer: Peer) -> bool:
        while peer.incoming is not None:
            if peer.awaited is not None:
                if not peer.awaited.is_completed():
                    return True
                peer.awaited.wait()
            peer.awaited = next(peer.incoming, None)
            if peer.awaited is None:
                peer.incoming = None
        return False

    def _poll_sends(self, peer: Peer) -> bool:
        while peer.sending is not None or not peer.outgoing.empty():
            if peer.sending is None:
                peer.sending = peer.outgoing.get()
                if peer.sending is None:
                    return False
            works = peer.sending[2]
            if not peer.ended:
                if not all(work.is_completed() for work in works):
                    return True
                for work in works:
                    work.wait()
            self._send_done(peer, peer.sending)
            peer.sending = None
        return False


def longer(memory: list[torch.Tensor]) -> int:
    """Bytes of a message beside its frame."""
    return sum(tensor.numel() for tensor in memory[1:])


# ---- What outlives a context --------------------------------------------------------------------


def start(function: Any, peer: Peer) -> None:
    threads = registry.threads
    threads.difference_update([thread for thread in threads if not thread.is_alive()])
    name = f"meron-group-{peer.rank}"
    # A context that the collector frees there says goodbye by a lock that the thread may hold.
    main = called_back(function)
    thread = threading.Thread(target=main, args=(peer,), name=name, daemon=True)
    thread.start()
    threads.add(thread)


@atexit.register
def finish_all() -> None:
    """Closes all contexts, and lets the goodbyes of both sides arrive.

    A thread that came back from the group while the interpreter ends would abort the process.
    """
    close_all()
    until = time.monotonic() + EXIT_PATIENCE
    for thread in list(registry.threads):
        thread.join(max(until - time.monotonic(), 0))
    while time.monotonic() < until and any([transport._poll() for transport in registry.polled]):
        time.sleep(1e-3)
