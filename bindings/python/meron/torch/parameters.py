# SPDX-License-Identifier: Apache-2.0
"""The dict that replaces that of the params of a module with sharded params.

It sees params that are used outside of a forward of their owner. It refuses a new param in the
place of a sharded one: neither the unit nor an optimizer would know of it. The forward would use
the new tensor, and the optimizer would step the old one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.utils import parametrize

from meron import errors
from meron.torch import registry
from meron.torch.sharding import Sharding
from meron.torch.torch_internals import STATELESS, own_params
from meron.torch.unit import ShardedUnit

MISSING: Any = object()

# Advice of errors about a param that cannot leave its module.
OF_MODULE = (
    "Call meron.torch.set_full_param(param, value) or load_state_dict to write its values. "
    "Replace, remove or parametrize params (weight_norm) before meron.torch.shard; or replace the "
    "whole submodule, and call shard for the root again."
)
OF_ENGINE = (
    "The engine's optimizer steps this param. Resize embeddings, and replace, remove or "
    "parametrize params, before initialize makes an engine of the model; or call engine.destroy(), "
    "then initialize again. To write values of the same shape, use GatheredParameters with "
    "modifier_rank."
)


def refuse_copy(_self: Any, _protocol: Any) -> Any:
    """In place of __reduce_ex__, by which objects are copied and pickled."""
    raise errors.StateError(
        "a sharded module cannot be copied or pickled: this rank has only shards of its params",
        advice="Save or copy model.state_dict(), or meron.zero.full_state_dict(model) under "
        "DeepSpeed's names: it holds unsharded tensors (on all ranks). Or copy the model before "
        "sharding it.",
    )


class Parameters(dict[str, Any]):
    """A module's own params by name.

    A param that is used outside of a forward of its owner, as `head.weight` in a parent's forward,
    or of a module that is never called itself, belongs to the innermost sharded module that runs.
    """

    __slots__ = ("sharding",)

    def __init__(self, params: dict[str, Any], sharding: Sharding) -> None:
        super().__init__(params)
        self.sharding = sharding

    def __getitem__(self, name: str) -> Any:
        param = dict.__getitem__(self, name)
        place = getattr(param, "_meron", None)
        if place is not None and place[0].uses == 0:
            self.sharding.passes.use_outside(place[0])
        return param

    def __setitem__(self, name: str, value: Any) -> None:
        """StateError for another param in the place of a sharded one. With
        load_state_dict(assign=True) its values are taken."""
        param: Any = self.get(name)
        place = getattr(param, "_meron", None)
        if place is not None and value is not param:
            if registry.loading is not None:
                registry.loading.take(param, value)
                return
            if not called_by(STATELESS):
                if not self.is_tied(value):
                    refuse_end(name, param, "replaced")
                param._meron_replaced = True
        dict.__setitem__(self, name, value)

    def __delitem__(self, name: str) -> None:
        param: Any = self.get(name)
        # Under another name it stays, as where torch.nn.utils.prune moves it to weight_orig.
        stays = any(other is param for key, other in self.items() if key != name)
        if getattr(param, "_meron", None) is not None and not stays and not called_by(STATELESS):
            refuse_end(name, param, "removed")
            param._meron_replaced = True
        dict.__delitem__(self, name)

    def is_tied(self, value: Any) -> bool:
        """True if a value is a sharded param itself, as in `head.weight = embedding.weight`."""
        place = getattr(value, "_meron", None)
        return place is not None and place[0].sharding is self.sharding

    def pop(self, name: str, default: Any = MISSING) -> Any:
        if name not in self:
            if default is MISSING:
                raise KeyError(name)
            return default
        param = dict.__getitem__(self, name)
        del self[name]
        return param

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, other: Any = (), /, **params: Any) -> None:
        for name, value in {**dict(other), **params}.items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Mapping[str, Any]) -> Parameters:  # type: ignore[override,misc]
        self.update(other)
        return self

    __reduce_ex__ = refuse_copy


def called_by(module: str) -> bool:
    """True if a function of this module called the method of Parameters that asks."""
    return bool(sys._getframe(2).f_globals.get("__name__") == module)


def refuse_end(name: str, param: Any, what: str) -> None:
    """StateError where a param cannot leave its module."""
    unit, i = param._meron
    if what != "swapped" and replaceable(unit, param):
        return
    subject = unit.handles[i].name
    raise errors.StateError(
        f"'{subject}' is sharded: '{name}' cannot be {what} in its module",
        subject=subject,
        advice=OF_ENGINE if hasattr(param, "_meron_engine") else OF_MODULE,
    )


def replaceable(unit: ShardedUnit, param: Any) -> bool:
    """True if nothing steps a param: its unit was destroyed; or meron.zero.Init sharded it, and no
    engine or optimizer has it yet, as `meron.zero.initialize` shards what is in its place."""
    if not unit.params:
        return True
    fresh = not hasattr(param, "_meron_engine") and unit.optimizer is None
    return fresh and hasattr(param, "ds_id")


# ---- Functions of torch that do so past the dict -------------------------------------------------

plain_register = parametrize.register_parametrization
plain_swap = torch.utils.swap_tensors


@functools.wraps(plain_register)
def register_parametrization(
    module: torch.nn.Module, tensor_name: str, *args: Any, **kwargs: Any
) -> torch.nn.Module:
    """As torch's. StateError for a sharded param, before anything is changed."""
    param = own_params(module).get(tensor_name)
    if getattr(param, "_meron", None) is not None:
        refuse_end(tensor_name, param, "parametrized")
    return plain_register(module, tensor_name, *args, **kwargs)


@functools.wraps(plain_swap)
def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """As torch's. StateError for a sharded param."""
    for tensor in (t1, t2):
        place = getattr(tensor, "_meron", None)
        if place is not None and place[0].params:
            refuse_end(place[0].names[place[1]], tensor, "swapped")
    plain_swap(t1, t2)


parametrize.register_parametrization = register_parametrization
torch.utils.swap_tensors = swap_tensors
