# SPDX-License-Identifier: Apache-2.0
"""A check after each step of an optimizer of torch that f16 params can hold their new values.

The engine's optimizers try such a step before they take it. Torch's have updated their f32 values
and states by the time that these are narrowed, so the step cannot be undone.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from meron import errors
from meron.torch.ranks import of_all_ranks
from meron.torch.sharding import Sharding
from meron.torch.unit import ShardedUnit

LARGEST = torch.finfo(torch.float16).max
Parts = Mapping[ShardedUnit, Mapping[int, torch.Tensor]]  # of each unit, by param


def check_f16_range(sharding: Sharding, units: list[ShardedUnit], parts: Parts) -> None:
    """NonFiniteError on all ranks that names an f16 param with a finite f32 value that f16 cannot
    hold. Collective if the units have f16 params; blocks on peers."""
    if not any(unit.handles[i].dtype_name == "f16" for unit in units for i in unit.trainable):
        return
    found = first_too_large(units, parts)
    own = [0.0, 0.0, 0.0, 0.0] if found is None else [1.0, *found]
    for rank, (any_found, index, i, element) in enumerate(of_all_ranks(sharding.context, own)):
        if not any_found:
            continue
        name = sharding.units[int(index)].handles[int(i)].name
        raise errors.NonFiniteError(
            f"the step made a value infinite in f16: '{name}', element {int(element)}, in the "
            f"shard of rank {rank}",
            operation="step",
            subject=name,
            advice="The optimizer has taken the step, on all ranks. Load the last checkpoint, and "
            "lower the learning rate, or train the param in bf16 or f32.",
        )


def first_too_large(units: list[ShardedUnit], parts: Parts) -> tuple[int, int, int] | None:
    """Returns the unit's index, the param's in it, and the element's in the param."""
    for unit in units:
        for i in unit.masters:
            if unit.handles[i].dtype_name != "f16" or i not in parts[unit]:
                continue
            value = parts[unit][i].detach()
            if not value.numel() or fits(value):
                continue
            places = (value.isfinite() & value.half().isinf()).nonzero()
            if len(places):
                return unit.index, i, unit.shard_range(i).start + int(places[0])
    return None


def fits(value: torch.Tensor) -> bool:
    least, most = torch.aminmax(value)
    return max(-float(least), float(most)) <= LARGEST
