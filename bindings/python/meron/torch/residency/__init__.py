# SPDX-License-Identifier: Apache-2.0
"""Where unsharded values are while units are in use: `host.py`, or a device, `device.py`.

A context has one Residency, and each unit a Memory of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch

import meron


class Memory(Protocol):
    """Of one unit.

    wholes:    the unsharded tensors, in the order of the params, once there are any. They stay the
               same objects until `forget`
    addresses: of them, where they never move and a write to them is seen by its page; else none
    ahead:     the gather that is on its way before its use, or None
    """

    wholes: list[torch.Tensor]
    addresses: list[int]
    ahead: Any

    def enter(self) -> None:
        """Gathers, as the schedule has it, for uses from now on. Collective; blocks on peers."""

    def resume(self) -> None:
        """As `enter`, of values that are kept."""

    def leave(self) -> None:
        """No use is left. Never blocks."""

    def abandon(self) -> None:
        """As `leave`, after an exception; Residency.reset follows."""

    def pin(self) -> Any:
        """Gathers beside the schedule. Collective; blocks on peers. Returns what `unpin` takes."""

    def unpin(self, lease: Any) -> None:
        """Ends `pin`, after `leave` where no use is left."""

    def prefetch(self) -> None:
        """Begins to gather, for `enter`. Collective."""

    def end_prefetch(self) -> None: ...

    def keep_begin(self) -> None:
        """Begins to gather until `stop_keeping`. Collective."""

    def keep(self) -> None:
        """The values that `keep_begin` gathers are there. Blocks on peers."""

    def stop_keeping(self) -> None:
        """Releases them. No error where there are none."""

    def forget(self) -> None:
        """The tensors are not to be shown any more."""

    def leases(self) -> int:
        """How many gathers of the engine's `pin` and `keep_begin` hold."""


class Residency(Protocol):
    """Of one context.

    device:          as meron.open takes it; "" is the host
    torch_device:    where params are in use, and what `param.device` says at any time
    autograd_device: whose queue of autograd has the backwards of units; None: there is one
    """

    device: str
    torch_device: torch.device
    autograd_device: torch.device | None

    def memory(self, unit: Any) -> Memory:
        """Of a new unit."""

    def reducer(self, sharding: Any) -> Any:
        """The GradientReducer of gradients that are there."""

    def begin(self, kind: int) -> None:
        """A pass begins: one of equal `kind` had the order in which units are to be gathered."""

    def renew(self) -> None:
        """Units or limits have changed. The next pass is collective then."""

    def drop(self, written: Iterable[Any]) -> None:
        """Releases what stays or was begun ahead, before values of the units `written` change."""

    def release(self) -> None:
        """Releases all gathers of the schedule, and that."""

    def reset(self) -> None:
        """After an exception: nothing is in use but what is pinned."""

    def forget_units(self) -> None:
        """Some units have gone."""

    def refuse_written(self) -> None:
        """StateError for params that were written to in use, where only their pages tell."""

    def close(self) -> None:
        """The context is about to be closed."""


class Owner(Protocol):
    """The sharding, as a residency needs it.

    keeps_params: whether every rank has all params between steps
    """

    context: meron.Context
    limits: dict[str, int]
    units: list[Any]
    keeps_params: bool
    mapped: bool
