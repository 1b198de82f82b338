# SPDX-License-Identifier: Apache-2.0
"""A context as torch code uses it: its plan, and where its params are in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch

import meron
from meron.torch.gradients import Reducer
from meron.torch.residency import Residency


class ShardedContext:
    """Attributes that others read:

    context:   the engine
    limits:    of the schedule
    residency: where params are in use
    reducer:   of gradients
    mapped:    whether ranks share memory, so that what the host sees stays at one address
    """

    residency: Residency
    reducer: Reducer

    def __init__(self, context: meron.Context, limits: dict[str, int]) -> None:
        self.context = context
        self.limits = limits
        self.mapped = context.transport in ("self", "local", "shm")
        plan = json.loads(context.plan.json())
        self.keeps_params = plan["param"]["sharding"] == "none"
        self.keeps_gradients = plan["gradient"]["sharding"] == "none"
        self.updates_everything = plan["optimizer"]["sharding"] == "none"  # every rank
        # True if several ranks may own the same elements: those at one index of the shard axis.
        self.alike = plan["optimizer"]["sharding"] == "shard" and plan["mesh"]["shard"] != "all"
        # True if gathered values went through a codec: a rank's own part is then more exact.
        self.coded = plan["param"]["codec"] != "none"
        self.packs = plan["param"]["frozen"] == "int8"  # frozen params lie encoded everywhere
        # True if params are unsharded between uses too, as every rank has all of them anyway.
        self.stays_whole = self.keeps_params and plan["param"]["tier"] != "nvme" and not self.packs
        self.names: dict[str, int] = {}
        self.unfinished: Callable[[], None] | None = None  # waits for a step interrupted twice

    @property
    def torch_device(self) -> torch.device:
        """The device of params while they are in use."""
        return self.residency.torch_device

    def finish_step(self) -> None:
        """Waits for a step that a second interrupt has left under way, if there is one. Blocks on
        peers. Raises the step's error, once."""
        if self.unfinished is not None:
            self.unfinished()

    def takes_writes(self, _unit: Any) -> bool:
        """True if a unit, which is out of use, may be written now. Local."""
        raise NotImplementedError

    def publish(self, _unit: Any, _values: dict[int, torch.Tensor]) -> None:
        """Writes whole values that this rank has made of those of a unit. Collective."""
        raise NotImplementedError

    def broadcast(self, value: torch.Tensor, root: int = 0) -> torch.Tensor:
        """Rank `root`'s values, on every rank. Collective."""
        own = value.detach().to("cpu").contiguous()
        if own.numel() and self.context.rank != root:
            own = own.clone()
        if own.numel():
            self.context.world.broadcast(own.view(-1).view(torch.uint8).numpy(), root)
        return own

    def unique(self, name: str) -> str:
        """`name`, with a number behind it when it is taken."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if count == 0 else self.unique(f"{name}#{count + 1}")
