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
from meron import errors
from meron.torch.checkpoint.agreement import LoadError, tensor_from_rank, together
from meron.torch.flat_shard import FlatShard
from meron.torch.guard import Sharded


def object_from(context: meron.Context, root: int, value: Any, name: str = "") -> Any:
    """Rank `root`'s object, on all ranks. Collective; blocks on peers.

    Raises, on all ranks, ArgumentError for an object that cannot be pickled, which `name` names,
    and what pickle raises where it is read.
    """
    if context.world_size == 1:
        return value
    data = b""
    with together(context):
        if context.rank == root:
            data = pickled(value, name)
    return unpickled(context, root, value, data)


def pickled(value: Any, name: str = "") -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        what = f"'{name}'" if name else f"a {type(value).__name__}"
        raise errors.argument(
            f"{what} cannot be sent to the other ranks: {error}",
            subject=name,
            advice="Leave out what pickle does not take.",
        ) from error


def unpickled(
    context: meron.Context, root: int, value: Any, data: bytes, at: int | None = None
) -> Any:
    """As object_from, of an object that rank `root` has pickled; None on other ranks than `at`."""
    size = np.array(divmod(len(data), 4096), np.float32)
    context.world.broadcast(size, root)
    count = int(size[0]) * 4096 + int(size[1])
    ours = context.rank == root
    own = np.frombuffer(data, np.uint8).copy() if ours else np.zeros(count, np.uint8)
    context.world.broadcast(own, root)
    found = value if ours else None
    with together(context):
        if not ours and at in (None, context.rank):
            found = pickle.loads(own.tobytes())
    return found


def objects_at_rank0(context: meron.Context, value: Any) -> list[Any]:
    """The objects of all ranks, by rank; empty on other ranks than 0. Collective; blocks on
    peers. Raises as object_from."""
    if context.world_size == 1:
        return [value]
    data = b""
    with together(context):
        data = pickled(value)
    found = []
    for root in range(context.world_size):
        one = unpickled(context, root, value, data if context.rank == root else b"", at=0)
        if context.rank == 0:
            found.append(one)
    return found


@dataclass
class Described:
    """A tensor, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype


def unreadable(value: torch.Tensor) -> str:
    """Why the values of a tensor cannot be sent, or nothing."""
    if isinstance(value, FlatShard):
        return "is one rank's range: get it with StateDictOptions(full_state_dict=True)"
    if isinstance(value, Sharded):
        return "is a sharded param, out of use"
    if value.is_meta:
        return "is on the device meta, without values"
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        return "is no dense tensor"
    return "is a DTensor: pass value.full_tensor()" if hasattr(value, "full_tensor") else ""


def described(value: Any, path: tuple[Any, ...] = ()) -> Any:
    """A state dict with Described in place of tensors. Raises LoadError, which names what cannot be
    sent."""
    if isinstance(value, torch.Tensor):
        if problem := unreadable(value):
            name = name_at(path)
            raise LoadError(
                f"'{name}' of rank 0's state dict cannot be sent to the other ranks: it {problem}",
                subject=name,
                advice="Give rank 0 unsharded tensors in memory.",
            )
        return Described(tuple(value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: described(item, (*path, key)) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(described(item, (*path, n)) for n, item in enumerate(value))
    return value


def check_pickles(skeleton: Any, path: tuple[Any, ...] = ()) -> None:
    """ArgumentError that names an object of a skeleton that cannot be pickled."""
    if isinstance(skeleton, dict):
        for key, item in skeleton.items():
            check_pickles(item, (*path, key))
    elif type(skeleton) in (list, tuple):
        for n, item in enumerate(skeleton):
            check_pickles(item, (*path, n))
    else:
        pickled(skeleton, name_at(path))


def name_at(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def state_dict_from_rank0(
    context: meron.Context, given: Any, keep: Callable[[tuple[Any, ...], torch.Tensor], Any]
) -> Any:
    """Rank 0's state dict on all ranks, a tensor at a time. Collective; blocks on peers.

    `keep` is what a rank keeps of a whole tensor, by its path of keys. Raises ArgumentError on all
    ranks, which names what rank 0 cannot send.
    """
    skeleton = None
    with together(context):
        if context.rank == 0:
            skeleton = described(given)
            if context.world_size > 1:
                check_pickles(skeleton)
    skeleton = object_from(context, 0, skeleton)

    def walk(path: tuple[Any, ...], item: Any, own: Any) -> Any:
        if isinstance(item, Described):
            if context.rank == 0:
                whole = own.detach().to("cpu").resolve_conj().resolve_neg().contiguous()
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
