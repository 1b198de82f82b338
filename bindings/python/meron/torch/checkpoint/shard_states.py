# SPDX-License-Identifier: Apache-2.0
"""States of torch's optimizers on shards, and f32 masters that Python holds, by ranges of params.

A state of a param's shape is saved by its owners, each its range; one that is a number, such as
"step", once. Their kinds in files are those of docs/checkpoint-format.md, so another optimizer of
the same rule, the engine's too, finds them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from meron import errors
from meron.checkpoint import CheckpointTensor
from meron.torch.checkpoint.files import saved_tensor
from meron.torch.checkpoint.names import Names
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.replacement import trained_by
from meron.torch.optim.shards import Shards, refuse_whole_params
from meron.torch.optim.states import NUMBERS, numbers_in
from meron.torch.sharding import Sharding
from meron.torch.unit import ShardedUnit

# The engine's names of states that classes of torch name otherwise.
KINDS = {"SGD": {"momentum_buffer": "exp_avg"}, "Adagrad": {"sum": "exp_avg_sq"}}
FIRST, SECOND = "exp_avg", "exp_avg_sq"
KEY = re.compile(r"[a-z0-9_]{1,64}")


def kind_of(optimizer: torch.optim.Optimizer, key: str, prefix: str = "") -> str:
    """The kind of a state that an optimizer calls `key`."""
    own = KINDS.get(type(optimizer).__name__, {}).get(key, key)
    if own in (FIRST, SECOND) and not prefix:
        return own
    if not KEY.fullmatch(prefix + key):
        raise errors.UnsupportedError(
            f"{type(optimizer).__name__} has a state {key!r}: checkpoints name states with a to z, "
            f"digits and _, at most {64 - len(prefix)}",
            subject=key,
        )
    return f"state.{prefix}{key}"


def prefixes_of(optimizers: list[torch.optim.Optimizer], names: Names) -> list[str]:
    """The prefix of each optimizer's states in files. It is empty, except for an optimizer of torch
    that shares params with an earlier one."""
    found = [""] * len(optimizers)
    held: set[str | None] = set()
    for is_engine in (True, False):
        for number, optimizer in enumerate(optimizers):
            if isinstance(optimizer, EngineOptimizer) is not is_engine:
                continue
            own = {name for group in groups_of(optimizer, names) for name in group["params"]}
            found[number] = f"optimizer{number}_" if own & held else ""
            held |= own
    return found


def key_of(optimizer: torch.optim.Optimizer, kind: str) -> str | None:
    """An optimizer's name of a state of a kind; None if it has no such state."""
    for key, own in KINDS.get(type(optimizer).__name__, {}).items():
        if own == kind:
            return key
    if kind in (FIRST, SECOND):
        return kind
    return kind.removeprefix("state.") if kind.startswith("state.") else None


def engine_kinds(optimizer: EngineOptimizer) -> dict[str, str]:
    """The states of an engine's optimizer: kind, torch's name."""
    return {kind: key for key, kind in optimizer.state_names.items()}


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    if isinstance(optimizer, EngineOptimizer):
        return
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "state"):
        raise errors.argument(
            f"optimizer is a {type(optimizer).__name__}, which is no torch.optim.Optimizer",
            subject="optimizer",
        )
    refuse_whole_params(optimizer, None, None)


class Held:
    """A param of a torch optimizer: by name, with this rank's part."""

    def __init__(self, name: str, part: torch.Tensor, shape: tuple[int, ...], own: range) -> None:
        self.name = name
        self.part = part  # key of optimizer.state
        self.shape = shape  # of the whole
        self.own = own  # elements of this rank's part
        self.sharded: tuple[ShardedUnit, int] | None = None


def held_params(optimizer: torch.optim.Optimizer, names: Names) -> list[list[Held]]:
    """The params of a torch optimizer's groups. ArgumentError for one that no model has."""
    shards: Shards | None = getattr(optimizer, "_meron_shards", None)
    places = {
        id(part): (unit, i)
        for unit, parts in (shards.parts.items() if shards is not None else ())
        for i, part in parts.items()
    }
    groups = []
    for number, group in enumerate(optimizer.param_groups):
        held = []
        for param in group["params"]:
            place = places.get(id(param))
            if place is None:
                name, shape = names.name_of(param), tuple(param.shape)
                own = range(param.numel())
            else:
                name, shape = names.of_place.get(place), tuple(place[0].handles[place[1]].shape)
                own = place[0].shard_range(place[1])
            if name is None:
                raise foreign(optimizer, number, shape)
            one = Held(name, param, shape, own)
            one.sharded = place
            held.append(one)
        groups.append(held)
    return groups


def foreign(
    optimizer: torch.optim.Optimizer, number: int, shape: tuple[int, ...]
) -> errors.ArgumentError:
    return errors.argument(
        f"param group {number} of {type(optimizer).__name__} has a param of shape {shape} that the "
        "model does not have",
        subject="optimizer",
        advice="Give all models of the optimizer, as a dict by name.",
    )


# ---- Who gives what -----------------------------------------------------------------------------


def share_of(sharding: Sharding) -> tuple[int, int]:
    """(k, n): this rank is the k-th of n replicas, which own the same. Collective."""
    context = sharding.context
    if context.world_size == 1 or not (sharding.alike or sharding.updates_everything):
        return 0, 1
    ranges = [handle.shard_range for unit in sharding.units for handle in unit.handles]
    digest = hashlib.blake2b(repr(ranges).encode(), digest_size=8).digest()
    table = np.zeros((context.world_size, 4), np.float32)
    table[context.rank] = np.frombuffer(digest, np.uint16)
    context.world.all_reduce(table)
    same = np.flatnonzero((table == table[context.rank]).all(axis=1))
    return int(np.searchsorted(same, context.rank)), len(same)


def cut(own: range, share: tuple[int, int]) -> range:
    """This replica's share of a range that all of them own."""
    k, n = share
    size = len(own)
    return range(own.start + size * k // n, own.start + size * (k + 1) // n)


# ---- Saving -------------------------------------------------------------------------------------


def states_of(
    optimizer: torch.optim.Optimizer, names: Names, share: tuple[int, int], prefix: str
) -> Iterator[CheckpointTensor]:
    """This rank's shards of the states of a torch optimizer, in place. Local."""
    first = names.sharding.context.rank == 0
    for held in (one for group in held_params(optimizer, names) for one in group):
        state = optimizer.state.get(held.part, {})
        for key, value in state.items():
            if value is None:
                continue
            kind = kind_of(optimizer, key, prefix)
            what = f"{key} of {held.name}"
            if isinstance(value, (bool, int, float)):
                value = torch.tensor(float(value))
            if not isinstance(value, torch.Tensor):
                raise errors.UnsupportedError(
                    f"{what} is a {type(value).__name__}: checkpoints hold tensors and numbers of "
                    "optimizers",
                    subject=what,
                )
            value = value.detach()
            if value.dim() == 0:
                if first:
                    yield saved_tensor(held.name, value.to("cpu", copy=True), kind=kind, shape=())
            elif value.shape != held.part.shape:
                raise errors.UnsupportedError(
                    f"{what} has shape {tuple(value.shape)}, and this rank's shard of the param "
                    f"{tuple(held.part.shape)}: such a state is not of an elementwise rule",
                    subject=what,
                )
            elif held.sharded is not None:
                yield from part_of(held.name, value, kind, held.shape, held.own, share, first)
            elif first:
                yield saved_tensor(held.name, value.cpu(), kind=kind)


def part_of(
    name: str,
    value: torch.Tensor,
    kind: str,
    shape: tuple[int, ...],
    own: range,
    share: tuple[int, int],
    first: bool,
) -> Iterator[CheckpointTensor]:
    mine = cut(own, share)
    if len(mine) or (0 in shape and first):
        flat = value.reshape(-1)[mine.start - own.start : mine.stop - own.start].cpu()
        yield saved_tensor(name, flat, kind=kind, shape=shape, begin=mine.start)


def masters_of(names: Names, share: tuple[int, int]) -> Iterator[CheckpointTensor]:
    """f32 values of 16-bit params, where no optimizer of the engine has them. Local."""
    first = names.sharding.context.rank == 0
    for unit in names.units():
        if trained_by(unit) is not None:
            continue
        for i, master in unit.masters.items():
            name = names.of_place.get((unit, i))
            if name is not None:
                shape = tuple(unit.handles[i].shape)
                yield from part_of(name, master, "master", shape, unit.shard_range(i), share, first)


# ---- Numbers ------------------------------------------------------------------------------------

# Their kinds in checkpoints of other programs, which do not list them.
NUMBER_KINDS = frozenset(f"state.{key}" for key in NUMBERS)


def number_kinds(optimizer: torch.optim.Optimizer, prefix: str) -> list[str]:
    """The kinds of an optimizer's states that are one number, as a checkpoint lists them."""
    if isinstance(optimizer, EngineOptimizer):
        return []
    found = {key for part, state in optimizer.state.items() for key in numbers_in(part, state)}
    return sorted(kind_of(optimizer, key, prefix) for key in found)


# ---- Before the first step ----------------------------------------------------------------------


def mark_unstepped(states: Iterable[Mapping[str, Any]]) -> None:
    """Marks elementwise states that are zero by the sign of -0.0, which no step gives to all
    elements. Some rules start differently from zeros than from no state."""
    for state in states:
        for value in elementwise(state).values():
            if value.is_floating_point() and not value.any():
                value.fill_(-0.0)


def drop_unstepped(states: dict[torch.Tensor, dict[str, Any]]) -> None:
    """Removes the states of an optimizer that had not stepped when they were read."""
    values = [item for state in states.values() for item in elementwise(state).items()]
    if is_unstepped(values) or not any(float(s.get("step", 1)) for s in states.values()):
        states.clear()


def is_unstepped(values: Iterable[tuple[str, torch.Tensor]]) -> bool:
    """True if all elements of a state are marked, of each param that has some here."""
    marked: dict[str, bool] = {}
    for key, value in values:
        if value.numel():
            own = bool(((value == 0) & torch.signbit(value)).all())
            marked[key] = marked.get(key, True) and own
    return any(marked.values())


def elementwise(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The states of a shard that have a value for each element."""
    return {k: v for k, v in state.items() if isinstance(v, torch.Tensor) and v.dim()}


def dtype_of(
    optimizer: torch.optim.Optimizer, part: torch.Tensor, values: torch.Tensor
) -> torch.dtype:
    """As torch's load_state_dict: floating states have the param's dtype, but those of an optimizer
    that names another one."""
    if not values.is_floating_point():
        return values.dtype
    dtype: torch.dtype = getattr(optimizer, "_meron_state_dtype", part.dtype)
    return dtype


def begin_anew(optimizer: torch.optim.Optimizer, group: dict[str, Any], part: torch.Tensor) -> None:
    """Gives a param of a torch optimizer the states of before the first step. Local."""
    optimizer.state.pop(part, None)
    if isinstance(optimizer, torch.optim.Adagrad):  # others make theirs in a step
        first = group["initial_accumulator_value"]
        optimizer.state[part] = {
            "step": torch.zeros((), device="cpu"),
            "sum": torch.full_like(part.detach(), first),
        }


# ---- Groups -------------------------------------------------------------------------------------


def groups_of(optimizer: torch.optim.Optimizer, names: Names) -> list[dict[str, Any]]:
    """The options of an optimizer's groups, and the names of their params, as JSON has them."""
    if isinstance(optimizer, EngineOptimizer):
        listed = []
        for number, group in enumerate(optimizer.param_groups):
            found = [names.name_of(param) for param in group["params"]]
            for name, param in zip(found, group["params"]):
                if name is None:
                    raise foreign(optimizer, number, tuple(param.shape))
            listed.append(found)
    else:
        listed = [[held.name for held in group] for group in held_params(optimizer, names)]
    return [{**options_of(optimizer, number), "params": own} for number, own in enumerate(listed)]


def options_of(optimizer: torch.optim.Optimizer, number: int) -> dict[str, Any]:
    options = {}
    for key, value in optimizer.param_groups[number].items():
        if key in ("params", "param_names"):
            continue
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        plain = list(value) if isinstance(value, (tuple, list)) else [value]
        if not all(each is None or isinstance(each, (bool, int, float, str)) for each in plain):
            raise errors.UnsupportedError(
                f"param group {number} of {type(optimizer).__name__} has {key}={value!r}: "
                "checkpoints hold numbers and texts of groups",
                subject=key,
                advice=f"Delete optimizer.param_groups[{number}][{key!r}] before saving.",
            )
        options[key] = plain if isinstance(value, (tuple, list)) else value
    return options


def as_given(value: Any, like: Any) -> Any:
    """A group's option from a file, as the type that the optimizer has."""
    if isinstance(like, torch.Tensor):
        return torch.full_like(like, value)
    if isinstance(value, list):
        return list(value) if isinstance(like, list) else tuple(value)
    return value


def optimizers_in(optimizer: Any) -> list[torch.optim.Optimizer]:
    """One optimizer, several, or none, as a list."""
    if optimizer is None:
        return []
    given = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    for each in given:
        check_optimizer(each)
    return given


def engines_among(optimizers: Iterable[torch.optim.Optimizer]) -> list[EngineOptimizer]:
    return [each for each in optimizers if isinstance(each, EngineOptimizer)]
