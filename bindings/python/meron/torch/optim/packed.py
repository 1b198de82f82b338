# SPDX-License-Identifier: Apache-2.0
"""States of the engine's optimizers as torch's state dicts have them."""

from __future__ import annotations

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


def pack_states(optimizer: Any, whole: bool) -> None:
    """Copies the states into `optimizer.state`. Collective where `whole`."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            unit, i = param._meron
            if i not in unit.trainable:
                continue
            state = {"step": torch.tensor(float(optimizer.steps), device="cpu")}
            for key in keys_of(optimizer, group, unit, i):
                part = read_state(optimizer, unit, i, key)
                state[key] = whole_of(unit, i, part) if whole else part
            optimizer.state[param] = state


def unpack_states(optimizer: Any, given: Mapping[str, Any]) -> tuple[Places, int]:
    """This rank's parts of all states of a checkpoint, and its number of steps. Local.

    A param that the checkpoint has no states of gets its first ones, also where it is in no group.
    """
    groups = [{**optimizer.defaults, **group} for group in given["param_groups"]]
    saved = [(group, index) for group in groups for index in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    places: Places = []
    counts: dict[int, str] = {}
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
        count = int(state.get("step", 1 if found else 0))
        if state:
            counts.setdefault(count, name)
    count = only_count(counts)
    grouped = {param._meron for param in params}
    first = optimizer.initial_states(optimizer.defaults)
    for unit in optimizer.sharded:
        for i in (i for i in unit.trainable if (unit, i) not in grouped):
            for key in optimizer.state_names if optimizer.has_states(groups[0]) else ():
                places.append((unit, i, key, first_values(unit, i, first.get(key))))
    if not 0 <= count <= MOST_STEPS:
        raise errors.argument(f"the step of '{counts[count]}' is {count}", subject="step")
    return places, count


def first_values(unit: ShardedUnit, i: int, value: float | None) -> torch.Tensor:
    """This rank's part of a state that no step has changed."""
    return torch.full((len(unit.owned(i)),), value or 0.0, device="cpu")


def only_count(counts: dict[int, str]) -> int:
    """The number of steps of all params, of {number: a param's name}; 0 of none. ArgumentError if
    it differs."""
    if len(counts) > 1:
        listed = " and ".join(f"{steps} of '{name}'" for steps, name in list(counts.items())[:2])
        raise errors.argument(
            f"there are states after different numbers of steps: {listed}",
            subject="step",
            advice="The engine counts the steps of all params: load them into an optimizer of "
            "torch with meron.torch.shard_optimizer.",
        )
    return next(iter(counts), 0)


def agreed_states(optimizer: Any, given: Mapping[str, Any]) -> tuple[Places, int]:
    """As unpack_states; ArgumentError on all ranks where it raised one on any, or where ranks
    have other numbers of steps. Collective."""
    found: tuple[Places, int] = ([], -1)
    error = None
    try:
        found = unpack_states(optimizer, given)
    except errors.ArgumentError as raised:
        error = raised
    context = optimizer.sharding.context
    steps = np.zeros(context.world_size, np.float32)
    steps[context.rank] = found[1]
    if context.world_size > 1:
        context.world.all_reduce(steps)
    if error is not None:
        raise error
    if (steps != steps[0]).any():
        raise errors.argument(
            f"the checkpoint of {type(optimizer).__name__} does not fit, or has other steps, on "
            f"ranks {[rank for rank, step in enumerate(steps) if step != steps[context.rank]]}",
            subject="state",
            advice="Load on each rank what was saved on it, or full_state_dict() on all.",
        )
    return found


def part_of(unit: ShardedUnit, i: int, name: str, key: str, value: torch.Tensor) -> torch.Tensor:
    """This rank's part of a state, which is whole, or that part."""
    owned = unit.owned(i)
    if tuple(value.shape) == tuple(unit.handles[i].shape):
        return value.detach().reshape(-1)[owned.start : owned.stop]
    if tuple(value.shape) != (len(owned),):
        raise errors.argument(
            f"{key} of '{name}' has shape {tuple(value.shape)}: unsharded it has "
            f"{tuple(unit.handles[i].shape)}, and this rank's shard ({len(owned)},)",
            subject=name,
            advice="Load shards where they were saved, on as many ranks, or full_state_dict().",
        )
    return value.detach()
