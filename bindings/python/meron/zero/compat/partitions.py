# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.utils: how items and tensors are divided into parts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from meron import errors
from meron.zero.compat import distributed
from meron.zero.compat.accelerator import get_accelerator

NAMES = ("PartitionedTensor", "partition_balanced", "partition_uniform", "prefix_sum_inc")


def partition_uniform(num_items: int, num_parts: int) -> list[int]:
    """The bounds of parts of equal size; the first ones have one item more if it does not divide.

    Returns num_parts + 1 numbers, from 0 to num_items.
    """
    size, rest = divmod(num_items, num_parts)
    return [part * size + min(part, rest) for part in range(num_parts + 1)]


def prefix_sum_inc(weights: Iterable[float]) -> list[float]:
    """The sums of the first 1, 2, ... weights."""
    return list(itertools.accumulate(weights))


def partition_balanced(weights: Sequence[float], num_parts: int) -> list[int]:
    """The bounds of parts of consecutive items. The heaviest part is as light as possible.

    Returns num_parts + 1 numbers, from 0 to the number of items. Of parts that are equally good, a
    heavier lightest part is preferred. (DeepSpeed minimises the difference of the two, and may cut
    elsewhere.)
    """
    count = len(weights)
    if count <= num_parts:
        return partition_uniform(count, num_parts)
    sums = [0, *prefix_sum_inc(weights)]
    # By number of items: the heaviest of the parts so far, and the lightest, negated.
    best = [(total, -total) for total in sums]
    cuts: list[list[int]] = []
    for parts in range(2, num_parts + 1):
        chosen = [(NONE, 0)] * parts
        for end in range(parts, count + 1):
            choices = (
                (with_part(best[begin], sums[end] - sums[begin]), begin)
                for begin in range(parts - 1, end)
            )
            chosen.append(min(choices))
        best = [value for value, _ in chosen]
        cuts.append([begin for _, begin in chosen])
    bounds = [count]
    for cut in reversed(cuts):
        bounds.append(cut[bounds[-1]])
    return [0, *bounds[::-1]]


NONE = (math.inf, math.inf)  # fewer items than parts


def with_part(weights: tuple[float, float], weight: float) -> tuple[float, float]:
    """The heaviest and the lightest weight, negated, after one more part."""
    heaviest, lightest = weights
    return max(heaviest, weight), max(lightest, -weight)


class PartitionedTensor:
    """One rank's part of a tensor: consecutive elements. Parts differ by one element at most.

    Args:
        tensor: equal on all ranks of the group.
        group: of torch.distributed; None is all ranks.
    """

    def __init__(self, tensor: torch.Tensor, group: Any, partition_meta: Any = None) -> None:
        self.group = group
        self.num_parts = distributed.get_world_size(group)
        self.rank = distributed.get_rank(group)
        self.orig_size = list(tensor.shape)
        self.orig_device: Any = tensor.device
        self.partition = partition_uniform(tensor.numel(), self.num_parts)
        own = slice(self.partition[self.rank], self.partition[self.rank + 1])
        self.local_data = tensor.detach().reshape(-1)[own].clone()

    @classmethod
    def from_meta(
        cls, meta: torch.Tensor, local_part: torch.Tensor, group: Any, device: Any = None
    ) -> PartitionedTensor:
        """The object again, from the results of `to_meta` and `data` on this rank."""
        dimensions, *numbers = meta.tolist()
        size, numbers = numbers[:dimensions], numbers[dimensions:]
        made = cls(local_part, group)
        if numbers[:2] != [made.num_parts, made.rank]:
            raise errors.argument(
                f"the tensor is part {numbers[1]} of {numbers[0]}, and this is rank {made.rank} of "
                f"{made.num_parts}",
                subject="meta",
                advice="Pass what to_meta() returned on this rank, and the same group.",
            )
        made.orig_size = size
        made.orig_device = get_accelerator().device_name() if device is None else device
        made.local_data = local_part.detach()
        made.partition = numbers[2:]
        return made

    def full(self, device: Any = None) -> torch.Tensor:
        """The tensor, on all ranks. Collective."""
        flat = torch.zeros(
            math.prod(self.orig_size),
            dtype=self.local_data.dtype,
            device=self.orig_device if device is None else device,
        )
        for part, (begin, end) in enumerate(zip(self.partition, self.partition[1:])):
            piece = flat[begin:end]
            if part == self.rank:
                piece.copy_(self.local_data)
            distributed.broadcast(piece, distributed.get_global_rank(self.group, part), self.group)
        return flat.reshape(self.orig_size)

    def to_meta(self) -> torch.Tensor:
        """Sizes and bounds, as a tensor of int64, from which `from_meta` makes the object again."""
        numbers = [len(self.orig_size), *self.orig_size, self.num_parts, self.rank]
        return torch.tensor([*numbers, *self.partition], device=self.orig_device)

    def data(self) -> torch.Tensor:
        """This rank's elements, flat."""
        return self.local_data

    def local_size(self) -> torch.Size:
        return self.local_data.shape

    def full_size(self) -> list[int]:
        return self.orig_size
