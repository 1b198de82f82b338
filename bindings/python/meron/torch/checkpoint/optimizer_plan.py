# SPDX-License-Identifier: Apache-2.0
"""The states that optimizers take from a state dict, checked before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from meron import errors
from meron.torch.checkpoint.compare import SHOWN
from meron.torch.checkpoint.model_state import as_shard
from meron.torch.checkpoint.names import Names
from meron.torch.checkpoint.restore import Plan
from meron.torch.checkpoint.shard_states import (
    Held,
    drop_unstepped,
    dtype_of,
    groups_of,
    held_params,
    mark_unstepped,
)
from meron.torch.checkpoint.state_options import Options
from meron.torch.flat_shard import FlatShard
from meron.torch.guard import plain
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.packed import checked_count, first_values, part_of
from meron.torch.optim.states import numbers_in, read_state
from meron.torch.tensors import DTYPES
from meron.torch.unit import ShardedUnit

States = dict[str, dict[str, Any]]


@dataclass
class StatePlan(Plan):
    """Also the f32 values of 16-bit params that a torch optimizer updates: its param, values."""

    masters: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)


def is_number(key: str, value: Any, numbers: set[str]) -> bool:
    """True for a state that is one number, also of a param of shape ()."""
    return not isinstance(value, torch.Tensor) or (
        value.dim() == 0 and key in numbers and not isinstance(value, FlatShard)
    )


def number_keys(optimizer: torch.optim.Optimizer) -> set[str]:
    """The states of an optimizer that are one number. Its shards are flat, so a state of a shard
    has a dimension. Local."""
    if isinstance(optimizer, EngineOptimizer):
        return {"step"}
    live = optimizer.state or first_states(optimizer)
    return {key for part, state in live.items() for key in numbers_in(part, state)} | {"step"}


def put_masters(plan: StatePlan) -> None:
    """After set_states. Local."""
    with torch.no_grad():
        for part, value in plan.masters:
            part.data.copy_(value)
    if isinstance(plan.optimizer, EngineOptimizer):  # which has them now
        for unit in plan.optimizer.sharded:
            unit.masters.clear()


# ---- Flat dicts ---------------------------------------------------------------------------------


def flatten(state: dict[str, Any]) -> dict[str, Any]:
    """As torch's flatten_optimizer_state_dict."""
    found = {
        f"state.{name}.{key}": value
        for name, own in state["state"].items()
        for key, value in own.items()
    }
    for group in state["param_groups"]:
        for name in group["params"]:
            found.update({f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"})
    return found


def unflatten(names: Names, own: list[dict[str, Any]], given: Mapping[str, Any]) -> dict[str, Any]:
    """ArgumentError for a key that is of no param, or options that differ within a group."""
    used = [name for group in own for name in group["params"]]
    known = {alias: name for name in used for alias in names.all_names(name)}
    states: States = {}
    options: States = {}
    for key, value in given.items():
        kind, _, rest = str(key).partition(".")
        name = rest.rpartition(".")[0]
        if kind not in ("state", "param_groups") or name not in known:
            raise errors.argument(
                f"{key!r} is no state or option of a param of the optimizers",
                subject=str(key),
                advice="Pass what get_optimizer_state_dict returned, of an equal model.",
            )
        table = states if kind == "state" else options
        table.setdefault(known[name], {})[rest.rpartition(".")[2]] = value
    groups = []
    for number, group in enumerate(own):
        first = options.get(group["params"][0], {}) if group["params"] else {}
        for name in group["params"]:
            if options.get(name, {}) != first:
                raise errors.argument(
                    f"{name} has other options than {group['params'][0]}, which is in param group "
                    f"{number} too",
                    subject=name,
                )
        groups.append({**first, "params": group["params"]})
    return {"state": states, "param_groups": groups}


# ---- Comparing ----------------------------------------------------------------------------------


def plans_from(
    names: Names,
    optimizers: list[torch.optim.Optimizer],
    given: Mapping[str, Any],
    options: Options,
) -> list[StatePlan]:
    """Local. ArgumentError naming what does not fit."""
    if not isinstance(given["state"], Mapping):
        raise errors.argument(
            f"'state' is a {type(given['state']).__name__}, no dict by names of params",
            subject="state",
        )
    own = [groups_of(optimizer, names) for optimizer in optimizers]
    groups = checked_groups(names, [group for each in own for group in each], given)
    states = by_used_names(names, given["state"])
    refuse_unsharded_options(states, options)
    if options.strict:
        known = {name for each in own for group in each for name in group["params"]}
        refuse_names(
            "states of params that the optimizers do not have", sorted(states.keys() - known)
        )
    plans = []
    begin = 0
    for optimizer, its in zip(optimizers, own):
        plan = StatePlan(optimizer, groups=groups[begin : begin + len(its)])
        begin += len(its)
        if isinstance(optimizer, EngineOptimizer):
            plan_engine(plan, optimizer, names, states, options.strict)
        else:
            plan_torch(plan, optimizer, names, states, options.strict)
        plans.append(plan)
    return plans


def refuse_names(what: str, found: list[str]) -> None:
    if found:
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise errors.argument(
            f"the state dict does not fit: {what}: {', '.join(found[:SHOWN])}{more}",
            subject=found[0],
            advice="Give the states of equal optimizers, or StateDictOptions(strict=False).",
        )


def refuse_missing(states: States, wanted: Mapping[str, list[str]]) -> None:
    """ArgumentError naming params whose states are missing, or lack one of some keys."""
    lost = []
    for name, keys in wanted.items():
        missing = [key for key in keys if key not in states.get(name, {})]
        if missing:
            lost.append(name if len(missing) == len(keys) else f"{name} ({', '.join(missing)})")
    refuse_names("there are no states of", lost)


def checked_groups(
    names: Names, own: list[dict[str, Any]], given: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The options of groups as they are given."""
    found = []
    groups = given["param_groups"]
    for number, (old, new) in enumerate(zip(groups, own)):
        other = {names.aliases.get(name, name) for name in old["params"]} ^ set(new["params"])
        if other:
            listed = ", ".join(sorted(map(str, other))[:SHOWN])
            raise errors.argument(
                f"param group {number} has other params: {listed}",
                subject="param_groups",
                advice="Make the optimizers with the same groups.",
            )
        found.append({k: v for k, v in old.items() if k != "params" and k in new})
    if len(groups) != len(own):
        raise errors.argument(
            f"there are {len(groups)} param groups, and {len(own)} here", subject="param_groups"
        )
    return found


def by_used_names(names: Names, given: Mapping[Any, Any]) -> States:
    """States by the names that the model uses, without those that are None."""
    found: States = {}
    for key, state in given.items():
        if not isinstance(state, Mapping):
            raise errors.argument(f"the state of {key} is a {type(state).__name__}", str(key))
        own = {each: value for each, value in state.items() if value is not None}
        if own:
            found[names.aliases.get(key, key)] = own
    return found


def refuse_unsharded_options(states: States, options: Options) -> None:
    if not options.full_state_dict or options.broadcast_from_rank0:
        return
    for name, state in states.items():
        for key, value in state.items():
            if isinstance(value, FlatShard):
                raise errors.argument(
                    f"{key} of {name} is sharded, and full_state_dict=True was given",
                    subject="full_state_dict",
                )


def local_of(unit: ShardedUnit, i: int, name: str, key: str, value: Any) -> torch.Tensor:
    """This rank's range of a state."""
    if not isinstance(value, torch.Tensor):
        raise errors.argument(f"{key} of {name} is a {type(value).__name__}", subject=name)
    shape = tuple(unit.handles[i].shape)
    if tuple(value.shape) == shape or isinstance(value, FlatShard):
        if tuple(value.shape) != shape:
            raise errors.argument(
                f"{key} of {name} has shape {tuple(value.shape)}, and the param {shape}",
                subject=name,
            )
        return as_shard(unit, i, f"{key} of {name}", value).to_local()
    return part_of(unit, i, name, key, value)


def check_master(unit: ShardedUnit, i: int, name: str, now: Any, new: torch.Tensor) -> None:
    """ArgumentError for f32 values that are not those of the model's 16-bit ones."""
    dtype = DTYPES[unit.handles[i].dtype_name]
    if not torch.equal(now.to(dtype).view(torch.int16), new.to(dtype).view(torch.int16)):
        raise errors.argument(
            f"the f32 values of {name} ('master') do not round to its {unit.handles[i].dtype_name} "
            "values: they are of another state of the model",
            subject=name,
            advice="Set the model's values of the same checkpoint before; if it has no 'master', "
            "delete that key from the states.",
        )


# ---- The engine's -------------------------------------------------------------------------------


def plan_engine(
    plan: StatePlan, optimizer: EngineOptimizer, names: Names, states: States, strict: bool
) -> None:
    group = {**optimizer.defaults, **plan.groups[0]}
    first = optimizer.initial_states(optimizer.defaults)
    keys = list(optimizer.state_names) if optimizer.has_states(group) else []
    grouped = {param._meron for each in optimizer.param_groups for param in each["params"]}
    places = [(unit, i) for unit in optimizer.sharded for i in unit.trainable]
    wanted = [names.of_place.get(place, "") for place in places if place in grouped]
    if strict:
        refuse_missing(states, dict.fromkeys(wanted, keys))
    for unit, i in places:
        name = names.of_place.get((unit, i), "")
        state = states.get(name, {})
        low = unit.handles[i].dtype_name != "f32"
        known = {*optimizer.state_names, "step", *(["master"] if low else [])}
        if strict:
            refuse_names(
                f"{type(optimizer).__name__} does not have",
                [f"{key} of {name}" for key in state if key not in known],
            )
        for key in keys:
            if key in state:
                values = local_of(unit, i, name, key, state[key])
            else:
                values = first_values(unit, i, first.get(key))
            plan.parts.append((unit, i, key, values))
        if low and "master" in state:
            values = local_of(unit, i, name, "master", state["master"])
            check_master(unit, i, name, read_state(optimizer, unit, i, "master"), values)
            plan.parts.append((unit, i, "master", values))
        if state.keys() - {"master"}:  # (SGD of torch does not count.)
            plan.counts[unit, i] = checked_count(name, state.get("step", 1))


# ---- Torch's ------------------------------------------------------------------------------------


def first_states(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, dict[str, Any]]:
    """The states of an optimizer of torch that has none yet, which stays as it is. Local.

    A step of its class makes them, on zeros in place of params and gradients. `drop_unstepped`
    finds them.
    """
    params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    before = [(param, param.data, param.grad) for param in params]
    step = type(optimizer).step
    step = getattr(step, "__wrapped__", step)  # without hooks, which count steps
    dtype = getattr(optimizer, "_meron_state_dtype", None)
    with plain(), torch.no_grad():
        try:
            for param in params:
                param.grad = None
                param.data = torch.zeros_like(param, dtype=dtype)
                param.grad = torch.zeros_like(param)
            step(optimizer)
        finally:
            for param, data, grad in before:
                param.data, param.grad = data, grad
            found = dict(optimizer.state)
            optimizer.state.clear()
    for state in found.values():
        if isinstance(state.get("step"), torch.Tensor):
            state["step"] = torch.zeros_like(state["step"])
        elif "step" in state:
            state["step"] = 0
    mark_unstepped(found.values())
    return found


def plan_torch(
    plan: StatePlan,
    optimizer: torch.optim.Optimizer,
    names: Names,
    states: States,
    strict: bool,
) -> None:
    held = [one for group in held_params(optimizer, names) for one in group]
    numbers = number_keys(optimizer)
    if strict:
        live = optimizer.state or first_states(optimizer)
        wanted = {one.name: live.get(one.part, {}) for one in held}
        refuse_missing(
            states,
            {n: [k for k in own if own[k] is not None] for n, own in wanted.items()},
        )
    for one in held:
        state = {}
        for key, value in states.get(one.name, {}).items():
            if key == "master" and one.sharded is not None:
                plan_master(plan, optimizer, one, value, strict)
            elif is_number(key, value, numbers) or one.sharded is None:
                copied = value.detach().clone() if isinstance(value, torch.Tensor) else value
                state[key] = copied
            elif value.dim() or one.shape == ():
                values = local_of(*one.sharded, one.name, key, value)
                dtype = dtype_of(optimizer, one.part, values)
                state[key] = values.to("cpu", dtype, copy=True)
            else:
                state[key] = value.detach().clone()
        if state:
            plan.states[one.part] = state
    drop_unstepped(plan.states)


def plan_master(
    plan: StatePlan, optimizer: torch.optim.Optimizer, one: Held, value: Any, strict: bool
) -> None:
    assert one.sharded is not None
    unit, i = one.sharded
    if i in unit.masters and i not in optimizer._meron_shards.direct[unit]:  # type: ignore[attr-defined]
        values = local_of(unit, i, one.name, "master", value)
        check_master(unit, i, one.name, one.part.detach(), values)
        plan.masters.append((one.part, values))
    elif strict:
        raise errors.argument(
            f"there are f32 values of {one.name} ('master'), and {type(optimizer).__name__} here "
            f"updates the {unit.handles[i].dtype_name} values",
            subject=one.name,
            advice="Set them as the model's values, and delete 'master' from the states; or give "
            "StateDictOptions(strict=False), which leaves them out.",
        )
