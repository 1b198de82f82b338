# SPDX-License-Identifier: Apache-2.0
"""When units are gathered to a device, and how long they stay: what the engine's schedule decides
for views of the host.

A pass records the order of its uses, and the next pass of its kind follows it: while a unit is
used, those that come next are on their way. All follows from the calls alone, so that ranks that
use the same units in the same order gather in step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from meron import errors
from meron.torch.residency.device import DeviceUnit
from meron.torch.sharded_context import ShardedContext
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
    def __init__(self, sharding: ShardedContext, units: Callable[[], list[ShardedUnit]]) -> None:
        self.sharding = sharding
        self.units = units
        self.orders: dict[int, list[DeviceUnit]] = {}  # by kind of pass
        self.kind = -1
        self.order: list[DeviceUnit] = []  # of this pass, so far
        self.followed: list[DeviceUnit] = []  # of the pass before
        self.position = 0  # in it
        self.live = 0  # elements that are on the device or on their way
        self.held: dict[DeviceUnit, None] = {}  # units that are
        self.persistent: set[DeviceUnit] = set()
        self.known: tuple[int, dict[str, int]] = (0, {})  # what `persistent` was made from

    def limit(self, name: str) -> int:
        default = DEFAULTS[name]
        # What every rank has whole between steps anyway, it has on its device too.
        if name == "persist_elements" and self.sharding.keeps_params:
            default = 1 << 63
        return self.sharding.limits.get(name, default)

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
        for unit in list(self.held):
            if unit.ahead is not None and not unit.uses:
                self.give_back(unit)

    def enter(self, unit: DeviceUnit) -> None:
        """A unit is whole for what is asked of the current stream from now on. Collective where it
        is not so already; blocks on peers."""
        self.order.append(unit)
        self.follow(unit)
        self.take(unit)
        left = self.limit("prefetch_elements")
        for later in itertools.islice(self.followed, self.position, None):
            left -= later.elements
            if left < 0:
                break
            if later not in self.held:
                if self.live + later.elements > self.limit("max_live_elements"):
                    break
                self.take(later)
        unit.arrive()

    def leave(self, unit: DeviceUnit) -> None:
        """A unit is not used any more; whether it stays follows from the order."""
        if unit in self.persistent or self.comes_soon(unit):
            self.take(unit)  # it counts, also where it was pinned
        else:
            self.give_back(unit)

    def follow(self, unit: DeviceUnit) -> None:
        """Where the recorded order goes on; nowhere, when it does not have the unit any more."""
        for position in range(self.position, len(self.followed)):
            if self.followed[position] is unit:
                self.position = position + 1
                return
        self.position = len(self.followed)

    def comes_soon(self, unit: DeviceUnit) -> bool:
        if self.live > self.limit("max_live_elements"):
            return False
        # What would be begun ahead at the next use might as well stay.
        left = max(self.limit("max_reuse_elements"), self.limit("prefetch_elements"))
        for later in itertools.islice(self.followed, self.position, None):
            if later is unit:
                return True
            left -= later.elements
            if left < 0:
                return False
        return False

    def find_persistent(self) -> None:
        """The small units that stay until `drop`, in the order in which they were made."""
        made, limits = self.known
        units = self.units()
        if made == len(units) and limits is self.sharding.limits:
            return
        self.known = (len(units), self.sharding.limits)
        left = self.limit("persist_total_elements")
        self.persistent.clear()
        for unit in units:
            size = sum(handle.size for handle in unit.handles)
            if size <= min(left, self.limit("persist_elements")):
                left -= size
                self.persistent.add(unit)  # type: ignore[arg-type]

    # ---- Memory --------------------------------------------------------------------------------

    def take(self, unit: DeviceUnit) -> None:
        unit.begin()
        if unit not in self.held:
            self.held[unit] = None
            self.live += unit.elements

    def give_back(self, unit: DeviceUnit) -> None:
        unit.give_back()
        if unit in self.held:
            del self.held[unit]
            self.live -= unit.elements

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
            if not held.uses and not held.stays:
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
            if held.pinned is None and not held.stays:
                self.give_back(held)
