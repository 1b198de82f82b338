# SPDX-License-Identifier: Apache-2.0
"""Optimizers' states by names of params, unsharded: as torch.distributed.checkpoint.state_dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from meron import errors
from meron.torch.checkpoint.agreement import together
from meron.torch.checkpoint.names import Models, Names
from meron.torch.checkpoint.restore import Plan, set_groups, set_states
from meron.torch.checkpoint.save import check_in_use
from meron.torch.checkpoint.shard_states import check_optimizer, groups_of, held_params, options_of
from meron.torch.engine_optimizer import EngineOptimizer
from meron.torch.engine_states import part_of
from meron.torch.state import full_optimizer_state


def get_optimizer_state_dict(model: Models, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """As torch.distributed.checkpoint's with full_state_dict=True: {"state": {param: {key: value}},
    "param_groups": [...]}, with names of params and unsharded tensors, on every rank.

    For a sharded model with an optimizer of meron.torch or one that shard_optimizer has taken.
    f32 masters of 16-bit params are not in it; `save` has them.
    Collective; blocks on peers. (Of the model, torch's get_model_state_dict gives the same.)
    """
    names = Names(model)
    groups: list[dict[str, Any]] = []
    with together(names.sharding.context):
        check_optimizer(optimizer)
        groups = groups_of(optimizer, names)
    for number, group in enumerate(groups):
        group.update(options_of(optimizer, number))
    state: dict[str, dict[str, Any]] = {}
    for name in (name for group in groups for name in group["params"]):
        found = state_of(names, optimizer, name)
        if found:
            state[name] = found
    return {"state": state, "param_groups": groups}


def state_of(names: Names, optimizer: torch.optim.Optimizer, name: str) -> dict[str, Any]:
    place = names.params.get(name)
    if place is None:  # all ranks have it
        return dict(optimizer.state.get(names.others[name], {}))
    unit, i = place
    param = unit.params[i]
    if isinstance(optimizer, EngineOptimizer):
        keys = [*optimizer.state_names, "step"] if optimizer.steps else []
    else:
        part = optimizer._meron_shards.parts[unit][i]  # type: ignore[attr-defined]
        keys = [k for k, value in optimizer.state.get(part, {}).items() if value is not None]
    found = {key: full_optimizer_state(optimizer, param, key) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def set_optimizer_state_dict(
    model: Models, optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]
) -> None:
    """Takes over what get_optimizer_state_dict returned, here or with another plan or number of
    ranks, or torch's function of the same name with full_state_dict=True.

    Each rank keeps its own parts. Params without states begin anew. Collective. Gradients are
    dropped.

    Raises ArgumentError on all ranks, naming a param or group that does not fit: nothing was
    changed.
    """
    names = Names(model)
    plan = Plan(optimizer)
    with together(names.sharding.context):
        check_optimizer(optimizer)
        check_in_use(names)
        plan = plan_from(names, optimizer, state_dict)
    names.sharding.wait_copied()
    names.sharding.reducer.discard(names.units())
    set_groups(plan)
    set_states(plan)


def plan_from(names: Names, optimizer: torch.optim.Optimizer, given: Mapping[str, Any]) -> Plan:
    plan = Plan(optimizer)
    own = groups_of(optimizer, names)
    groups = given["param_groups"]
    for number, (old, new) in enumerate(zip(groups, own)):
        other = {names.aliases.get(name, name) for name in old["params"]} ^ set(new["params"])
        if other:
            raise errors.argument(
                f"param group {number} has other params: {', '.join(sorted(other)[:10])}",
                subject="param_groups",
            )
        plan.groups.append({k: v for k, v in old.items() if k != "params" and k in new})
    if len(groups) != len(own):
        raise errors.argument(
            f"there are {len(groups)} param groups, and {len(own)} here", subject="param_groups"
        )
    counts = {int(state["step"]) for state in given["state"].values() if "step" in state}
    plan.steps = max(counts, default=0)
    states = {names.aliases.get(name, name): state for name, state in given["state"].items()}
    if isinstance(optimizer, EngineOptimizer):
        first = optimizer.initial_states(optimizer.defaults)
        for unit in optimizer.sharded:
            for i in unit.trainable:
                name = names.of_place.get((unit, i), "")
                for key in optimizer.state_names if optimizer.has_states(plan.groups[0]) else ():
                    value = states.get(name, {}).get(key)
                    if value is None:
                        value = torch.full((len(unit.owned(i)),), first.get(key, 0.0))
                    plan.parts.append((unit, i, key, part_of(unit, i, name, key, value)))
        return plan
    for held in (one for group in held_params(optimizer, names) for one in group):
        state = dict(states.get(held.name, {}))
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() and held.sharded is not None:
                state[key] = part_of(*held.sharded, held.name, key, value).to("cpu", copy=True)
            elif isinstance(value, torch.Tensor):
                state[key] = value.detach().clone()
        if state:
            plan.states[held.part] = state
    return plan
