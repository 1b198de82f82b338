# SPDX-License-Identifier: Apache-2.0
"""States of optimizers by names of params, as torch.distributed.checkpoint.state_dict has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

import torch

from meron import errors
from meron.torch.checkpoint.agreement import together
from meron.torch.checkpoint.exchange import state_dict_from_rank0
from meron.torch.checkpoint.model_state import (
    cut,
    get_model_state_dict,
    set_model_state_dict,
    shard_of,
)
from meron.torch.checkpoint.names import Models, Names, Place
from meron.torch.checkpoint.optimizer_plan import (
    StatePlan,
    first_states,
    flatten,
    is_number,
    number_keys,
    plans_from,
    put_masters,
    unflatten,
)
from meron.torch.checkpoint.restore import set_groups, set_states
from meron.torch.checkpoint.save import check_in_use
from meron.torch.checkpoint.shard_states import Held, check_optimizer, groups_of, held_params
from meron.torch.checkpoint.state_options import (
    Options,
    options_from,
    refuse_short_names,
    refuse_submodules,
)
from meron.torch.flat_shard import FlatShard
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.packed import step_of
from meron.torch.optim.states import keys_of, read_state
from meron.torch.values.full import whole_of

Optimizers = Union[torch.optim.Optimizer, Iterable[torch.optim.Optimizer]]


def get_optimizer_state_dict(
    model: Models, optimizers: Optimizers, *, submodules: Any = None, options: Any = None
) -> dict[str, Any]:
    """The states of a sharded model's optimizers as torch's function of the same name:
    {"state": {param: {key: value}}, "param_groups": [...]}, with names of params. Collective;
    blocks on peers.

    By default a state of a param's shape is a FlatShard with this rank's range, as in
    get_model_state_dict; "step" and other numbers are plain. Everything is a copy, which the caller
    owns. "master" is the f32 value of a 16-bit param, where the optimizer keeps one. An optimizer
    that has not stepped gets the states that a step with zero gradients leaves, with "step" 0: a
    dict to load into. It stays as it was.

    Args:
        optimizers: of meron.torch, or that shard_optimizer has taken; or several. Their groups are
            returned one after the other.
        options: torch's StateDictOptions, as of get_model_state_dict. flatten_optimizer_state_dict:
            a flat dict with the keys "state.PARAM.KEY" and "param_groups.PARAM.KEY".
            `ignore_frozen_params` has no effect: frozen params have no states.

    Raises, on all ranks: StateError (a model or an optimizer that is not sharded), ArgumentError (a
    param of another model; an option or `submodules`, by name), UnsupportedError (a state that is
    not of an elementwise rule).
    """
    names = Names(model)
    context = names.sharding.context
    chosen = Options()
    groups: list[dict[str, Any]] = []
    states: dict[str, dict[str, Any]] = {}
    with together(context):
        chosen = options_from(options)
        refuse_submodules(submodules)
        refuse_short_names(chosen)
        for optimizer in optimizers_of(optimizers):
            groups += [as_torch_has(optimizer, n, g) for n, g in listed(optimizer, names)]
            states.update(states_of(names, optimizer))
    if chosen.full_state_dict:
        keep = not chosen.cpu_offload or context.rank == 0
        for name, state in states.items():
            for key, value in state.items():
                if isinstance(value, FlatShard):
                    local = value.to_local()
                    whole = whole_of(*names.params[name], local).to(local.dtype)
                    state[key] = whole if keep else None
        if not keep:
            return {}
    found = {"state": states, "param_groups": groups}
    return flatten(found) if chosen.flatten_optimizer_state_dict else found


def optimizers_of(given: Any) -> list[torch.optim.Optimizer]:
    found = list(given) if isinstance(given, Iterable) else [given]
    for each in found:
        check_optimizer(each)
    if not found:
        raise errors.argument("no optimizer was given", subject="optimizers")
    return found


def listed(optimizer: torch.optim.Optimizer, names: Names) -> Iterable[tuple[int, dict[str, Any]]]:
    return enumerate(groups_of(optimizer, names))


def as_torch_has(
    optimizer: torch.optim.Optimizer, number: int, group: dict[str, Any]
) -> dict[str, Any]:
    """A group with tuples where the optimizer has them, such as betas."""
    own = optimizer.param_groups[number]
    return {
        key: tuple(value) if isinstance(own.get(key), tuple) else value
        for key, value in group.items()
    }


# ---- States -------------------------------------------------------------------------------------


def states_of(names: Names, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Copies of this rank's ranges, and numbers. Local; blocks on this rank's drive if states
    reside there."""
    found: dict[str, dict[str, Any]] = {}
    if isinstance(optimizer, EngineOptimizer):
        for group in optimizer.param_groups:
            for param in group["params"]:
                unit, i = param._meron
                if i in unit.trainable:
                    state = {"step": step_of(optimizer, unit, i)}
                    for key in keys_of(optimizer, group, unit, i):
                        state[key] = shard_of(unit, i, read_state(optimizer, unit, i, key))
                    found[names.of_place[unit, i]] = state
        return found
    live: Mapping[torch.Tensor, dict[str, Any]] = optimizer.state or first_states(optimizer)
    for held in (one for group in held_params(optimizer, names) for one in group):
        own = {
            key: copy_of(held, key, value)
            for key, value in live.get(held.part, {}).items()
            if value is not None
        }
        if held.sharded is not None and keeps_master(optimizer, held.sharded):
            own["master"] = shard_of(*held.sharded, held.part.detach().clone())
        if own:
            found[held.name] = own
    return found


def keeps_master(optimizer: torch.optim.Optimizer, place: Place) -> bool:
    """True if a torch optimizer updates f32 values of a 16-bit param."""
    unit, i = place
    return i in unit.masters and i not in optimizer._meron_shards.direct[unit]  # type: ignore[attr-defined]


def copy_of(held: Held, key: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.dim() == 0 or held.sharded is None:
        return value.detach().clone()
    if value.shape != held.part.shape:
        raise errors.UnsupportedError(
            f"{key} of {held.name} has shape {tuple(value.shape)}, and this rank's shard of the "
            f"param {tuple(held.part.shape)}: such a state is not of an elementwise rule",
            subject=held.name,
        )
    return shard_of(*held.sharded, value.detach().to("cpu", copy=True))


# ---- Setting ------------------------------------------------------------------------------------


def set_optimizer_state_dict(
    model: Models,
    optimizers: Optimizers,
    optim_state_dict: Mapping[str, Any],
    *,
    options: Any = None,
) -> None:
    """Writes states and options of groups into a sharded model's optimizers, as torch's function of
    the same name. Collective; blocks on peers. Gradients are dropped.

    Takes what get_optimizer_state_dict returned here, after dcp.load say, or unsharded tensors,
    equal on all ranks; also those of another optimizer of the same rule, of torch or of
    meron.torch. Set the model first, because that also sets the f32 values of 16-bit params; a
    "master" then adds the bits that rounding dropped.

    Args:
        optimizers: as they were given to get_optimizer_state_dict, with the same groups.
        options: torch's StateDictOptions. full_state_dict, broadcast_from_rank0: as of
            set_model_state_dict. strict: False lets params without states begin anew, and leaves
            out states that the optimizers do not have. flatten_optimizer_state_dict: the dict is
            flat. `cpu_offload` and `ignore_frozen_params` have no effect.

    Raises ArgumentError on all ranks, naming a param or group that does not fit: nothing was
    changed. StateError: a param is in use.
    """
    names = Names(model)
    sharding = names.sharding
    chosen = Options()
    plans: list[StatePlan] = []
    found: list[torch.optim.Optimizer] = []
    given: Mapping[str, Any] = {}
    with together(sharding.context):
        chosen = options_from(options)
        refuse_short_names(chosen)
        found = optimizers_of(optimizers)
        check_in_use(names)
        if not chosen.broadcast_from_rank0 or sharding.context.rank == 0:
            given = nested(names, found, optim_state_dict)
    if chosen.broadcast_from_rank0:
        numbers = set().union(*map(number_keys, found))
        given = state_dict_from_rank0(
            sharding.context, dict(given), lambda path, t: kept(names, numbers, path, t)
        )
    with together(sharding.context):
        plans = plans_from(names, found, given, chosen)
    sharding.wait_copied()
    sharding.reducer.discard(names.units())
    sharding.reducer.drop_empty()  # of other models
    for plan in plans:
        set_groups(plan)
    for plan in plans:
        set_states(plan)
        put_masters(plan)


def nested(names: Names, optimizers: list[torch.optim.Optimizer], given: Any) -> Mapping[str, Any]:
    """A state dict that may be flat, in the other form."""
    if not isinstance(given, Mapping):
        raise errors.argument(
            f"the state dict is a {type(given).__name__}", subject="optim_state_dict"
        )
    if "state" in given and "param_groups" in given:
        return given
    own = [group for each in optimizers for group in groups_of(each, names)]
    return unflatten(names, own, given)


def kept(
    names: Names, numbers: set[str], path: tuple[Any, ...], whole: torch.Tensor
) -> torch.Tensor:
    """Returns the part of rank 0's state that this rank keeps. Local."""
    if len(path) != 3 or path[0] != "state":
        return whole
    place = names.params.get(names.aliases.get(path[1], path[1]))
    if place is None or tuple(place[0].handles[place[1]].shape) != tuple(whole.shape):
        return whole
    return whole if is_number(path[2], whole, numbers) else cut(*place, whole)


# ---- Both ---------------------------------------------------------------------------------------


def get_state_dict(
    model: Models, optimizers: Optimizers, *, submodules: Any = None, options: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """get_model_state_dict and get_optimizer_state_dict. Collective; blocks on peers."""
    values = get_model_state_dict(model, submodules=submodules, options=options)
    return values, get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(
    model: Models,
    optimizers: Optimizers,
    *,
    model_state_dict: Mapping[str, Any],
    optim_state_dict: Mapping[str, Any],
    options: Any = None,
) -> Any:
    """set_model_state_dict, and then set_optimizer_state_dict. Collective; blocks on peers.

    Returns and raises what they do: where the optimizers' states do not fit, the model has its new
    values already.
    """
    result = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result
