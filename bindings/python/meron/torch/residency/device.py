# SPDX-License-Identifier: Apache-2.0
"""Params that are used on a device: gathers write to its memory, in the order of read_ahead.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from meron.torch.gradients.reducer import GradientReducer
from meron.torch.residency import Memory, Owner
from meron.torch.residency.device_gradients import DeviceReducer
from meron.torch.residency.device_memory import DeviceMemory
from meron.torch.residency.devices import TorchDevice
from meron.torch.residency.read_ahead import ReadAhead
from meron.torch.unit import ShardedUnit


class DeviceResidency:
    def __init__(self, owner: Owner, on_device: TorchDevice) -> None:
        self.owner = owner
        self.on_device = on_device
        self.device = owner.context.device
        self.torch_device = on_device.torch_device
        self.autograd_device: torch.device | None = on_device.torch_device
        self.read_ahead = ReadAhead(owner)

    def memory(self, unit: ShardedUnit) -> Memory:
        return DeviceMemory(self.on_device, self.read_ahead, unit)

    def reducer(self, sharding: Any) -> GradientReducer:
        return DeviceReducer(sharding, self.on_device)

    def begin(self, kind: int) -> None:
        self.read_ahead.begin(kind)

    def drop(self, written: Iterable[ShardedUnit]) -> None:
        self.read_ahead.drop(written)

    def reset(self) -> None:
        self.read_ahead.reset()

    def forget_units(self) -> None:
        self.read_ahead.forget_units()

    def renew(self) -> None:
        """ReadAhead looks at limits and units in every pass."""

    def release(self) -> None:
        """`drop` has done so."""

    def refuse_written(self) -> None:
        """Their counts of changes tell: the memory is torch's own."""

    def close(self) -> None:
        """The memory is torch's own."""
