# SPDX-License-Identifier: Apache-2.0
"""Sends rank 0's state dict to all ranks. Each value is broadcast once, in buckets.

All functions here are collective. Ranks first agree on the values and their order. So a state dict
that does not fit is an error on all ranks, and no rank waits for another.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

import meron
from meron.torch.checkpoint.exchange import unreadable
from meron.torch.state_dict import LoadError, Loading, messages
from meron.torch.unit import ShardedUnit

BUCKET = 16 << 20  # bytes of a broadcast
ALIGNED = 16
DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor of rank 0's state dict."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        """Bytes."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size


@dataclasses.dataclass
class Table:
    """The contents of rank 0's state dict; the same on all ranks."""

    entries: dict[str, Entry]
    objects: list[str]  # names of values that are no tensors
    wrong: str = ""


def share_table(context: meron.Context, state: Mapping[str, Any]) -> Table:
    """Rank 0's table, on all ranks."""
    text = share_bytes(context, encoded(state) if context.rank == 0 else b"")
    read = json.loads(text)
    entries = [Entry(name, tuple(shape), DTYPES[dtype]) for name, shape, dtype in read["tensors"]]
    return Table({entry.name: entry for entry in entries}, read["objects"], read["wrong"])


def encoded(state: Mapping[str, Any]) -> bytes:
    tensors, objects, wrong = [], [], []
    if not isinstance(state, Mapping):
        wrong.append(f"the state dict is a {type(state).__name__}")
        state = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            objects.append(str(name))
        elif problem := unreadable(value):
            wrong.append(f"'{name}' {problem}")
        else:
            tensors.append((str(name), list(value.shape), str(value.dtype)))
    return json.dumps({"tensors": tensors, "objects": objects, "wrong": "; ".join(wrong)}).encode()


def agree(
    context: meron.Context,
    operation: str,
    wrong: Iterable[str],
    places: Iterable[tuple[ShardedUnit, int]],
) -> None:
    """LoadError on all ranks where one has something wrong, or other params than another."""
    loading = Loading()
    loading.values = dict.fromkeys(places, torch.empty(0, device="cpu"))
    texts = messages(context, loading, "\n".join(wrong))
    if texts:
        listed = "\n".join(texts)
        raise LoadError(
            f"{operation}: nothing was loaded on any rank.\n{listed}",
            operation=operation,
            advice="Give rank 0 a state dict that fits the model, which is built alike on all "
            "ranks.",
        )


def send(
    context: meron.Context, entries: Iterable[Entry], state: Mapping[str, Any]
) -> Iterator[tuple[Entry, torch.Tensor]]:
    """Rank 0's values of these entries, in this order, in host memory. They may share memory, so a
    caller copies the values that it keeps."""
    bundle: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.size > BUCKET:
            yield from send_bundle(context, bundle, state)
            bundle, size = [], 0
            yield entry, send_large(context, entry, state)
            continue
        if size + entry.size > BUCKET:
            yield from send_bundle(context, bundle, state)
            bundle, size = [], 0
        bundle.append(entry)
        size += entry.size + ALIGNED
    yield from send_bundle(context, bundle, state)


def send_bundle(
    context: meron.Context, bundle: list[Entry], state: Mapping[str, Any]
) -> Iterator[tuple[Entry, torch.Tensor]]:
    sizes = [-(-entry.size // ALIGNED) * ALIGNED for entry in bundle]
    data = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu")
    views = [
        part[: entry.size].view(entry.dtype).view(entry.shape)
        for entry, part in zip(bundle, data.split(sizes))
    ]
    if context.rank == 0:
        for entry, view in zip(bundle, views):
            view.copy_(state[entry.name].detach())
    if context.world_size > 1 and data.numel():
        context.world.broadcast(data.numpy(), 0)
    yield from zip(bundle, views)


def send_large(context: meron.Context, entry: Entry, state: Mapping[str, Any]) -> torch.Tensor:
    if context.rank == 0:
        value: torch.Tensor = state[entry.name].detach().to("cpu").contiguous()
    else:
        value = torch.empty(entry.shape, dtype=entry.dtype, device="cpu")
    if context.world_size > 1:
        data = value.view(-1).view(torch.uint8).numpy()
        for begin in range(0, data.size, BUCKET):
            context.world.broadcast(data[begin : begin + BUCKET], 0)
    return value


def share_bytes(context: meron.Context, data: bytes) -> bytes:
    if context.world_size == 1:
        return data
    size = np.array([len(data)], np.int64)
    context.world.broadcast(size, 0)
    room = np.frombuffer(data, np.uint8).copy() if context.rank == 0 else np.empty(size[0], "u1")
    if room.size:
        context.world.broadcast(room, 0)
    return room.tobytes()
