# SPDX-License-Identifier: Apache-2.0
"""Keeps the arguments of a checkpointed function until its recomputation.

    partition_activations            rank r of a model-parallel group of N keeps elements
                                     [r*k, (r+1)*k) of an activation, k = ceil(numel / N), and the
                                     ranks gather it for the recomputation (section 6.1 of
                                     arXiv 1910.02054)
    cpu_checkpointing                a copy in pinned host memory, made on a stream of its own while
                                     the device keeps computing
    contiguous_memory_optimization   a place in a buffer that is made once (arena.py)

They apply to activations: floating-point tensors that require gradients and are no Parameters.
Everything else is kept by reference, as autograd does.
"""

from __future__ import annotations

import hashlib
import weakref
from typing import Any

import torch
import torch.distributed as dist

from meron import errors
from meron.checkpointing.arena import Arenas, Kind, allocate
from meron.checkpointing.layout import Layout
from meron.checkpointing.settings import Settings

# The second is the name of before torch 2.13.
gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def is_activation(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, torch.nn.Parameter)
        and value.requires_grad
        and value.is_floating_point()
        and value.layout == torch.strided
        and value.numel() > 0
    )


def is_on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


class Partition:
    """The model-parallel group's ranks, over which activations are partitioned."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.ranks = dist.get_world_size(group)
        self.checked = False

    def shard(self, flat: torch.Tensor) -> torch.Tensor:
        """This rank's elements: a view, or a padded copy at the end."""
        length = -(-flat.numel() // self.ranks)
        own = flat[self.rank * length :][:length]
        if own.numel() == length:
            return own
        return torch.cat([own, own.new_zeros(length - own.numel())])

    def gather(self, shard: torch.Tensor, size: int) -> torch.Tensor:
        """The full flat tensor. Collective over the group, in the order of recomputations.
        StateError if the group was destroyed since the forward."""
        self.check_group()
        full = torch.empty(shard.numel() * self.ranks, dtype=shard.dtype, device=shard.device)
        gather_single(full.view(torch.uint8), shard.view(torch.uint8), group=self.group)
        return full[:size]

    def check_group(self) -> None:
        try:
            dist.get_process_group_ranks(self.group)
        except (KeyError, RuntimeError, ValueError):  # torch has forgotten it
            raise errors.StateError(
                "partition_activations: the model-parallel group was destroyed between a forward "
                "and its backward, which needs the other ranks' parts of the activations",
                subject="partition_activations",
                advice="Call torch.distributed.destroy_process_group after the last backward.",
            ) from None

    def check(self, flat: torch.Tensor) -> None:
        """At the first activation: MismatchError if the ranks' values differ. Collective.

        Parts of different activations would be put together, and gradients be silently wrong.
        """
        if self.checked:
            return
        data = flat.contiguous().view(torch.uint8).cpu().numpy()
        digest = hashlib.blake2b(data.data, digest_size=16).digest()
        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, digest, group=self.group)
        other = next((rank for rank, each in enumerate(found) if each != found[0]), None)
        if other is not None:
            raise errors.MismatchError(
                f"partition_activations on rank {self.rank} of the model-parallel group: rank "
                f"{other} has another activation than rank 0",
                subject="partition_activations",
                peer=other,
                advice="Give the ranks of the group mpu_ returns the same inputs and random "
                "numbers, or switch partition_activations off.",
            )
        self.checked = True


class HostCopies:
    """Copies between devices and pinned host memory, on a stream of each device's own.

    A tensor is copied out before it is copied back, as both run on that stream.
    """

    def __init__(self) -> None:
        self.streams: dict[torch.device, Any] = {}

    def stream(self, device: torch.device) -> Any:
        if device not in self.streams:
            self.streams[device] = torch.get_device_module(device).Stream(device)
        return self.streams[device]

    def to_host(self, flat: torch.Tensor, place: torch.Tensor) -> None:
        """Begins to copy a device's tensor to the host."""
        module, stream = torch.get_device_module(flat.device), self.stream(flat.device)
        stream.wait_stream(module.current_stream(flat.device))
        with module.stream(stream):
            place.copy_(flat, non_blocking=True)
        flat.record_stream(stream)  # its memory is not used anew before

    def begin_back(self, place: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, Any]:
        """Begins to copy it back. Returns the tensor, and an event: it is complete."""
        module, stream = torch.get_device_module(device), self.stream(device)
        with module.stream(stream):
            return place.to(device, non_blocking=True), stream.record_event()

    def end_back(self, tensor: torch.Tensor, event: Any) -> torch.Tensor:
        """The tensor, complete for what is queued on the current stream from now on."""
        current = torch.get_device_module(tensor.device).current_stream(tensor.device)
        current.wait_event(event)
        tensor.record_stream(current)  # its memory is of the other stream
        return tensor


class Recipe:
    """How to rebuild one activation of what was kept of it."""

    __slots__ = (
        "__weakref__",
        "ahead",
        "call",
        "device",
        "keeper",
        "layout",
        "partition",
        "place",
        "slot",
    )

    def __init__(self, keeper: Keeper, tensor: torch.Tensor, call: int) -> None:
        self.keeper = keeper
        self.layout = Layout(tensor)
        self.device = tensor.device
        self.call = call  # the number of the checkpoint that keeps it
        self.partition: Partition | None = None
        self.place: torch.Tensor | None = None  # in host memory
        self.ahead: Any = None  # a copy that is on its way back
        self.slot: Any = None

    def fetch(self) -> None:
        """Begins to copy it back to the device."""
        if self.ahead is None and self.place is not None:
            self.ahead = self.keeper.copies.begin_back(self.place, self.device)

    def rebuild(self, kept: torch.Tensor) -> torch.Tensor:
        """Collective if it was partitioned."""
        flat = kept
        if self.place is not None:
            self.fetch()
            ahead, self.ahead = self.ahead, None
            self.keeper.fetch_before(self)
            flat = self.keeper.copies.end_back(*ahead)
        if self.partition is not None:
            flat = self.partition.gather(flat, self.layout.size)
        return self.layout.rebuild(flat)


class Keeper:
    """Keeps activations as one configuration says."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.arenas = Arenas(settings.count)
        self.copies = HostCopies()
        self.calls = 0  # of checkpoints
        self.sent: list[weakref.ref[Recipe]] = []  # to the host, in order
        self._partition: Partition | None = None

    def partition(self) -> Partition | None:
        if not self.settings.partition:
            return None
        group = self.settings.group()  # another one where torch.distributed was initialised anew
        if group is None:
            self._partition = None
        elif self._partition is None or self._partition.group is not group:
            self._partition = Partition(group)
        return self._partition

    def keep(self, tensor: torch.Tensor, position: int) -> tuple[torch.Tensor, Recipe | None]:
        """Returns the kept tensor of an activation, and the recipe that rebuilds the activation;
        the tensor itself and None if it is kept by reference. Collective at the first one if
        activations are partitioned."""
        settings = self.settings
        partition = self.partition()
        if partition is not None and tensor.numel() < partition.ranks:
            partition = None
        to_host = settings.to_host and not is_on_host(tensor)
        if not (partition is not None or to_host or settings.contiguous):
            return tensor, None
        recipe = Recipe(self, tensor, self.calls)
        flat = recipe.layout.flatten(tensor.detach())
        if partition is not None:
            partition.check(flat)
            recipe.partition = partition
            flat = partition.shard(flat)
        device = torch.device("cpu") if to_host else flat.device
        kind = Kind(position, flat.dtype, device, to_host)
        if settings.contiguous:
            place, recipe.slot = self.arenas.place(flat.numel(), kind)
        else:
            place = allocate(flat.numel(), kind)
        if to_host:
            self.copies.to_host(flat, place)
            recipe.place = place
            # Without those of calls that no backward has followed.
            self.sent = [each for each in self.sent if each() is not None]
            self.sent.append(weakref.ref(recipe))
        else:
            place.copy_(flat)
        return place, recipe

    def fetch_before(self, recipe: Recipe) -> None:
        """One is needed now: a backward probably needs those of the checkpoint before it next.
        Begins to copy them back, while the device computes."""
        alive = [each for each in (reference() for reference in self.sent) if each is not None]
        before = [each for each in alive if each.call < recipe.call]
        for each in before:
            if each.call == before[-1].call:
                each.fetch()
        self.sent = [weakref.ref(each) for each in before]

    def reset(self) -> None:
        """Frees the buffers. Activations that are kept still hold them for so long."""
        self.arenas = Arenas(self.settings.count)
