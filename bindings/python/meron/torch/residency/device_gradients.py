# SPDX-License-Identifier: Apache-2.0
"""Gradients on a device. They stay unchanged until the engine has them."""

from __future__ import annotations

import collections

import torch

from meron._native import DEFAULT_TIMEOUT, ERROR_OUT, ffi, interrupts, lib, new, settle
from meron.torch.gradients import Owner
from meron.torch.gradients.reducer import GradientReducer
from meron.torch.residency.devices import TorchDevice
from meron.torch.unit import ShardedUnit

# Most units whose gradients are under way: each holds memory of the device until it has ended. More
# are allowed while they hold no more than MOST_BYTES. A wait for one keeps the thread from queuing
# the next layer's work.
MOST = 2
MOST_BYTES = 256 << 20


class DeviceReducer(GradientReducer):
    def __init__(self, sharding: Owner, device: TorchDevice) -> None:
        super().__init__(sharding)
        self.device = device
        self.going: collections.deque[tuple[ShardedUnit, list[torch.Tensor]]] = collections.deque()
        self.bytes = 0  # that they hold

    def give(self, unit: ShardedUnit, ending: bool = False) -> None:
        """As of the host, but in the order of the current stream, without waiting for it."""
        while len(self.going) >= MOST:
            if not self.release_oldest(DEFAULT_TIMEOUT if self.bytes > MOST_BYTES else 0):
                break
        stream = ffi.cast("void *", self.device.stream())
        self._options.stream = self._ending.stream = stream
        held = []
        for i in unit.trainable:
            param = unit.params[i]
            if param.grad is not None:
                param.grad = self.device.gradient(param.grad)
                held.append(param.grad)
        super().give(unit, ending)
        self.going.append((unit, held))
        self.bytes += sum(gradient.nbytes for gradient in held)

    def release_oldest(self, timeout: int) -> bool:
        """True if the engine has the oldest unit's gradients, or has them within `timeout` ns."""
        unit, held = self.going[0]
        slot = ffi.new(ERROR_OUT)
        table = new("meron_unit[]", [unit.unit._handle])
        status = lib.meron_reduce_wait(table, 1, timeout, slot)
        if status < 0 or interrupts:
            settle(status, slot)
        if status > 0:
            return False
        self.going.popleft()
        self.bytes -= sum(gradient.nbytes for gradient in held)
        return True

    def wait(self) -> None:
        super().wait()
        self.going.clear()
        self.bytes = 0
