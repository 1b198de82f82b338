# SPDX-License-Identifier: Apache-2.0
"""Checks of param groups of the engine's optimizers, and names for their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from meron import errors
from meron.torch.sharding import unit_of
from meron.torch.unit import ShardedUnit

# Options of torch's classes that select an implementation. The engine has only one.
WITHOUT_EFFECT = ("foreach", "fused", "capturable")
# Options that are numbers.
NUMBERS = (
    "lr",
    "betas",
    "eps",
    "weight_decay",
    "momentum",
    "dampening",
    "lr_decay",
    "initial_accumulator_value",
)
# Options that select a rule that the engine lacks.
REFUSED = {
    "amsgrad": "the engine has no maximum of the averages of squares",
    "maximize": "the engine descends; turn the sign of the loss",
    "differentiable": "a step is not recorded by autograd",
}


def check_param(name: str, number: int, param: torch.Tensor, first: torch.Tensor) -> None:
    """ArgumentError for one that is not sharded, or not with the optimizer's first param."""
    place = unit_of(param)
    if place is None:
        raise errors.argument(
            f"param group {number} of {name} has a tensor of shape "
            f"{tuple(param.shape)} that is no sharded param",
            subject="params",
            advice="Pass params of a module that meron.torch.shard has sharded.",
        )
    other = unit_of(first)
    if other is not None and other[0].sharding is not place[0].sharding:
        raise errors.argument(
            f"param group {number} of {name} has '{name_of(*place)}', which is sharded "
            f"by another plan or group of ranks than '{name_of(*other)}'",
            subject=name_of(*place),
            advice="Use one optimizer for each.",
        )


def refuse_options(name: str, number: int, group: Mapping[str, Any]) -> None:
    """UnsupportedError for options that ask for another rule than the engine has."""
    for key, reason in REFUSED.items():
        if group.get(key):
            raise errors.UnsupportedError(
                f"Meron does not have yet: {name} with {key}={group[key]} (param group "
                f"{number}): {reason}",
                subject=key,
                advice=f"Leave it out, or use torch.optim.{name} with meron.torch.shard_optimizer.",
            )


def check_numbers(where: str, group: Mapping[str, Any]) -> None:
    """ArgumentError for an option that is no number, such as the text that YAML makes of 1e-3."""
    for key in (key for key in NUMBERS if key in group):
        value = group[key]
        several = key == "betas"
        if several and not (isinstance(value, (tuple, list)) and len(value) == 2):
            raise errors.argument(
                f"{where}{key} is {value!r}", key, "Pass two numbers, such as (0.9, 0.999)."
            )
        for each in value if several else (value,):
            try:
                right = not isinstance(each, (str, bytes)) and float(each) is not None
            except (TypeError, ValueError):
                right = False
            if not right:
                advice = "Pass a number."
                if isinstance(each, str):
                    advice = "Pass a number; YAML reads 1e-3 as text, and 1.0e-3 as a number."
                raise errors.argument(f"{where}{key} is {each!r}, which is no number", key, advice)


def without_effect(group: Mapping[str, Any]) -> list[str]:
    return [key for key in WITHOUT_EFFECT if group.get(key) is not None and group[key]]


def refuse_others(
    name: str,
    number: int,
    group: Mapping[str, Any],
    wanted: Mapping[str, str],
    own: Mapping[str, Any],
    common: Mapping[str, Any],
) -> None:
    """Raises UnsupportedError if a group's `own` values differ from those `common` to all groups.
    `wanted` has the restriction on each key."""
    for key, value in own.items():
        if value != common[key]:
            raise errors.UnsupportedError(
                f"{key} of {name} must be {wanted[key]}, from the start: param "
                f"group {number} has {group[key]}",
                subject=key,
                advice=f"Use torch.optim.{name} with meron.torch.shard_optimizer for others.",
            )


@contextlib.contextmanager
def named(where: str, names: dict[str, str]) -> Iterator[None]:
    """Errors within about a number begin with where it is, and have torch's name of it."""
    try:
        yield
    except errors.ArgumentError as error:
        name = names.get(error.subject)
        if name is None:
            raise
        _, _, wrong = error.message.partition(error.subject)
        raise errors.argument(f"{where}{name}{wrong}", name, error.advice) from None


def name_of(unit: ShardedUnit, i: int) -> str:
    return f"{unit.name}.{unit.names[i]}"
