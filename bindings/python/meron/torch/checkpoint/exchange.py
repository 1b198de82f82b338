# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, and unsharded state dicts of rank 0 for all."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import meron
from meron.torch.checkpoint.agreement import tensor_from_rank, together


def object_from(context: meron.Context, root: int, value: Any, at: int | None = None) -> Any:
    """Rank `root`'s object, on all ranks or for rank `at`. Collective; blocks on peers."""
    if context.world_size == 1:
        return value
    data = pickle.dumps(value) if context.rank == root else b""
    size = np.array(divmod(len(data), 4096), np.float32)
    context.world.broadcast(size, root)
    count = int(size[0]) * 4096 + int(size[1])
    own = np.frombuffer(data, np.uint8).copy() if data else np.zeros(count, np.uint8)
    context.world.broadcast(own, root)
    if context.rank == root:
        return value
    return pickle.loads(own.tobytes()) if at in (None, context.rank) else None


def objects_at_rank0(context: meron.Context, value: Any) -> list[Any]:
    """The objects of all ranks, by rank; empty on other ranks than 0. Collective; blocks on
    peers."""
    found = []
    for root in range(context.world_size):
        one = object_from(context, root, value, at=0)
        if context.rank == 0:
            found.append(one)
    return found


@dataclass
class Described:
    """A tensor, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def described(value: Any) -> Any:
    """A state dict with Described in place of tensors."""
    if isinstance(value, torch.Tensor):
        return Described(tuple(value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: described(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(described(item) for item in value)
    return value


def state_dict_from_rank0(
    context: meron.Context, given: Any, keep: Callable[[tuple[Any, ...], torch.Tensor], Any]
) -> Any:
    """Rank 0's state dict on all ranks, a tensor at a time. Collective; blocks on peers.

    `keep` is what a rank keeps of a whole tensor, by its path of keys.
    """
    skeleton = None
    with together(context):
        skeleton = described(given) if context.rank == 0 else None
    skeleton = object_from(context, 0, skeleton)

    def walk(path: tuple[Any, ...], item: Any, own: Any) -> Any:
        if isinstance(item, Described):
            if context.rank == 0:
                whole = own.detach().to("cpu").contiguous()
            else:
                whole = torch.empty(item.shape, dtype=item.dtype, device="cpu")
            return keep(path, tensor_from_rank(context, whole))
        if isinstance(item, dict):
            mine = own if context.rank == 0 else {}
            return {key: walk((*path, key), each, mine.get(key)) for key, each in item.items()}
        if type(item) in (list, tuple):
            mine = own if context.rank == 0 else [None] * len(item)
            made = (walk((*path, n), each, mine[n]) for n, each in enumerate(item))
            return type(item)(made)
        return item

    return walk((), skeleton, given)
