# SPDX-License-Identifier: Apache-2.0
"""Params that are used on a device: gathers write to its memory.

Between gathers a unit holds nothing there. A gather writes the full tensors into one storage of
torch. The storage stays the same object, but has memory only while the unit is gathered. A tensor
that autograd has saved of a param, such as a transposed view, shares it, and is full again when
backward has gathered the unit.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any

import torch

from meron import errors
from meron._native import NULL, call, ffi, initial, lib, new
from meron.torch.gradients.reducer import GradientReducer
from meron.torch.residency import Memory, Owner
from meron.torch.residency.device_gradients import DeviceReducer
from meron.torch.residency.devices import TorchDevice
from meron.torch.tensors import DTYPES
from meron.torch.torch_internals import without_transforms
from meron.torch.unit import ShardedUnit

ALIGNMENT = 512  # bytes, as an allocation of its own would have
# Elements, as of Context.schedule; but that nothing stays for a use that is not begun ahead yet,
# because it takes memory of the device.
DEFAULTS = {
    "prefetch_elements": 50_000_000,
    "max_live_elements": 1_000_000_000,
    "max_reuse_elements": 0,
    "persist_elements": 100_000,
    "persist_total_elements": 1 << 63,
}


class DeviceMemory:
    """Attributes that others read, beside those of every Memory:

    elements: of all params of the unit
    here:     true if they are unsharded on the device, for work on the current stream
    kept:     true if they stay so until values are written
    """

    def __init__(self, residency: DeviceResidency, unit: ShardedUnit) -> None:
        self.residency = residency
        self.device = residency.on_device
        self.unit = unit
        self.handles = unit.handles
        self.elements = sum(handle.size for handle in self.handles)
        self.here = self.kept = False
        self.ahead: Any = None
        self.stream = 0  # that the memory was taken for
        self.users: list[int] = []  # streams that it is there for, in order
        self.keep_alive: Any = None  # of a gather that is on its way
        self.offsets: list[int] = []
        self.bytes = 0
        for handle in self.handles:
            self.offsets.append(self.bytes)
            size = handle.size * DTYPES[handle.dtype_name].itemsize
            self.bytes += -(-size // ALIGNMENT) * ALIGNMENT
        self.wholes: list[torch.Tensor] = []
        self.addresses: list[int] = []
        self.storage = self._make_wholes()
        self.options, self.targets = self._make_options()

    def _make_wholes(self) -> torch.UntypedStorage:
        """Tensors over one storage, which is empty then."""
        place = self.device.torch_device
        with torch.inference_mode(False), torch.no_grad(), without_transforms():
            storage = torch.empty(self.bytes, dtype=torch.uint8, device=place).untyped_storage()
            for handle, offset in zip(self.handles, self.offsets):
                dtype = DTYPES[handle.dtype_name]
                whole = torch.empty(0, dtype=dtype, device=place)
                first = offset // dtype.itemsize
                strides = torch.empty(handle.shape, device="meta").stride()
                self.wholes.append(whole.set_(storage, first, handle.shape, strides))
            storage.resize_(0)
        return storage

    def _make_options(self) -> tuple[Any, Any]:
        """The options of every gather; addresses and the stream are new each time."""
        targets = new("meron_destination[]", len(self.handles))
        for target, handle in zip(targets, self.handles):
            target.param = handle._handle
            target.bytes = handle.size * DTYPES[handle.dtype_name].itemsize
        options = initial("meron_gather_options")
        options.mode = lib.MERON_GATHER_INTO
        options.destinations = targets
        options.destination_count = len(targets)
        return options, targets

    # ---- Memory of the device ------------------------------------------------------------------

    def begin(self) -> None:
        """Takes memory and begins to gather, where neither was done. Collective."""
        if self.here or self.ahead is not None:
            return
        self.stream = self.device.stream()
        self.storage.resize_(self.bytes)
        begun = new("meron_future *")
        try:
            address, self.keep_alive = self.device.landing(self.storage)
            for target, offset in zip(self.targets, self.offsets):
                target.data = ffi.cast("void *", address + offset)
            # Earlier work on the stream may still read its memory.
            self.options.stream = ffi.cast("void *", self.stream)
            call(lib.meron_gather_begin, begun, self.unit.unit._array, 1, self.options)
        except BaseException:
            if not begun.id:  # else an interrupt behind the call: the gather goes on
                self.keep_alive = None
                self.storage.resize_(0)
            raise
        finally:
            if begun.id:
                self.ahead = begun[0]

    def arrive(self) -> None:
        """Makes the values available to later work on the current stream. Blocks on peers, except
        on a CUDA device."""
        if self.here:
            stream = self.device.stream()
            if stream not in self.users:
                self.device.follow(self.users[-1])
                self.users.append(stream)
            return
        try:
            self.device.land(self.ahead, self.storage, self.keep_alive)
        except BaseException:
            self._release()
            self.storage.resize_(0)
            raise
        self._release()
        self.here = True
        self.users = [self.device.stream()]

    def _release(self) -> None:
        gather, self.ahead = self.ahead, None
        self.keep_alive = None
        if gather is not None:
            lib.meron_future_release(gather, NULL)

    def give_back(self) -> None:
        """Releases the memory, behind the work on its streams. If a gather is under way, blocks on
        peers first, because its copies must not be written to memory of others."""
        if self.ahead is not None:
            with contextlib.suppress(errors.Error):  # the next call reports it
                self.arrive()
        if self.here:
            self.here = False
            for stream in self.users:
                if stream != self.stream:  # of which the allocator does not know
                    self.device.used_by(self.storage, stream)
            self.storage.resize_(0)

    # ---- As every Memory -----------------------------------------------------------------------

    def enter(self) -> None:
        self.residency.enter(self)

    def resume(self) -> None:
        self.arrive()

    def leave(self) -> None:
        if not self.kept:
            self.residency.leave(self)

    def leave_to_leases(self) -> None:
        """It stays."""

    def abandon(self) -> None:
        """`reset` gives the memory back."""

    def pin(self) -> DeviceMemory:
        if self.unit.uses == 0:
            self.begin()
            self.arrive()
        return self

    def unpin(self, lease: DeviceMemory) -> None:
        """`leave` gives the memory back."""

    def prefetch(self) -> None:
        if self.unit.uses == 0:
            self.residency.take(self)

    def end_prefetch(self) -> None:
        if self.unit.uses == 0:
            self.residency.give_back(self)

    def keep_begin(self) -> None:
        self.residency.take(self)

    def keep(self) -> None:
        self.arrive()
        self.kept = True

    def stop_keeping(self) -> None:
        self.kept = False

    def forget(self) -> None:
        self.wholes = []

    def leases(self) -> int:
        return 0


class DeviceResidency:
    """Decides when units are gathered to a device, and how long they stay, as the engine's schedule
    does for views of the host.

    A pass records the order of its uses, and the next pass of its kind follows it: while a unit is
    used, those that come next are on their way. All follows from the calls alone, so that ranks
    that use the same units in the same order gather in step.
    """

    def __init__(self, owner: Owner, on_device: TorchDevice) -> None:
        self.owner = owner
        self.on_device = on_device
        self.device = owner.context.device
        self.torch_device = on_device.torch_device
        self.autograd_device: torch.device | None = on_device.torch_device
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
        # If every rank keeps full params between steps, it keeps them on its device too.
        if name == "persist_elements" and self.owner.keeps_params:
            default = 1 << 63
        return self.owner.limits.get(name, default)

    def memory(self, unit: ShardedUnit) -> Memory:
        return DeviceMemory(self, unit)

    def reducer(self, sharding: Any) -> GradientReducer:
        return DeviceReducer(sharding, self.on_device)

    def renew(self) -> None:
        """Every pass looks at limits and units."""

    def release(self) -> None:
        """`drop` has done so."""

    def refuse_written(self) -> None:
        """The params' counts of changes suffice, as the memory is torch's own."""

    def close(self) -> None:
        """The memory is torch's own."""

    # ---- Passes --------------------------------------------------------------------------------

    def begin(self, kind: int) -> None:
        """Begins a pass; releases units that were gathered ahead and not used."""
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
        """Makes a unit unsharded for later work on the current stream. Collective unless it is so
        already; blocks on peers."""
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
        """Moves to the unit's next use in the recorded order; to the end if there is none."""
        for position in range(self.position, len(self.followed)):
            if self.followed[position] is memory:
                self.position = position + 1
                return
        self.position = len(self.followed)

    def comes_soon(self, memory: DeviceMemory) -> bool:
        if self.live > self.limit("max_live_elements"):
            return False
        # A unit that the next use would gather ahead can stay.
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
        """Releases kept and prefetched units, before values are written: those of `written`.

        Raises StateError for one that is in use: its values on the device would be the old ones.
        """
        for unit in written:
            if unit.uses:
                raise errors.StateError(
                    f"unit '{unit.name}' is gathered on this rank: its values cannot be written",
                    subject=unit.name,
                    advice="Release it first: leave GatheredParameters, or call reshard.",
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
            if not held.unit.leases() and not held.kept:
                self.give_back(held)
