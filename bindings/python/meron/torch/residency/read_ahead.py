# SPDX-License-Identifier: Apache-2.0
"""When units are gathered to a device, and how long they stay: what the engine's schedule decides
for views of the host.

A pass records the order of its uses, and the next pass of its kind follows it: while a unit is
used, those that come next are on their way. All follows from the calls alone, so that ranks that
use the same units in the same order gather in step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from meron import errors
from meron.torch.residency import Owner
from meron.torch.residency.device_memory import DeviceMemory
from meron.torch.unit import ShardedUnit

# Elements, as of Context.schedule; but that nothing stays for a use that is not begun ahead yet,
# because it takes memory of the device.
DEFAULTS = {
    "prefetch_elements": 50_000_000,
    "max_live_elements": 1_000_000_000,
    "max_reuse_elements": 0,
    "persist_elements": 100_000,
    "persist_total_elements": 1 << 63,
}


class ReadAhead:
    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.orders: dict[int, list[DeviceMemory]] = {}  # by kind of pass
        self.kind = -1
        self.order: list[DeviceMemory] = []  # of this pass, so far
        self.followed: list[DeviceMemory] = []  # of the pass before
        self.position = 0  # in it
        self.live = 0  # elements that are on the device or on their way
        self.held: dict[DeviceMemory, None] = {}  # units that are
        self.persistent: set[DeviceMemory] = set()
        self.known: tuple[int, dict[str, int]] = (0, {})  # what `persistent` was made from

    def limit(self, name: str) -> int:
        default = DEFAULTS[name]
        # What every rank has whole between steps anyway, it has on its device too.
        if name == "persist_elements" and self.owner.keeps_params:
            default = 1 << 63
        return self.owner.limits.get(name, default)

    # ---- Passes --------------------------------------------------------------------------------

    def begin(self, kind: int) -> None:
        """Begins a pass; what was begun ahead and not used is given back."""
        if self.kind >= 0:
            self.orders[self.kind] = self.order
        self.kind = kind
        self.order = []
        self.followed = self.orders.get(kind, [])
        self.position = 0
        self.find_persistent()
        for memory in list(self.held):
            if memory.ahead is not None and not memory.unit.uses:
                self.give_back(memory)

    def enter(self, memory: DeviceMemory) -> None:
        """A unit is whole for what is asked of the current stream from now on. Collective where it
        is not so already; blocks on peers."""
        self.order.append(memory)
        self.follow(memory)
        self.take(memory)
        left = self.limit("prefetch_elements")
        for later in itertools.islice(self.followed, self.position, None):
            left -= later.elements
            if left < 0:
                break
            if later not in self.held:
                if self.live + later.elements > self.limit("max_live_elements"):
                    break
                self.take(later)
        memory.arrive()

    def leave(self, memory: DeviceMemory) -> None:
        """A unit is not used any more; whether it stays follows from the order."""
        if memory in self.persistent or self.comes_soon(memory):
            self.take(memory)  # it counts, also where it was pinned
        else:
            self.give_back(memory)

    def follow(self, memory: DeviceMemory) -> None:
        """Where the recorded order goes on; nowhere, when it does not have the unit any more."""
        for position in range(self.position, len(self.followed)):
            if self.followed[position] is memory:
                self.position = position + 1
                return
        self.position = len(self.followed)

    def comes_soon(self, memory: DeviceMemory) -> bool:
        if self.live > self.limit("max_live_elements"):
            return False
        # What would be begun ahead at the next use might as well stay.
        left = max(self.limit("max_reuse_elements"), self.limit("prefetch_elements"))
        for later in itertools.islice(self.followed, self.position, None):
            if later is memory:
                return True
            left -= later.elements
            if left < 0:
                return False
        return False

    def find_persistent(self) -> None:
        """The small units that stay until `drop`, in the order in which they were made."""
        made, limits = self.known
        units = self.owner.units
        if made == len(units) and limits is self.owner.limits:
            return
        self.known = (len(units), self.owner.limits)
        left = self.limit("persist_total_elements")
        self.persistent.clear()
        for unit in units:
            memory: DeviceMemory = unit.memory
            size = memory.elements
            if size <= min(left, self.limit("persist_elements")):
                left -= size
                self.persistent.add(memory)

    # ---- Memory --------------------------------------------------------------------------------

    def take(self, memory: DeviceMemory) -> None:
        memory.begin()
        if memory not in self.held:
            self.held[memory] = None
            self.live += memory.elements

    def give_back(self, memory: DeviceMemory) -> None:
        memory.give_back()
        if memory in self.held:
            del self.held[memory]
            self.live -= memory.elements

    def drop(self, written: Iterable[ShardedUnit] = ()) -> None:
        """Gives back what stays or was begun ahead, before values are written: those of `written`.

        Raises StateError for one that is in use: its values on the device would be the old ones.
        """
        for unit in written:
            if unit.uses:
                raise errors.StateError(
                    f"unit '{unit.name}' is gathered on this rank, and is to be written",
                    subject=unit.name,
                    advice="Let go of it first: leave GatheredParameters, or call reshard.",
                )
        for held in list(self.held):
            if not held.unit.uses and not held.kept:
                self.give_back(held)

    def forget_units(self) -> None:
        """Some units have gone."""
        self.reset()
        self.orders.clear()
        self.persistent.clear()
        self.known = (-1, {})

    def reset(self) -> None:
        """After an exception: nothing is in use. The recorded orders stay."""
        self.kind = -1
        self.order = []
        self.followed = []
        self.position = 0
        for held in list(self.held):
            if held.unit.pinned is None and not held.kept:
                self.give_back(held)
