# SPDX-License-Identifier: Apache-2.0
"""state_dict and load_state_dict of sharded modules hold unsharded tensors.

Both are collective: a rank that calls them alone waits for the others. As torch's,
`state_dict(keep_vars=True)` has the params themselves: it is local, and gathers nothing. So is
state_dict of models that meron.zero has sharded (unit.local_state): it has the values that the rank
has, and entries without values for the rest.

A load changes nothing before all ranks know that it fits. Torch's own load_state_dict runs first,
with all that classes and hooks do to keys; what it copies to sharded params is only noted,
and all else of the module is put back where it fails on any rank.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.flat_shard import FlatShard
from meron.torch.guard import Sharded, StateEntry, alias, copied, place_of
from meron.torch.parameters import Parameters
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.tensors import one_element
from meron.torch.torch_internals import after_state_dict, own_buffers, own_params
from meron.torch.unit import TAKE_BACK, ShardedUnit
from meron.torch.values.full import exact_param


class LoadError(errors.ArgumentError, RuntimeError):
    """A state dict that does not fit on some rank; RuntimeError is what torch raises."""


def hook_state_dict(module: torch.nn.Module) -> None:
    """For a module that owns sharded params itself."""
    after_state_dict(module, save)


def without_values() -> contextlib.AbstractContextManager[None]:
    """Within it, state_dict() is local: it has sharded params themselves, which have their full
    shape and no values.

    For code that runs on one rank and reads the keys alone, or shapes and attributes of params.
    """
    return state_values(False)


def with_values() -> contextlib.AbstractContextManager[None]:
    """Within it, state_dict() has all values of every sharded param. Collective."""
    return state_values(True)


@contextlib.contextmanager
def state_values(wanted: bool) -> Iterator[None]:
    outer, registry.thread.state_values = registry.thread.state_values, wanted
    try:
        yield
    finally:
        registry.thread.state_values = outer


def save(module: torch.nn.Module, state: Any, prefix: str, _metadata: Any) -> None:
    """After torch collected a module's own params: their values in place of placeholders."""
    wanted = registry.thread.state_values
    for name, param in own_params(module).items():
        place = unit_of(param) if param is not None else None
        key = prefix + name
        if place is None or key not in state:
            continue
        if wanted is False:
            state[key] = param
        elif state[key] is param:  # torch's keep_vars
            continue
        elif wanted or not place[0].local_state:
            state[key] = exact_param(param)
        elif place[0].phase not in TAKE_BACK:  # else the caller of GatheredParameters' own values
            state[key] = local_value(*place)


def local_value(unit: ShardedUnit, i: int) -> torch.Tensor:
    """A copy of a param's values in host memory, if this rank has them; else an entry without
    values. Local."""
    param = unit.params[i]
    if unit.uses or unit.stays:
        return copied(param.detach()).cpu()
    if i not in unit.entries:
        unit.entries[i] = one_element(param.dtype, unit.sharding.torch_device)
    entry: torch.Tensor = alias(unit.entries[i].expand(unit.handles[i].shape), param, StateEntry)
    return entry


plain_load = torch.nn.Module.load_state_dict


@functools.wraps(plain_load)
def load_state_dict(
    self: torch.nn.Module, state_dict: Any, strict: bool = True, assign: bool = False
) -> Any:
    """As torch's. Sharded params take copies of the values, with `assign` too. Collective.

    Raises LoadError on all ranks for a state dict that does not fit on one of them: it has the
    messages of each, and nothing was changed.
    """
    shardings = shardings_below(self)
    if not shardings:
        return plain_load(self, state_dict, strict, assign)
    before = [Others(module) for module in self.modules()]
    loading, outer = Loading(), registry.loading
    result, wrong = None, ""
    registry.loading = loading
    try:
        try:
            refuse_open(self)
            result = plain_load(self, state_dict, strict, assign)
        except Exception as error:
            wrong = str(error) or type(error).__name__
        finally:
            registry.loading = outer
        agree(type(self).__name__, shardings, loading, wrong)
    except BaseException:
        for others in before:
            others.put_back()
        raise
    write(loading)
    return result


def shardings_below(module: torch.nn.Module) -> list[Sharding]:
    found: dict[Sharding, None] = {}
    for part in module.modules():
        if isinstance(own_params(part), Parameters):
            found[own_params(part).sharding] = None
    return list(found)


def sharded_params(module: torch.nn.Module) -> Iterator[tuple[ShardedUnit, int]]:
    for part in module.modules():
        for param in own_params(part).values():
            place = unit_of(param) if param is not None else None
            if place is not None:
                yield place


def refuse_open(module: torch.nn.Module) -> None:
    """StateError naming a param that is in use: its values cannot be replaced now."""
    for unit, i in sharded_params(module):
        if unit.uses:
            raise errors.StateError(
                f"'{unit.handles[i].name}' is gathered on this rank",
                subject=unit.handles[i].name,
                advice="Load outside of forwards, and leave GatheredParameters, or call reshard, "
                "before.",
            )


class Loading:
    """As `registry.loading`, notes what is copied to guarded params, until all ranks know that it
    fits."""

    def __init__(self) -> None:
        self.values: dict[tuple[ShardedUnit, int], torch.Tensor] = {}

    def take(self, tensor: Any, value: Any) -> None:
        """ArgumentError for a value that the param cannot take."""
        unit, i = place_of(tensor)
        assert isinstance(unit, ShardedUnit)
        handle = unit.handles[i]
        wrong = None
        if not isinstance(value, torch.Tensor):
            wrong = f"is a {type(value).__name__}, no tensor"
        elif isinstance(value, Sharded):
            wrong = "is a sharded param, out of use"
        elif value.is_meta:
            wrong = "is on the device meta, without values"
        elif value.layout is not torch.strided or value.is_quantized or value.is_nested:
            wrong = "is no dense tensor"
        elif value.is_complex():
            wrong = f"is of {value.dtype}, and the param of {handle.dtype_name}"
        elif hasattr(value, "full_tensor"):
            wrong = "is a DTensor: pass value.full_tensor()"
        elif isinstance(value, FlatShard) and value.own() != unit.shard_range(i):
            wrong = f"has the elements {value.own()} of it, and this rank {unit.shard_range(i)}"
        elif tuple(value.shape) != tuple(handle.shape):
            wrong = f"has shape {tuple(value.shape)}, and the param {tuple(handle.shape)}"
        if wrong is not None:
            raise errors.argument(f"the value for '{handle.name}' {wrong}", subject=handle.name)
        if isinstance(value, FlatShard):
            value.require_values(handle.name)
        self.values[unit, i] = value.detach()


class Others:
    """The former state of all that load_state_dict changes of a module besides sharded params."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.params = dict(own_params(module))
        self.buffers = dict(own_buffers(module))
        own: list[torch.Tensor]
        own = [p for p in self.params.values() if p is not None and unit_of(p) is None]
        own += [buffer for buffer in self.buffers.values() if buffer is not None]
        lazy = torch.nn.parameter.is_lazy
        self.values = [(t, t.detach().clone()) for t in own if not t.is_meta and not lazy(t)]

    def put_back(self) -> None:
        for name, param in self.params.items():
            if own_params(self.module).get(name) is not param:
                dict.__setitem__(own_params(self.module), name, param)
        own_buffers(self.module).update(self.buffers)
        for tensor, value in self.values:
            tensor.data.copy_(value)


# ---- All ranks ----------------------------------------------------------------------------------


def agree(what: str, shardings: list[Sharding], loading: Loading, wrong: str) -> None:
    """LoadError on all ranks where one has something wrong, or other params than another."""
    for sharding in shardings:
        texts = messages(sharding.context, loading, wrong)
        if texts:
            wrong = "\n".join(texts)
            raise LoadError(
                f"load_state_dict of {what}: nothing was loaded on any rank.\n{wrong}",
                operation="load_state_dict",
                advice="Give all ranks a state dict that fits the model, as model.state_dict() "
                "of an equal one.",
            )


def messages(context: meron.Context, loading: Loading, wrong: str) -> list[str]:
    """The ranks' errors, by rank; equal on all ranks. Collective."""
    ranks, rank = context.world_size, context.rank
    if ranks == 1:
        return [wrong] if wrong else []
    names = [unit.handles[i].name for unit, i in loading.values]
    digest = hashlib.blake2b(repr(sorted(names)).encode(), digest_size=8).digest()
    text = wrong.encode()
    table = np.zeros((ranks, 6), np.float32)
    table[rank] = [*divmod(len(text), 4096), *np.frombuffer(digest, np.uint16)]
    context.world.all_reduce(table)
    sizes = [int(row[0]) * 4096 + int(row[1]) for row in table]
    found: dict[str, list[int]] = {}
    for root in (r for r in range(ranks) if sizes[r]):
        data = np.frombuffer(text, np.uint8).copy() if root == rank else np.zeros(sizes[root], "u1")
        context.world.broadcast(data, root)
        found.setdefault(data.tobytes().decode(errors="replace"), []).append(root)
    if not found and (table[:, 2:] != table[0, 2:]).any():
        same = [r for r in range(ranks) if (table[r] == table[0]).all()]
        return [f"Ranks {same} have values for other params than the rest of {ranks} ranks."]
    return [f"Rank {', '.join(map(str, of))}: {text}" for text, of in found.items()]


def write(loading: Loading) -> None:
    """Writes what was noted, unit by unit. Collective."""
    values: dict[ShardedUnit, dict[int, torch.Tensor]] = {}
    for (unit, i), value in loading.values.items():
        values.setdefault(unit, {})[i] = value
    for unit in sorted(values, key=lambda unit: (unit.sharding.context.plan.json(), unit.index)):
        sharding_with(unit).write(unit, values[unit])


torch.nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]
