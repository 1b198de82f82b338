# SPDX-License-Identifier: Apache-2.0
"""revert: a sharded model becomes an ordinary one again, to be sharded in another way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from meron import errors
from meron.torch.destroy import agree_to_end, remove_all
from meron.torch.optim.replacement import torch_optimizers
from meron.torch.sharding import sharding_with, unit_of
from meron.torch.torch_internals import CALL, own_params, replace_params
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import exact_param, whole_of
from meron.zero.attributes import ZeroParameter
from meron.zero.copying import MARKS
from meron.zero.owner import ENGINE_MARK, Owner, owners_of
from meron.zero.units import units_of

SHARDED_ANEW = "was released: its model was sharded in another way"
# Attributes of a param that sharding and an engine set.
PARAM_MARKS = ("_meron", ENGINE_MARK, "_meron_replaced", "ds_id")


def revert(model: torch.nn.Module, owners: Collection[Owner] = ()) -> None:
    """Undoes the sharding of a model that has no engine but `owners`. Collective; blocks on peers.

    Its Parameter objects stay the same. Every rank gets all values, in the dtypes that the model
    was built with, of the f32 values where an optimizer has updated these. Memory: the whole model
    on each rank. Optimizers on it are released: their calls raise StateError from now on.

    Raises StateError, on all ranks and before anything has changed: the model has an engine, is in
    a forward, or shares a unit with another model. Nothing happens if it is not sharded.
    """
    units = units_of(model)
    if not units:
        return
    optimizers = agree_to_end(model, units, "revert", lambda: check_apart(model, owners))
    for optimizer in optimizers:
        optimizer.release(SHARDED_ANEW)  # its f32 values are the units' then
    for shards in torch_optimizers(units):
        shards.end_by(SHARDED_ANEW)
    places = {param: unit_of(param) for unit in units for param in unit.params}
    values = {param: value_of(*place) for param, place in places.items() if place is not None}
    kinds = {param: kind for unit in units for param, kind in zip(unit.params, unit.data.kinds)}
    for unit in units:
        for handle in unit.gradients.watches:
            handle.remove()
    remove_all(units)
    for part in model.modules():
        unhook(part)
    for param, value in values.items():
        param.__class__ = plain_kind(kinds[param])
        param.data = value
        for name in PARAM_MARKS:
            param.__dict__.pop(name, None)


def check_apart(model: torch.nn.Module, owners: Collection[Owner]) -> None:
    """StateError for a model with an engine that is none of `owners`, or in a forward."""
    if any(all(owner is not each for each in owners) for owner in owners_of(model)):
        raise errors.StateError(
            f"{type(model).__name__} has an engine",
            operation="revert",
            advice="Call engine.destroy() before.",
        )
    if any(sharding_with(unit).passes.active for unit in units_of(model)):
        raise errors.StateError(
            f"{type(model).__name__} is in a forward",
            operation="revert",
            advice="Do it between steps.",
        )


def value_of(unit: ShardedUnit, i: int) -> torch.Tensor:
    """All of a param as its model was built, where it computes. Collective."""
    master = unit.masters.get(i)
    value = exact_param(unit.params[i]) if master is None else whole_of(unit, i, master)
    return value.to(unit.sharding.torch_device, unit.built[i])


def plain_kind(kind: type[torch.nn.Parameter]) -> Any:
    """The class that a param had before it became a ZeroParameter."""
    return kind.__bases__[-1] if issubclass(kind, ZeroParameter) else kind


def unhook(part: torch.nn.Module) -> None:
    """Removes the hooks and attributes of sharding from a module. The caller's hooks stay."""
    attributes = part.__dict__
    scope = attributes.get("_meron_scope")
    if scope is not None and CALL in attributes:
        scope.remove()
    for name in MARKS:
        attributes.pop(name, None)
    replace_params(part, dict(own_params(part)))
