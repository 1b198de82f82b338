# SPDX-License-Identifier: Apache-2.0
"""States of the engine's optimizers as torch's state dicts have them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from meron import errors
from meron.torch.optim.states import keys_of, read_state
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import whole_of

MOST_STEPS = 1 << 53  # that an optimizer can be told to have taken
Places = list[tuple[ShardedUnit, int, str, torch.Tensor]]  # with a state's name and values
Counts = dict[tuple[ShardedUnit, int], int]  # steps that each param has taken


def pack_states(optimizer: Any, whole: bool) -> None:
    """Copies the states into `optimizer.state`. Collective where `whole`."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            unit, i = param._meron
            if i not in unit.trainable:
                continue
            state = {"step": step_of(optimizer, unit, i)}
            for key in keys_of(optimizer, group, unit, i):
                part = read_state(optimizer, unit, i, key)
                state[key] = whole_of(unit, i, part) if whole else part
            optimizer.state[param] = state


def step_of(optimizer: Any, unit: ShardedUnit, i: int) -> torch.Tensor:
    """The number of steps that a param has taken, as torch keeps it."""
    return torch.tensor(float(optimizer.engine.param_steps(unit.handles[i])), device="cpu")


def set_counts(optimizer: Any, counts: Counts, steps: int | None = None) -> None:
    """Sets the number of steps of each param; 0 for one that has none in `counts`. Local.

    Args:
        steps: of the optimizer; None: the most of any param.
    """
    if steps is None:
        steps = max(counts.values(), default=0)
    optimizer.engine.steps = steps
    for unit in optimizer.sharded:
        for i in unit.trainable:
            count = counts.get((unit, i), 0)
            if count != steps:
                optimizer.engine.set_param_steps(unit.handles[i], count)


def unpack_states(optimizer: Any, given: Mapping[str, Any]) -> tuple[Places, Counts]:
    """This rank's parts of all states of a checkpoint, and the steps of each param. Local.

    A param that the checkpoint has no states of gets its first ones, also where it is in no group.
    """
    groups = [{**optimizer.defaults, **group} for group in given["param_groups"]]
    saved = [(group, index) for group in groups for index in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    places: Places = []
    counts: Counts = {}
    for (group, index), param in zip(saved, params):
        unit, i = param._meron
        if i not in unit.trainable:
            continue
        state = given["state"].get(index, {})
        name = f"{unit.name}.{unit.names[i]}"
        found = False
        first = optimizer.initial_states(group)
        for key in keys_of(optimizer, group, unit, i):
            value = state.get(key)
            found = found or value is not None
            if value is not None:
                places.append((unit, i, key, part_of(unit, i, name, key, value)))
            elif key != "master":
                places.append((unit, i, key, first_values(unit, i, first.get(key))))
        # SGD of torch does not count.
        counts[unit, i] = checked_count(name, state.get("step", 1 if found else 0))
    grouped = {param._meron for param in params}
    for unit in optimizer.sharded:
        for i in (i for i in unit.trainable if (unit, i) not in grouped):
            for key in optimizer.state_names if optimizer.has_states(groups[0]) else ():
                places.append((unit, i, key, first_values(unit, i, None)))
    return places, counts


def first_values(unit: ShardedUnit, i: int, value: float | None) -> torch.Tensor:
    """This rank's part of a state that no step has changed."""
    return torch.full((len(unit.shard_range(i)),), value or 0.0, device="cpu")


def checked_count(name: str, step: Any) -> int:
    count = int(step)
    if not 0 <= count <= MOST_STEPS:
        raise errors.argument(f"the step of '{name}' is {count}", subject="step")
    return count


def agreed_states(optimizer: Any, given: Mapping[str, Any]) -> tuple[Places, Counts]:
    """As unpack_states; ArgumentError on all ranks where it raised one on any, or where ranks
    have other numbers of steps. Collective."""
    found: tuple[Places, Counts] = ([], {})
    error = None
    try:
        found = unpack_states(optimizer, given)
    except errors.ArgumentError as raised:
        error = raised
    context = optimizer.sharding.context
    prints = np.zeros(context.world_size, np.float32)
    prints[context.rank] = -1 if error is not None else fingerprint(found[1])
    if context.world_size > 1:
        context.world.all_reduce(prints)
    if error is not None:
        raise error
    if (prints != prints[0]).any():
        raise errors.argument(
            f"the checkpoint of {type(optimizer).__name__} does not fit, or has other steps, on "
            f"ranks {[rank for rank, own in enumerate(prints) if own != prints[context.rank]]}",
            subject="state",
            advice="Load on each rank what was saved on it, or full_state_dict() on all.",
        )
    return found


def fingerprint(counts: Counts) -> int:
    """A hash of the numbers of steps, which all ranks have in the same order. Exact in f32."""
    return zlib.crc32(repr(list(counts.values())).encode()) >> 8


def part_of(unit: ShardedUnit, i: int, name: str, key: str, value: torch.Tensor) -> torch.Tensor:
    """This rank's part of a state, which is whole, or that part."""
    shard_range = unit.shard_range(i)
    if tuple(value.shape) == tuple(unit.handles[i].shape):
        return value.detach().reshape(-1)[shard_range.start : shard_range.stop]
    if tuple(value.shape) != (len(shard_range),):
        raise errors.argument(
            f"{key} of '{name}' has shape {tuple(value.shape)}: unsharded it has "
            f"{tuple(unit.handles[i].shape)}, and this rank's shard ({len(shard_range)},)",
            subject=name,
            advice="Load shards where they were saved, on as many ranks, or full_state_dict().",
        )
    return value.detach()
