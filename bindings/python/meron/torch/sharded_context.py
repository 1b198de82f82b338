# SPDX-License-Identifier: Apache-2.0
"""A context as torch code uses it: its plan, its device, and what params show of its memory."""

from __future__ import annotations

import contextlib
import faulthandler
import json

import torch

import meron
from meron.torch.residency.copy_on_write import CopyOnWrite
from meron.torch.residency.devices import TorchDevice, torch_device_of


class ShardedContext:
    """Attributes that others read:

    context:  the engine
    limits:   of the schedule
    device:   how torch reaches the context's device; None is the host
    mapped:   whether ranks share memory, so that what the host sees stays at one address
    """

    def __init__(self, context: meron.Context, limits: dict[str, int]) -> None:
        self.context = context
        self.limits = limits
        self.device: TorchDevice | None = torch_device_of(context.device)
        self.mapped = context.transport in ("self", "local", "shm")
        if self.mapped and self.device is None:
            # If copy_on_write.py does not work here, a write to a param in use ends the process;
            # the report then names the line.
            with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
                # (What stderr may be that is no file.)
                if not faulthandler.is_enabled():
                    faulthandler.enable()
        # Through which params in use are seen, so that writes to them are found.
        self.copies = None
        if self.mapped and self.device is None:
            self.copies = CopyOnWrite(context.rank)
        plan = json.loads(context.plan.json())
        self.keeps_params = plan["param"]["sharding"] == "none"
        self.keeps_gradients = plan["gradient"]["sharding"] == "none"
        self.updates_everything = plan["optimizer"]["sharding"] == "none"  # every rank
        # Whether ranks may own the same as others: those at one place of the shard axis of a mesh.
        self.alike = plan["optimizer"]["sharding"] == "shard" and plan["mesh"]["shard"] != "all"
        # Whether what is gathered has been through a codec, so that a rank's own part is closer.
        self.coded = plan["param"]["codec"] != "none"
        self.packs = plan["param"]["frozen"] == "int8"  # frozen params lie encoded everywhere
        # Whether params are unsharded between uses too, as every rank has all of them anyway.
        self.stays_whole = self.keeps_params and plan["param"]["tier"] != "nvme" and not self.packs
        self.names: dict[str, int] = {}

    @property
    def torch_device(self) -> torch.device:
        """Where params are while they are in use."""
        return torch.device("cpu") if self.device is None else self.device.torch_device

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
