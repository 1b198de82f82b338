# SPDX-License-Identifier: Apache-2.0
"""Values that are written to the params of a unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import torch

import meron
from meron._native import call, ffi, lib
from meron.torch.flat_shard import FlatShard
from meron.torch.guard import Sharded, plain, refuse_read
from meron.torch.optim.states import read_state
from meron.torch.tensors import CODES_OF_TORCH
from meron.torch.unit import ShardedUnit


def source_of(value: torch.Tensor) -> torch.Tensor:
    """The values as the engine takes them. StateError for a param that is out of use."""
    if isinstance(value, Sharded):
        refuse_read(value, "written to another")
    if isinstance(value, FlatShard):
        return value.spread()
    with plain():
        data = value.detach().to("cpu").contiguous()
        return data if data.dtype in CODES_OF_TORCH else data.float()


def write_sources(
    context: meron.Context, unit: ShardedUnit, sources: dict[int, torch.Tensor]
) -> None:
    """Writes some params of a unit as the next version. Collective."""
    with context.update([unit.unit]) as update:
        for i, data in sources.items():
            handle = unit.handles[i]
            call(
                lib.meron_update_write,
                update._open_handle(),
                handle._handle,
                ffi.cast("void *", data.data_ptr()),
                data.numel(),
                CODES_OF_TORCH[data.dtype],
            )
            # (What is frozen has no optimizer, which is who asks for f32 values.)
            wider = data.dtype.itemsize > 2 and handle.dtype_name != "f32" and not handle.frozen
            if i in unit.masters or wider:
                part = unit.shard_range(i)
                own = data.view(-1)[part.start : part.stop].float()
                if i in unit.masters:
                    unit.masters[i].copy_(own)  # in place: an optimizer may hold it
                else:
                    unit.masters[i] = own.clone()


def with_masters(unit: ShardedUnit, i: int, value: torch.Tensor) -> torch.Tensor:
    """New values of a param, in f32 if an optimizer updates f32 values of it: elements of this
    rank's shard that are as before keep theirs. Local; blocks on this rank's drive."""
    if unit.handles[i].dtype_name == "f32" or i not in unit.trainable:
        return value
    optimizer = unit.optimizer() if unit.optimizer is not None else None
    if optimizer is not None and not optimizer.released:
        master = read_state(optimizer, unit, i, "master")
    elif i in unit.masters:
        master = unit.masters[i]
    else:
        return value
    own = unit.shard_range(i)
    before, after = (t.view(-1)[own.start : own.stop].cpu() for t in (unit.params[i].data, value))
    same = before.view(torch.int16) == after.view(torch.int16)
    exact = value.detach().to("cpu", torch.float32).reshape(-1)
    exact[own.start : own.stop] = torch.where(same, master, after.float())
    return exact.view(unit.handles[i].shape)


def is_first(context: meron.Context, units: Iterable[ShardedUnit]) -> bool:
    """True if no lower rank owns the same ranges of the units. Collective."""
    # Equal ranges have equal digests, whose 16-bit words a sum of floats keeps.
    ranges = [handle.shard_range for unit in units for handle in unit.handles]
    digest = hashlib.blake2b(repr(ranges).encode(), digest_size=8).digest()
    table = np.zeros((context.world_size, 4), np.float32)
    table[context.rank] = np.frombuffer(digest, np.uint16)
    context.world.all_reduce(table)
    return not (table[: context.rank] == table[context.rank]).all(axis=1).any()
