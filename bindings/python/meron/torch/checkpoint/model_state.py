# SPDX-License-Identifier: Apache-2.0
"""Values of a sharded model as torch.distributed.checkpoint.state_dict has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

import meron
from meron import errors
from meron.torch.checkpoint.agreement import LoadError, together
from meron.torch.checkpoint.compare import Differences
from meron.torch.checkpoint.deferred import fill_buffers, refuse_meta_buffers
from meron.torch.checkpoint.exchange import state_dict_from_rank0
from meron.torch.checkpoint.load import put
from meron.torch.checkpoint.names import Models, Names, modules_of
from meron.torch.checkpoint.save import check_in_use, check_values
from meron.torch.checkpoint.state_options import (
    Options,
    options_from,
    prefixes_of,
    refuse_short_names,
)
from meron.torch.flat_shard import FlatShard, number_of
from meron.torch.sharding import Sharding, sharding_with
from meron.torch.torch_internals import (
    EXTRA_STATE,
    IncompatibleKeys,
    own_buffers,
    own_params,
    unsaved_buffers,
)
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import exact_param, own_values


def get_model_state_dict(
    model: Models, *, submodules: Any = None, options: Any = None
) -> dict[str, Any]:
    """The values of a sharded model by their names in state_dict(), as torch's function of the same
    name. Collective; blocks on peers.

    By default each rank gets its own range of every sharded param, as a FlatShard: the shape and
    dtype of the whole, the memory of the range. `torch.distributed.checkpoint` (dcp) saves such a
    dict, and loads into it at any number of ranks; `dcp_save` does without a process group. Params
    in no unit and buffers are plain tensors. Everything is a copy, which the caller owns: call
    set_model_state_dict after a load. Values of 16-bit params are in their dtype;
    get_optimizer_state_dict has the f32 ones.

    Args:
        model: sharded by meron.torch.shard, or several models of one context, a dict by name.
        submodules: only their tensors; torch calls it deprecated.
        options: torch's StateDictOptions. full_state_dict: unsharded tensors on every rank; with
            cpu_offload on rank 0, and an empty dict on the others. cpu_offload: also buffers in
            host memory, where sharded params are in any case. ignore_frozen_params: without them.
            keep_submodule_prefixes: False takes the one submodule's prefix off. `strict`,
            `broadcast_from_rank0` and `flatten_optimizer_state_dict` concern other functions.

    Raises, on all ranks: StateError (the model is not sharded or is in use; with full_state_dict,
    also if a param has no values yet), ArgumentError (an unsupported option, by name).
    """
    names = Names(model)
    sharding = names.sharding
    chosen, prefixes = Options(), list[str]()
    with together(sharding.context):
        chosen = options_from(options)
        prefixes = prefixes_of(model, submodules, chosen)
        check_in_use(names)
        if chosen.full_state_dict:
            check_values(names)
    keys = [key for key in keys_of(names) if not prefixes or key.startswith(tuple(prefixes))]
    if chosen.ignore_frozen_params:
        keys = [key for key in keys if not is_frozen(names, key)]
    empty = chosen.full_state_dict and chosen.cpu_offload and sharding.context.rank != 0
    reader = whole_reader if chosen.full_state_dict else range_reader
    read = reader(names)
    state: dict[str, Any] = {}
    for key in keys:
        first = names.aliases.get(key, key)
        if first in names.params:
            value = read(first)
        elif first in names.others:
            other = names.others[first].detach()
            value = other.cpu() if chosen.cpu_offload else other
            value = value.clone() if value is other else value
        else:
            value = names.extra_states[key].get_extra_state()
        if not empty:
            state[key] = value
    if prefixes and not chosen.keep_submodule_prefixes:
        return {key[len(prefixes[0]) :]: value for key, value in state.items()}
    return state


def keys_of(names: Names) -> Iterator[str]:
    """The keys of state_dict(), in its order."""
    for key, model in names.roots.items():
        for prefix, part in modules_of(f"{key}." if key else "", model):
            for name, param in own_params(part).items():
                if param is not None:
                    yield prefix + name
            for name, buffer in own_buffers(part).items():
                if buffer is not None and name not in unsaved_buffers(part):
                    yield prefix + name
            if prefix + EXTRA_STATE in names.extra_states:
                yield prefix + EXTRA_STATE


def is_frozen(names: Names, key: str) -> bool:
    first = names.aliases.get(key, key)
    if first in names.params:
        unit, i = names.params[first]
        return not unit.params[i].requires_grad
    other = names.others.get(first)
    return isinstance(other, torch.nn.Parameter) and not other.requires_grad


def range_reader(names: Names) -> Any:
    """A function of a param's name: this rank's range, the same object each time. Collective once
    for each unit, in the order of the model."""
    parts: dict[ShardedUnit, list[FlatShard]] = {}

    def read(name: str) -> FlatShard:
        unit, i = names.params[name]
        if unit not in parts:
            made = [shard_of(unit, n, value) for n, value in enumerate(own_values(unit))]
            for n in unit.unmade:
                made[n]._empty = True
            parts[unit] = made
        return parts[unit][i]

    return read


def whole_reader(names: Names) -> Any:
    """The same of unsharded copies."""
    return lambda name: exact_param(names.params[name][0].params[names.params[name][1]]).detach()


def shard_of(unit: ShardedUnit, i: int, local: torch.Tensor) -> FlatShard:
    """A tensor of this rank's values of what has a param's shape."""
    context, handle = unit.sharding.context, unit.handles[i]
    begin = unit.shard_range(i).start if len(unit.shard_range(i)) else 0
    return FlatShard(local, begin, tuple(handle.shape), context.world_size, number_of(context))


def cut(unit: ShardedUnit, i: int, whole: torch.Tensor) -> FlatShard:
    """This rank's range of an unsharded tensor, as a copy."""
    own = unit.shard_range(i)
    return shard_of(unit, i, whole.detach().reshape(-1)[own.start : own.stop].to("cpu", copy=True))


# ---- Setting ------------------------------------------------------------------------------------


def set_model_state_dict(
    model: Models, model_state_dict: Mapping[str, Any], *, options: Any = None
) -> Any:
    """Writes values into a sharded model, as torch's function of the same name. Collective; blocks
    on peers.

    Takes what get_model_state_dict returned here, after dcp.load say, or unsharded tensors, equal
    on all ranks. A tied param takes the value of any of its names. f32 values for 16-bit params are
    rounded, and kept for the optimizer. Set the model before its optimizers.

    Args:
        options: torch's StateDictOptions. full_state_dict: all tensors are unsharded.
            broadcast_from_rank0 (with full_state_dict): rank 0's dict counts, and the others' are
            not looked at; it sends one tensor at a time, and each rank keeps its range. strict:
            False leaves alone what the other side lacks. ignore_frozen_params: frozen ones may be
            missing. `cpu_offload` has no effect: values are in host memory.

    Returns:
        What is missing and unexpected, as load_state_dict: missing_keys, unexpected_keys.

    Raises, on all ranks and before anything has changed: LoadError (an ArgumentError; it lists what
    is missing, unexpected, of another shape), ArgumentError (a shard of other elements than this
    rank's, a DTensor, an option), StateError (in use).
    """
    names = Names(model)
    sharding = names.sharding
    chosen, found, missing = Options(), Found(), list[str]()
    with together(sharding.context):
        chosen = options_from(options)
        refuse_short_names(chosen)
        check_in_use(names)
        refuse_meta_buffers(names)
        if not isinstance(model_state_dict, Mapping):
            raise errors.argument(
                f"the state dict is a {type(model_state_dict).__name__}", subject="model_state_dict"
            )
    given: Mapping[str, Any] = model_state_dict
    if chosen.broadcast_from_rank0:
        given = state_dict_from_rank0(
            sharding.context, dict(given), lambda path, t: kept(names, path[0], t)
        )
    with together(sharding.context):
        found = compare(names, given, chosen)
        missing = found.differences.missing
        wrong = found.differences.text(chosen.strict)
        if wrong:
            raise LoadError(
                f"the state dict does not fit the model: {wrong}",
                advice="Give the state dict of an equal model"
                + (", or StateDictOptions(strict=False)." if chosen.strict else "."),
            )
    check_same_names(sharding, [*found.params, *found.others])
    apply(names, found)
    return IncompatibleKeys(missing, found.differences.unexpected)


class Found:
    """The parts of a state dict that a model uses.

    Attributes:
        params, others, extra_states: values, by the name that is used.
        named: those names for which there is any value.
    """

    def __init__(self) -> None:
        self.differences = Differences()
        self.named: set[str] = set()
        self.params: dict[str, FlatShard] = {}
        self.others: dict[str, torch.Tensor] = {}
        self.extra_states: dict[str, Any] = {}


def kept(names: Names, key: Any, whole: torch.Tensor) -> torch.Tensor:
    """This rank's shard of rank 0's tensor, or the tensor if it is not sharded. Local."""
    place = names.params.get(names.aliases.get(key, key))
    if place is None or tuple(place[0].handles[place[1]].shape) != tuple(whole.shape):
        return whole
    return cut(*place, whole)


def compare(names: Names, given: Mapping[str, Any], options: Options) -> Found:
    """Local. ArgumentError for a value that is no value of a param."""
    found = Found()
    for key, value in given.items():
        first = names.aliases.get(key, key)
        found.named.add(first)
        if first in names.params:
            take_param(names, found, str(key), first, value, options)
        elif first in names.others:
            take_other(names, found, str(key), first, value)
        elif key in names.extra_states:
            found.extra_states[key] = value
        else:
            found.differences.unexpected.append(str(key))
    for name in (*names.params, *names.others, *names.extra_states):
        may_miss = options.ignore_frozen_params and is_frozen(names, name)
        if name not in found.named and not may_miss:
            found.differences.missing.append(name)
    for each in (found.differences.missing, found.differences.unexpected):
        each.sort()
    return found


def take_param(
    names: Names, found: Found, key: str, first: str, value: Any, options: Options
) -> None:
    unit, i = names.params[first]
    shape = tuple(unit.handles[i].shape)
    if not isinstance(value, torch.Tensor) or value.is_meta or value.is_complex():
        kind = f"{value.dtype} on meta" if isinstance(value, torch.Tensor) else type(value).__name__
        raise errors.argument(f"the value of {key} is a {kind}", subject=key)
    if tuple(value.shape) != shape:
        found.differences.mismatched.append(f"{first} ({list(value.shape)}, {list(shape)} here)")
        return
    shard = as_shard(unit, i, key, value)
    if (
        isinstance(value, FlatShard)
        and options.full_state_dict
        and not (options.broadcast_from_rank0)
    ):
        raise errors.argument(
            f"{key} is sharded, and full_state_dict=True was given", subject="full_state_dict"
        )
    before = found.params.setdefault(first, shard)
    if before is not shard and not torch.equal(before.to_local(), shard.to_local()):
        raise errors.argument(
            f"{key} has other values than {first}, which is the same param", subject=key
        )


def as_shard(unit: ShardedUnit, i: int, key: str, value: torch.Tensor) -> FlatShard:
    """This rank's range of a value of a param's shape: itself, or a copy. Local."""
    if hasattr(value, "full_tensor"):
        raise errors.argument(
            f"{key} is a DTensor",
            subject=key,
            advice="Pass value.full_tensor() on all ranks, or save it with "
            "torch.distributed.checkpoint and load that.",
        )
    if not isinstance(value, FlatShard):
        return cut(unit, i, value)
    value.require_values(key)
    own = unit.shard_range(i)
    if value.to_local().numel() != len(own) or (len(own) and value.begin != own.start):
        raise errors.argument(
            f"{key} has elements {value.begin} to {value.begin + value.to_local().numel()}, and "
            f"this rank has {own.start} to {own.stop}: it was sharded by another plan or over "
            "other ranks",
            subject=key,
            advice="Save it with torch.distributed.checkpoint, and load into the state dict of "
            "this model.",
        )
    return value


def take_other(names: Names, found: Found, key: str, first: str, value: Any) -> None:
    shape = tuple(names.others[first].shape)
    if not isinstance(value, torch.Tensor) or isinstance(value, FlatShard):
        raise errors.argument(
            f"{key} is a {type(value).__name__}, and the model has a tensor that is not sharded",
            subject=key,
        )
    if tuple(value.shape) != shape:
        found.differences.mismatched.append(f"{first} ({list(value.shape)}, {list(shape)} here)")
        return
    found.others[first] = value


def check_same_names(sharding: Sharding, found: list[str]) -> None:
    """LoadError on all ranks where they have values for different tensors. Collective."""
    context: meron.Context = sharding.context
    if context.world_size == 1:
        return
    digest = hashlib.blake2b(repr(sorted(found)).encode(), digest_size=8).digest()
    table = np.zeros((context.world_size, 4), np.float32)
    table[context.rank] = np.frombuffer(digest, np.uint16)
    context.world.all_reduce(table)
    if (table != table[0]).any():
        same = [r for r in range(context.world_size) if (table[r] == table[0]).all()]
        raise LoadError(
            f"ranks {same} have values for other tensors than the rest of {context.world_size} "
            "ranks",
            advice="Give all ranks state dicts of the same names.",
        )


def apply(names: Names, found: Found) -> None:
    """Collective."""
    values: dict[ShardedUnit, dict[int, torch.Tensor]] = {}
    for name, shard in found.params.items():
        unit, i = names.params[name]
        values.setdefault(unit, {})[i] = shard
    for unit in sorted(values, key=lambda unit: unit.index):
        sharding_with(unit).write(unit, values[unit])
    with torch.no_grad():
        for name, value in found.others.items():
            put(names, name, value)
    fill_buffers(names)
    for name, state in found.extra_states.items():
        names.extra_states[name].set_extra_state(state)
