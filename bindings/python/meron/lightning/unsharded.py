# SPDX-License-Identifier: Apache-2.0
"""Unsharded weights and states of optimizers, as files of other strategies have them.

Such a file is checked on all ranks before anything of it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

import meron.torch as mt
from meron import errors
from meron.torch.checkpoint.agreement import LoadError
from meron.torch.checkpoint.shard_states import begin_anew
from meron.torch.optim.packed import unpack_states
from meron.torch.optim.replacement import trained_by
from meron.torch.optim.states import read_state
from meron.torch.sharding import unit_of
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import exact_param, whole_of

ADVICE = (
    "Make the optimizer as the one that was saved, or load weights alone by "
    "MeronStrategy(load_full_weights=True)."
)
# Keys of param groups that torch's optimizers got over time: older files lack them.
LATE = {"foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay"}
LATE |= {"amsgrad", "nesterov", "initial_lr"}
Places = dict[int, tuple[ShardedUnit, int]]


# ---- Out of shards ------------------------------------------------------------------------------


def full_value(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a param, unsharded, in host memory: the f32 values that an optimizer updates, where
    there are some. Collective. Of another tensor its values. Local."""
    place = unit_of(tensor)
    if place is None:
        return tensor.detach().cpu().clone()
    unit, i = place
    if unit.handles[i].dtype_name == "f32" or i not in unit.trainable:
        return exact_param(tensor).cpu()
    optimizer = trained_by(unit)
    if optimizer is not None:
        return whole_of(unit, i, read_state(optimizer, unit, i, "master"))
    master = unit.masters.get(i)
    return exact_param(tensor).cpu() if master is None else whole_of(unit, i, master)


def on_shards(optimizer: torch.optim.Optimizer) -> bool:
    """True if an optimizer was set up with a sharded model; others are torch's as they are."""
    return isinstance(optimizer, mt.EngineOptimizer) or hasattr(optimizer, "_meron_shards")


def full_states(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """`state_dict()` of an optimizer on shards with unsharded states, as torch has them without
    sharding. Collective; blocks on peers. Memory: all states on every rank."""
    if isinstance(optimizer, mt.EngineOptimizer):
        return optimizer.full_state_dict()
    packed: dict[str, Any] = optimizer.state_dict()
    places = places_of(optimizer)
    for index, state in packed["state"].items():
        if index in places:
            unit, i = places[index]
            size = len(unit.shard_range(i))
            packed["state"][index] = {
                key: whole_of(unit, i, value.float()).to(value.dtype)
                if isinstance(value, torch.Tensor) and value.dim() and value.numel() == size
                else value
                for key, value in state.items()
            }
    return packed


# ---- Into shards --------------------------------------------------------------------------------


def check_all(
    optimizers: Sequence[torch.optim.Optimizer], saved: Sequence[Mapping[str, Any]]
) -> None:
    """LoadError, before anything has changed, for states that do not fit. Local."""
    if len(saved) != len(optimizers):
        raise LoadError(
            f"the checkpoint has states of {len(saved)} optimizers, and this run has "
            f"{len(optimizers)}",
            subject="optimizer_states",
            advice=ADVICE,
        )
    for optimizer, each in zip(optimizers, saved):
        check_full_states(optimizer, each)


def check_full_states(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """LoadError, before anything has changed, for states of an optimizer that do not fit. Local."""
    kind = type(optimizer).__name__
    if not isinstance(saved, Mapping) or not {"state", "param_groups"} <= saved.keys():
        raise LoadError(
            f"the checkpoint has no state of {kind}: 'state' and 'param_groups' are not in it",
            subject="optimizer_states",
            advice=ADVICE,
        )
    groups = saved["param_groups"]
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if [len(group["params"]) for group in groups] != sizes:
        raise LoadError(
            f"the checkpoint has param groups of {[len(g['params']) for g in groups]} params for "
            f"{kind}, which has {sizes}",
            subject="optimizer_states",
            advice=ADVICE,
        )
    lacking = sorted(set(optimizer.defaults).difference(*groups) - LATE) if groups else []
    if lacking and not isinstance(optimizer, mt.EngineOptimizer):
        raise LoadError(
            f"the checkpoint has states of another optimizer than {kind}: its groups have no "
            f"{', '.join(lacking)}",
            subject="optimizer_states",
            advice=ADVICE,
        )
    if isinstance(optimizer, mt.EngineOptimizer):
        try:
            unpack_states(optimizer, saved)
        except errors.ArgumentError as error:
            raise LoadError(error.message, subject=error.subject, advice=ADVICE) from None
        return
    for _, index, unit, i in saved_places(optimizer, saved) if on_shards(optimizer) else ():
        for key, value in saved["state"].get(index, {}).items():
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                continue
            if tuple(value.shape) != tuple(unit.handles[i].shape):
                name = f"{unit.name}.{unit.names[i]}"
                raise LoadError(
                    f"{key} of '{name}' has shape {tuple(value.shape)} in the checkpoint, and the "
                    f"param {tuple(unit.handles[i].shape)}",
                    subject=name,
                    advice=ADVICE,
                )


def take_full_states(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Gives an optimizer this rank's parts of unsharded states, which were checked. Collective."""
    if isinstance(optimizer, mt.EngineOptimizer):
        optimizer.load_state_dict(dict(saved))
        return
    states: dict[torch.Tensor, dict[str, Any]] = {}
    for part, index, unit, i in saved_places(optimizer, saved):
        shard_range = unit.shard_range(i)
        states[part] = {
            key: value.reshape(-1)[shard_range.start : shard_range.stop].clone()
            if isinstance(value, torch.Tensor) and value.dim()
            else value
            for key, value in saved["state"].get(index, {}).items()
        }
    for theirs, ours in zip(saved["param_groups"], optimizer.param_groups):
        ours.update((key, value) for key, value in theirs.items() if key != "params")
    for group in optimizer.param_groups:
        for part in (part for part in group["params"] if part in states):
            if states[part]:
                optimizer.state[part] = states[part]
            else:
                begin_anew(optimizer, group, part)


def saved_places(
    optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, int, ShardedUnit, int]]:
    """This rank's part of each param of an optimizer, its number in a file, and its place."""
    places = places_by_part(optimizer)
    for theirs, ours in zip(saved["param_groups"], optimizer.param_groups):
        for index, part in zip(theirs["params"], ours["params"]):
            if id(part) in places:
                yield part, index, *places[id(part)]


def places_by_part(optimizer: torch.optim.Optimizer) -> Places:
    shards = getattr(optimizer, "_meron_shards", None)
    if shards is None:
        raise errors.StateError(
            f"this {type(optimizer).__name__} does not run on shards",
            operation="load",
            advice="Set it up with its model: return it from configure_optimizers, or call "
            "fabric.setup(model, optimizer).",
        )
    return {
        id(part): (unit, i) for unit, parts in shards.parts.items() for i, part in parts.items()
    }


def places_of(optimizer: torch.optim.Optimizer) -> Places:
    """The place of each param of an optimizer by its number in a state_dict."""
    places = places_by_part(optimizer)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return {n: places[id(param)] for n, param in enumerate(params) if id(param) in places}
