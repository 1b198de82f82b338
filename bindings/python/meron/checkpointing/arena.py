# SPDX-License-Identifier: Apache-2.0
"""One buffer per kind of activation, in place of an allocation for each.

Activations that stay from forward to backward reside between short-lived tensors, and leave gaps
when they are freed (section 6.3 of arXiv 1910.02054). A buffer that is made once leaves none.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch

from meron import errors


class Kind(NamedTuple):
    """Activations of one buffer: the same argument and dtype, and where they are kept."""

    position: int
    dtype: torch.dtype
    device: torch.device
    pinned: bool  # in host memory that a device copies to and from by itself


class Slot:
    """A place in a buffer, which is free again when this object is gone."""

    __slots__ = ("arena", "index")

    def __init__(self, arena: Arena, index: int | None) -> None:
        self.arena = arena
        self.index = index
        arena.live += 1

    def __del__(self) -> None:
        self.arena.live -= 1
        if self.index is not None:
            self.arena.free.append(self.index)


class Arena:
    """The buffer of a kind: `count` slots of the size of the largest activation until now.

    With count None the first pass is counted, and has memory of its own. A larger activation than
    before has memory of its own too, until none is live and the buffer can be made anew.
    """

    def __init__(self, kind: Kind, count: int | None) -> None:
        self.kind = kind
        self.count = count
        self.known = count or 0
        self.size = 0  # elements of a slot
        self.largest = 0
        self.live = 0
        self.buffer: torch.Tensor | None = None
        # Of slots: they are freed by whichever thread runs the backward.
        self.free: deque[int] = deque()

    def place(self, size: int) -> tuple[torch.Tensor, Slot]:
        """Memory for `size` elements, for as long as the slot is kept.

        Raises StateError if more are live than the caller has said there would be.
        """
        if self.live == 0:
            self.renew(size)
        if self.count is not None and self.live >= self.count:
            raise errors.StateError(
                f"number_checkpoints is {self.count}, and checkpoint {self.live + 1} (argument "
                f"{self.kind.position}) starts before a backward has used an earlier one",
                subject="number_checkpoints",
                advice="Pass configure(num_checkpoints=) as often as a forward calls checkpoint(); "
                "call reset() after forwards that no backward follows.",
            )
        slot = Slot(self, self.free.popleft() if size <= self.size and self.free else None)
        self.largest = max(self.largest, size)
        self.known = max(self.known, self.live)
        if slot.index is None or self.buffer is None:
            return allocate(size, self.kind), slot
        # By .data: slots do not share a count of in-place changes.
        return self.buffer[slot.index * self.size :][:size].data, slot

    def renew(self, size: int) -> None:
        """Makes the buffer, or a larger one. Nothing is live."""
        self.largest = max(self.largest, size)
        if self.known and (self.size < self.largest or len(self.free) < self.known):
            self.buffer = None  # before the new one
            self.size = self.largest
            self.buffer = allocate(self.known * self.size, self.kind)
            self.free = deque(range(self.known))

    @property
    def bytes(self) -> int:
        return 0 if self.buffer is None else self.buffer.nbytes


def allocate(size: int, kind: Kind) -> torch.Tensor:
    return torch.empty(size, dtype=kind.dtype, device=kind.device, pin_memory=kind.pinned)


class Arenas:
    """The buffers of one configuration."""

    def __init__(self, count: int | None) -> None:
        self.count = count
        self.by_kind: dict[Kind, Arena] = {}

    def place(self, size: int, kind: Kind) -> tuple[torch.Tensor, Slot]:
        arena = self.by_kind.get(kind)
        if arena is None:
            arena = self.by_kind[kind] = Arena(kind, self.count)
        return arena.place(size)

    @property
    def bytes(self) -> int:
        """Of all buffers."""
        return sum(arena.bytes for arena in self.by_kind.values())
