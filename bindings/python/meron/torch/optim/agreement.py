# SPDX-License-Identifier: Apache-2.0
"""Checks that ranks give an optimizer the same numbers: one of torch before each step, one of the
engine when it is made.

Each rank updates its own shards, so ranks with different learning rates would update one tensor by
different rules. The engine's optimizers compare their numbers within the step; for torch's, ranks
exchange one number per step here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

import meron
from meron import errors
from meron.torch.guard import plain
from meron.torch.ranks import names_of_all_ranks, of_all_ranks, require_equal
from meron.torch.sharding import Sharding
from meron.torch.unit import ShardedUnit

# Options that select an implementation, not a result.
HOW = {"foreach", "fused", "capturable", "differentiable"}
ADVICE = (
    "Give all ranks the same value: a scheduler that follows a metric needs one of all ranks, such "
    "as their mean"
)


class StepAgreement:
    """Compares the param groups of all ranks, and which params are frozen.

    `parts` are the optimizer's parts of each unit, as Shards has them; `others` are keys of groups
    besides the rule's own.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        parts: dict[ShardedUnit, dict[int, Any]],
        others: Iterable[str] = (),
    ) -> None:
        self.optimizer = optimizer
        self.parts = parts
        self.keys = [*(key for key in optimizer.defaults if key not in HOW), *others]
        self.known: dict[Sharding, tuple[Any, float]] = {}  # the last values, and their checksum

    def check(self, sharding: Sharding, units: list[ShardedUnit]) -> None:
        """ArgumentError on all ranks that names a value on which they differ. Collective; blocks on
        peers. Nothing is changed, and gradients stay."""
        context = sharding.context
        if context.world_size == 1:
            return
        values = self.values(units)
        if sharding not in self.known or self.known[sharding][0] != values:
            self.known[sharding] = values, float(zlib.crc32(repr(values).encode()))
        checksums = of_all_ranks(context, [self.known[sharding][1]])[:, 0]
        if (checksums == checksums[0]).all():
            return
        named = dict(self.named_values(units))
        of = f"of {type(self.optimizer).__name__}"
        require_equal(context, {f"the number of values {of}": float(len(named))}, ADVICE)
        require_equal(context, named, ADVICE)
        raise errors.argument(f"the param groups {of} differ between ranks", advice=ADVICE)

    def groups_of(self, units: list[ShardedUnit]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The groups that have parts of some units: others may be of other ranks."""
        if len(self.optimizer.param_groups) == 1 or len(units) == len(self.parts):
            yield from enumerate(self.optimizer.param_groups)
            return
        own = {id(part) for unit in units for part in self.parts[unit].values()}
        for number, group in enumerate(self.optimizer.param_groups):
            if any(id(part) in own for part in group["params"]):
                yield number, group

    def values(self, units: list[ShardedUnit]) -> Any:
        with plain():
            moving = [unit.params[i].requires_grad for unit in units for i in self.parts[unit]]
        numbers = [
            [comparable(group.get(key)) for key in self.keys] for _, group in self.groups_of(units)
        ]
        return numbers, moving

    def named_values(self, units: list[ShardedUnit]) -> Iterator[tuple[str, float]]:
        name = type(self.optimizer).__name__
        yield from numbers_of(name, self.groups_of(units), self.keys)
        with plain():
            for unit in units:
                for i in self.parts[unit]:
                    param = f"{unit.name}.{unit.names[i]}"
                    yield f"requires_grad of '{param}'", float(unit.params[i].requires_grad)


def comparable(value: Any) -> Any:
    """A number of a group; a tensor's value."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return value


def as_number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else zlib.crc32(repr(value).encode())


def require_same(
    context: meron.Context,
    name: str,
    groups: list[dict[str, Any]],
    keys: list[str],
    max_norm: float,
) -> None:
    """ArgumentError on all ranks that names a value on which they differ, when they make an
    optimizer of the engine. Collective."""
    if context.world_size == 1:
        return
    values = dict(numbers_of(name, enumerate(groups), keys))
    values[f"max_norm of {name}"] = float(max_norm)
    checksum = float(zlib.crc32(repr((name, list(values.items()))).encode()))
    checksums = of_all_ranks(context, [checksum])[:, 0]
    if (checksums == checksums[0]).all():
        return
    names = names_of_all_ranks(context, name)
    other = next((rank for rank, each in enumerate(names) if each != names[0]), None)
    if other is not None:
        raise errors.argument(
            f"rank 0 makes the optimizer {names[0]}, and rank {other} {names[other]}",
            advice="Make the same one on all ranks.",
        )
    advice = "Pass the same value on all ranks."
    require_equal(context, {f"the number of values of {name}": float(len(values))}, advice)
    require_equal(context, values, advice)


def numbers_of(
    name: str, groups: Iterable[tuple[int, dict[str, Any]]], keys: Iterable[str]
) -> Iterator[tuple[str, float]]:
    """The values of param groups, by what errors call them."""
    for number, group in groups:
        for key in keys:
            value = comparable(group.get(key))
            several = isinstance(value, (tuple, list))
            for place, one in enumerate(value if several else (value,)):
                each = f"{key}[{place}]" if several else key
                yield f"{each} of {name}'s param group {number}", as_number(one)
