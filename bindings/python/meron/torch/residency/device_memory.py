# SPDX-License-Identifier: Apache-2.0
"""The params of one unit on a device.

Between gathers it holds nothing there. A gather writes the whole tensors into one storage of
torch's, whose memory is taken before and given back after, and which stays the same object: what
autograd has saved of a param, such as a transposed view, means the whole tensor again when backward
has gathered the unit.
"""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import torch

from meron import errors
from meron._native import NULL, ffi, initial, lib, new, receive
from meron.torch.residency.devices import TorchDevice
from meron.torch.tensors import DTYPES
from meron.torch.torch_internals import without_transforms
from meron.torch.unit import ShardedUnit

ALIGNMENT = 512  # bytes, as an allocation of its own would have


class GatherOrder(Protocol):
    """When units are gathered and released (read_ahead.ReadAhead)."""

    def enter(self, memory: DeviceMemory) -> None: ...
    def leave(self, memory: DeviceMemory) -> None: ...
    def take(self, memory: DeviceMemory) -> None: ...
    def give_back(self, memory: DeviceMemory) -> None: ...


class DeviceMemory:
    """Attributes that others read, beside those of every Memory:

    elements: of all params of the unit
    here:     whether they are unsharded on the device, for what is asked of the current stream
    kept:     whether they are so until values are written
    """

    def __init__(self, device: TorchDevice, read_ahead: GatherOrder, unit: ShardedUnit) -> None:
        self.device = device
        self.read_ahead = read_ahead
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
            size = handle.size * DTYPES[handle.dtype].itemsize
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
                dtype = DTYPES[handle.dtype]
                whole = torch.empty(0, dtype=dtype, device=place)
                first = offset // dtype.itemsize
                strides = torch.empty(handle.shape, device="meta").stride()
                self.wholes.append(whole.set_(storage, first, handle.shape, strides))
            storage.resize_(0)
        return storage

    def _make_options(self) -> tuple[Any, Any]:
        """What the engine is told of every gather; addresses and the stream are new each time."""
        targets = new("meron_destination[]", len(self.handles))
        for target, handle in zip(targets, self.handles):
            target.param = handle._handle
            target.bytes = handle.size * DTYPES[handle.dtype].itemsize
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
        try:
            address, self.keep_alive = self.device.landing(self.storage)
            for target, offset in zip(self.targets, self.offsets):
                target.data = ffi.cast("void *", address + offset)
            # Its memory may be read by what was asked of the stream before.
            self.options.stream = ffi.cast("void *", self.stream)
            self.ahead = receive(
                "meron_gather *", lib.meron_gather_begin, self.unit.unit._array, 1, self.options
            )
        except BaseException:
            self.keep_alive = None
            self.storage.resize_(0)
            raise

    def arrive(self) -> None:
        """The values are there for what is asked of the current stream from now on. Blocks on
        peers, and not on a CUDA device."""
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
            lib.meron_gather_release(gather, NULL)

    def give_back(self) -> None:
        """Gives the memory back, behind what was asked of its streams. Blocks on peers where a
        gather is on its way, whose copies are not to be written to what is another's then."""
        if self.ahead is not None:
            with contextlib.suppress(errors.Error):  # which is told by the next call
                self.arrive()
        if self.here:
            self.here = False
            for stream in self.users:
                if stream != self.stream:  # of which the allocator does not know
                    self.device.used_by(self.storage, stream)
            self.storage.resize_(0)

    # ---- As every Memory -----------------------------------------------------------------------

    def enter(self) -> None:
        self.read_ahead.enter(self)

    def resume(self) -> None:
        self.arrive()

    def leave(self) -> None:
        if not self.kept:
            self.read_ahead.leave(self)

    def abandon(self) -> None:
        """ReadAhead.reset gives the memory back."""

    def pin(self) -> DeviceMemory:
        if self.unit.uses == 0:
            self.begin()
            self.arrive()
        return self

    def unpin(self, lease: DeviceMemory) -> None:
        """`leave` gives the memory back."""

    def prefetch(self) -> None:
        if self.unit.uses == 0:
            self.read_ahead.take(self)

    def end_prefetch(self) -> None:
        if self.unit.uses == 0:
            self.read_ahead.give_back(self)

    def keep_begin(self) -> None:
        self.read_ahead.take(self)

    def keep(self) -> None:
        self.arrive()
        self.kept = True

    def stop_keeping(self) -> None:
        self.kept = False

    def forget(self) -> None:
        self.wholes = []

    def leases(self) -> int:
        return 0
