# SPDX-License-Identifier: Apache-2.0
"""Gradients that lie on a device: they stay as they are until the engine has them."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import torch

from meron._native import DEFAULT_TIMEOUT, ffi, interrupts, lib, new, settle
from meron.torch.gradients import GradientReducer

if TYPE_CHECKING:
    from meron.torch.device import TorchDevice
    from meron.torch.sharding import Sharding
    from meron.torch.unit import ShardedUnit

MOST = 2  # units whose gradients are under way: each holds memory of the device until it has ended


class DeviceReducer(GradientReducer):
    def __init__(self, sharding: Sharding, device: TorchDevice) -> None:
        super().__init__(sharding)
        self.device = device
        self.going: collections.deque[tuple[ShardedUnit, list[torch.Tensor]]] = collections.deque()

    def give(self, unit: ShardedUnit, ending: bool = False) -> None:
        """As of the host, but in the order of the current stream, without waiting for it."""
        while len(self.going) >= MOST:
            self.wait_oldest()
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

    def wait_oldest(self) -> None:
        unit, _ = self.going[0]
        slot = self._slot
        table = new("meron_unit[]", [unit.unit._handle])
        status = lib.meron_reduce_wait(table, 1, DEFAULT_TIMEOUT, slot)
        if status < 0 or interrupts:
            settle(status, slot)
        self.going.popleft()

    def wait(self) -> None:
        super().wait()
        self.going.clear()
