# SPDX-License-Identifier: Apache-2.0
"""Who the ranks are: of torch.distributed, of a group of it, or of a launcher; their numbers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch.distributed as dist

import meron
from meron import errors
from meron._call_names import EXPLAINED

NAME_BYTES = 64
for exchange in ("all_reduce of 'f32 sum'", "broadcast of 'from rank 0'"):
    EXPLAINED[exchange] = "as mt.save, mt.load, state_dict and others do"


def uses_torch() -> bool:
    """True if ranks are from torch.distributed or its launcher rather than from `meron run`."""
    if dist.is_available() and dist.is_initialized():
        return "MERON_WORLD_SIZE" not in os.environ or dist.get_world_size() > 1
    if "MERON_WORLD_SIZE" in os.environ or "MERON_TOKEN" in os.environ:
        return False
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


def ranks_of(group: Any) -> tuple[int, ...] | None:
    """The global ranks of a group, None where that is all; ArgumentError on other ranks."""
    if group is None:
        return None
    if not dist.is_available() or not dist.is_initialized():
        raise errors.argument("a group was given, but torch.distributed is not initialised")
    if group is not dist.GroupMember.NON_GROUP_MEMBER and not is_group(group):
        raise errors.argument(
            f"a {type(group).__name__} was given as group, and is no group of torch.distributed",
            "group",
            "Pass what torch.distributed.new_group returned.",
        )
    if group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
        raise errors.argument(
            f"rank {dist.get_rank()} is not in the group that shards the model",
            "group",
            "Only the group's ranks shard the model; the others leave it as it is.",
        )
    ranks = tuple(dist.get_process_group_ranks(group))
    return None if ranks == tuple(range(dist.get_world_size())) else ranks


def is_group(group: Any) -> bool:
    try:
        dist.get_rank(group)
    except (TypeError, ValueError):
        return False
    return True


def place_in(group: Any) -> tuple[int, int]:
    """This rank and the number of ranks."""
    ranks_of(group)
    if not dist.is_initialized():
        rank, world_size = number_of("RANK"), number_of("WORLD_SIZE")
        if not 0 <= rank < world_size:
            raise errors.argument(
                f"RANK is {rank}, WORLD_SIZE {world_size}",
                advice="Start the program by torchrun or meron run, which set both.",
            )
        return rank, world_size
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    for variable in ("WORLD_SIZE", "MERON_WORLD_SIZE"):
        promised = number_of(variable) if group is None and variable in os.environ else 0
        if world_size < promised:
            raise errors.argument(
                f"the launcher promised {promised} ranks ({variable}), torch.distributed has "
                f"{world_size}",
                advice="Initialise torch.distributed with the launcher's world size, or not at "
                "all: on one host Meron needs no process group. Pass group= to shard over fewer "
                "ranks.",
            )
    return rank, world_size


def local_rank() -> int | None:
    """This rank's number on its host, as its launcher says; None if no launcher does.

    MERON_LOCAL_RANK of `meron run` precedes LOCAL_RANK.
    """
    for variable in ("MERON_LOCAL_RANK", "LOCAL_RANK"):
        text = os.environ.get(variable, "")
        if text.isdecimal():
            return int(text)
    return None


def number_of(variable: str) -> int:
    text = os.environ[variable]
    if not text.isdecimal():
        raise errors.argument(f"{variable}={text!r} is no number of ranks", variable)
    return int(text)


def of_all_ranks(context: meron.Context, values: list[float]) -> npt.NDArray[np.float64]:
    """The values of all ranks, a row for each. Collective."""
    own = np.array(values, np.float64)
    if context.world_size == 1:
        return own[None]
    # As 16-bit words, which a sum of floats keeps.
    table = np.zeros((context.world_size, 4 * len(values)), np.float32)
    table[context.rank] = own.view(np.uint16)
    context.world.all_reduce(table)
    return table.astype(np.uint16).view(np.float64)


def names_of_all_ranks(context: meron.Context, name: str) -> list[str]:
    """A short name of each rank, such as a class's. Collective."""
    data = name.encode("ascii", "replace")[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
    rows = of_all_ranks(context, np.frombuffer(data).tolist())
    return [row.tobytes().rstrip(b"\0").decode() for row in rows]


def require_equal(context: meron.Context, values: Mapping[str, float], advice: str) -> None:
    """ArgumentError on all ranks that names the first value on which they differ. Collective."""
    table = of_all_ranks(context, list(values.values()))
    differs = ~((table == table[0]) | (np.isnan(table) & np.isnan(table[0])))
    for place, name in enumerate(values):
        if differs[:, place].any():
            peer = int(differs[:, place].argmax())
            raise errors.argument(
                f"{name} is {table[0, place]:.9g} on rank 0, and {table[peer, place]:.9g} on rank "
                f"{peer}",
                name.split(" ")[0],
                advice,
            )
