# SPDX-License-Identifier: Apache-2.0
"""State of the gradients of one unit: those of this backward, and those that the engine has since
the last step."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import torch

import meron
from meron.torch.gradients.sources import Sources, sources_of
from meron.torch.tensors import DTYPES


class Phase(enum.IntEnum):
    """Of an accumulation, from one step to the next."""

    EMPTY = 0  # the engine has nothing
    BEGUN = 1  # the engine accumulates, be it nothing; equal on all ranks
    ENDED = 2  # the last backward of the step was reduced: another one would come too late
    FINISHED = 3  # the engine has the reduced gradients, which wait for a step


EMPTY, BEGUN, ENDED, FINISHED = Phase
TRANSITIONS: dict[str, dict[Phase, Phase]] = {
    "give": {EMPTY: BEGUN, BEGUN: BEGUN},
    "give last": {EMPTY: ENDED, BEGUN: ENDED},
    "finish": {EMPTY: FINISHED, BEGUN: FINISHED, ENDED: FINISHED},
    "clear": {EMPTY: EMPTY, BEGUN: EMPTY, ENDED: EMPTY, FINISHED: EMPTY},
}
GIVE, GIVE_LAST, FINISH, CLEAR = TRANSITIONS.values()


class Progress(enum.IntEnum):
    """Of a unit's gradients in a backward."""

    ARRIVING = 0
    COMPLETE = 1  # all have arrived, and wait for the unit's turn (or, in no_sync, for the next)
    GIVEN = 2  # to the engine


ARRIVING, COMPLETE, GIVEN = Progress


class Accumulation:
    """Attributes:

    trainable: indices of params that require gradients; `wanted` is their number.
    arrived:   those of them with a gradient in the current backward.
    seen:      those with a gradient since the last step; in phase FINISHED, on any rank.
    dropped:   params whose gradients the engine has, and the user has set to None. Empty after
               the accumulation.
    again:     True if a backward produced more gradients after all had arrived.
    settled:   True once a step has shown that `again` is false on all ranks. Until then give()
               does not end an accumulation, because a second gradient of a param would be lost.
    divisor:   divisor of the sum of gradients, beside the number of ranks.
    bytes:     bytes of all gradients, as they arrive.
    watches:   handles of the hooks on the params.
    """

    __slots__ = (
        *(
            "again",
            "arrived",
            "bytes",
            "divisor",
            "dropped",
            "handles",
            "phase",
            "progress",
            "seen",
        ),
        *("settled", "sources", "trainable", "wanted", "watches"),
    )

    def __init__(self, params: list[torch.nn.Parameter], handles: list[meron.Param]) -> None:
        self.handles = handles
        self.trainable = [i for i, handle in enumerate(handles) if not handle.frozen]
        self.wanted = len(self.trainable)
        self.bytes = sum(h.size * DTYPES[h.dtype_name].itemsize for h in handles if not h.frozen)
        self.phase = EMPTY
        self.progress = ARRIVING
        self.arrived: set[int] = set()
        self.seen: set[int] = set()
        self.dropped: set[int] = set()
        self.again = self.settled = False
        self.divisor = 1.0
        self.watches: list[Any] = []
        self.hold(params)

    def hold(self, params: list[torch.nn.Parameter]) -> None:
        """The params whose gradients it takes."""
        self.sources: Sources = sources_of(params, self.handles, self.trainable)

    def release_params(self) -> None:
        self.sources = Sources(self.sources.table, [])

    # ---- Transitions ---------------------------------------------------------------------------

    def give(self, last: bool) -> None:
        """The engine has taken what has arrived; `last` ends the accumulation."""
        self.arrived.clear()
        self.progress = GIVEN
        self.phase = (GIVE_LAST if last else GIVE)[self.phase]

    def forget_arrived(self) -> None:
        """Drops gradients that have arrived and were not given to the engine."""
        self.arrived.clear()
        if self.progress is COMPLETE:
            self.progress = ARRIVING

    def finish(self) -> None:
        self.phase = FINISH[self.phase]

    def clear(self) -> None:
        """The gradients were used, or are dropped."""
        self.phase = CLEAR[self.phase]
        self.seen.clear()
        self.dropped.clear()

    def drop(self, indices: Iterable[int]) -> bool:
        """Counts the gradients of some params as none. Returns True if no other param can have
        one, so that the caller discards the accumulation."""
        self.dropped.update(indices)
        self.seen -= self.dropped
        if self.phase is FINISHED:  # `seen` is of all ranks
            return not self.seen
        return self.dropped.issuperset(self.trainable)

    @property
    def empty(self) -> bool:
        """True if neither the engine nor, as far as is known, any param has a gradient of it."""
        return self.phase is EMPTY and not self.seen
