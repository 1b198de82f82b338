# SPDX-License-Identifier: Apache-2.0
"""A new optimizer replaces the one that has its params, as where a notebook's cell runs again.

A unit has one optimizer of the engine, which updates all of its params. Optimizers of torch on
shards may share params with each other, as without sharding, but not with one of the engine's: each
would have f32 values of its own of the 16-bit params.

The replaced optimizer releases its units, with their values. Calls of it raise StateError.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from meron import errors
from meron.torch import registry
from meron.torch.sharding import unit_of
from meron.torch.unit import ShardedUnit

Wanted = Mapping["ShardedUnit", "set[int]"]  # params of an optimizer, by their numbers in the unit


def wanted_by(params: Iterable[torch.Tensor]) -> dict[ShardedUnit, set[int]]:
    """The trainable ones of some params, by their unit."""
    wanted: dict[ShardedUnit, set[int]] = {}
    for unit, i in (place for place in map(unit_of, params) if place is not None):
        if i in unit.trainable:
            wanted.setdefault(unit, set()).add(i)
    return wanted


def trained_by(unit: ShardedUnit) -> Any:
    """The engine's optimizer of a unit; None when there is none, or it was released."""
    optimizer = unit.optimizer() if unit.optimizer is not None else None
    return None if optimizer is None or optimizer.released else optimizer


def engine_optimizers(kind: str, wanted: Wanted) -> list[Any]:
    """The optimizers of the engine that have some params, to be replaced. DuplicateError for one
    that has other params of the same unit: it would lose these."""
    found: dict[Any, None] = {}
    for unit, own in wanted.items():
        other = trained_by(unit)
        if other is None:
            continue
        theirs = {i for each, i in other._grouped if each is unit}
        if theirs and not theirs & own:
            raise errors.DuplicateError(
                f"unit '{unit.name}' has an optimizer already: {type(other).__name__} has other "
                f"params of it than this {kind}",
                subject=unit.name,
                advice="Shard the params of each optimizer as units of their own, or use one "
                "optimizer with two param groups.",
            )
        found[other] = None
    return list(found)


def torch_optimizers(units: Collection[ShardedUnit]) -> list[Any]:
    """The Shards of torch optimizers that have params of some units."""
    return [shards for shards in registry.shards if not shards.parts.keys().isdisjoint(units)]


def refuse_taken(where: str, units: Collection[ShardedUnit]) -> None:
    """DuplicateError for units, new in a param group, that another optimizer updates."""
    if torch_optimizers(units):
        gc.collect()  # an unreferenced one may exist until then
    taken = {unit for shards in torch_optimizers(units) for unit in shards.parts}
    for unit in units:
        if trained_by(unit) is not None or unit in taken:
            raise errors.DuplicateError(
                f"{where}: its unit has an optimizer already",
                subject=unit.name,
                advice="Make one optimizer of all groups: it replaces both.",
            )


def replaced_by(kind: str) -> str:
    return f"was replaced: a new {kind} was made of its params"


def ended(kind: str, end: str) -> errors.StateError:
    """The error of a call of an optimizer that cannot step any more."""
    return errors.StateError(
        f"this {kind} {end or 'was not made'}",
        advice="Use the optimizer that was made last of the params. Two optimizers need params of "
        "different units.",
    )
