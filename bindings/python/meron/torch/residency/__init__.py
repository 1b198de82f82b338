# SPDX-License-Identifier: Apache-2.0
"""Homes of unsharded values while units are in use: `host.py`, or a device, `device.py`.

A context has one Residency, and each unit a Memory of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch

import meron


class Memory(Protocol):
    """Of one unit.

    wholes:       the unsharded tensors, in the order of the params, once there are any. They stay
                  the same objects until `forget`
    addresses:    of them, if they never move and a write to them is seen by its page; else none
    ahead:        the gather that began before its use, or None
    enter:        gathers, as the schedule has it, for uses from now on. Collective; blocks on peers
    resume:       as `enter`, of values that are kept
    leave:        no use is left. Never blocks
    leave_to_leases: the uses that are left are those of `pin`. Never blocks
    abandon:      as `leave`, after an exception; Residency.reset follows
    pin:          gathers beside the schedule, and returns what `unpin` takes, which comes after
                  `leave` where no use is left. Collective; blocks on peers
    prefetch:     begins to gather, for `enter`. Collective
    keep_begin:   begins to gather until `stop_keeping`. Collective
    keep:         the values that `keep_begin` gathers are there. Blocks on peers
    stop_keeping: releases them, if there are any
    forget:       the tensors are not to be shown any more
    leases:       how many gathers of the engine's `pin` and `keep_begin` hold
    """

    wholes: list[torch.Tensor]
    addresses: list[int]
    ahead: Any

    def enter(self) -> None: ...
    def resume(self) -> None: ...
    def leave(self) -> None: ...
    def leave_to_leases(self) -> None: ...
    def abandon(self) -> None: ...
    def pin(self) -> Any: ...
    def unpin(self, lease: Any) -> None: ...
    def prefetch(self) -> None: ...
    def end_prefetch(self) -> None: ...
    def keep_begin(self) -> None: ...
    def keep(self) -> None: ...
    def stop_keeping(self) -> None: ...
    def forget(self) -> None: ...
    def leases(self) -> int: ...


class Residency(Protocol):
    """Of one context.

    device:          as meron.open takes it; "" is the host
    torch_device:    the device of params in use, and of `param.device` at any time
    autograd_device: its queue of autograd has the backwards of units; None: there is one queue
    memory:          of a new unit
    reducer:         the GradientReducer of gradients on this device
    begin:           starts a pass; its uses follow the order of the last pass of equal `kind`
    renew:           units or limits have changed, so the next pass is collective
    drop:            releases kept and prefetched units, before values of some units change
    release:         the same, and releases all gathers of the schedule
    reset:           after an exception: only pinned units are in use
    forget_units:    some units have been destroyed
    refuse_written:  StateError for params that were written to in use, if their pages show it
    close:           the context will be closed next
    """

    device: str
    torch_device: torch.device
    autograd_device: torch.device | None

    def memory(self, unit: Any) -> Memory: ...
    def reducer(self, sharding: Any) -> Any: ...
    def begin(self, kind: int) -> None: ...
    def renew(self) -> None: ...
    def drop(self, written: Iterable[Any]) -> None: ...
    def release(self) -> None: ...
    def reset(self) -> None: ...
    def forget_units(self) -> None: ...
    def refuse_written(self) -> None: ...
    def close(self) -> None: ...


class Owner(Protocol):
    """The sharding; `keeps_params`: whether every rank has all params between steps."""

    context: meron.Context
    limits: dict[str, int]
    units: list[Any]
    keeps_params: bool
    mapped: bool
