# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint's own functions, for models that Meron shards.

All its get_ and set_ functions of state dicts call four private ones. Those are replaced here, so
that the public ones work for whoever imported them, before Meron or after. Importing torch's module
takes a second, so the replacement waits for the first import. A torch without those four functions
stays as it is; a FlatShard then refuses what would go wrong. Two more are wrapped: those that save
and load files.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from meron import errors
from meron.torch.checkpoint.dcp import tensors_in
from meron.torch.checkpoint.exchange import object_from
from meron.torch.checkpoint.model_state import get_model_state_dict, set_model_state_dict
from meron.torch.checkpoint.names import Names
from meron.torch.checkpoint.optimizer_state import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from meron.torch.flat_shard import FlatShard, filled_by_load
from meron.torch.sharding import unit_of
from meron.torch.torch_internals import (
    LOAD_STATE_DICT,
    SAVE_STATE_DICT,
    STATE_DICT_FUNCTIONS,
)

PENDING = "_meron_pending"


def is_ours(model: Any) -> bool:
    return any(unit_of(param) is not None for param in model.parameters())


def options_of(info: Any) -> Any:
    """The StateDictOptions that torch's functions were given. ArgumentError for submodules."""
    if info.submodule_prefixes:
        raise errors.argument(
            "submodules of a model that Meron shards",
            subject="submodules",
            advice="Call meron.torch.checkpoint.get_model_state_dict.",
        )
    return info


def install_state_dict(module: ModuleType) -> None:
    names = STATE_DICT_FUNCTIONS
    if not all(hasattr(module, name) for name in names):
        return
    get_model, load_model, get_optim, load_optim = (getattr(module, name) for name in names)

    @functools.wraps(get_model)
    def get_model_state(model: Any, info: Any) -> Any:
        if not is_ours(model) or not info.handle_model:
            return get_model(model, info)
        return get_model_state_dict(model, options=options_of(info))

    @functools.wraps(load_model)
    def load_model_state(model: Any, state_dict: Any, info: Any) -> Any:
        if not is_ours(model) or not info.handle_model:
            return load_model(model, state_dict, info)
        result = set_model_state_dict(model, state_dict, options=options_of(info))
        for optimizers, state in info.__dict__.pop(PENDING, ()):
            set_optimizer_state_dict(model, optimizers, state, options=options_of(info))
        return result

    @functools.wraps(get_optim)
    def get_optim_state(model: Any, optimizers: Any, info: Any) -> Any:
        if not is_ours(model) or not info.handle_optim:
            return get_optim(model, optimizers, info)
        return get_optimizer_state_dict(model, optimizers, options=options_of(info))

    @functools.wraps(load_optim)
    def load_optim_state(model: Any, optimizers: Any, state_dict: Any, info: Any) -> None:
        if not is_ours(model) or not info.handle_optim:
            load_optim(model, optimizers, state_dict, info)
            return
        if info.broadcast_from_rank0:  # torch sees no model in the empty dicts of other ranks
            context = Names(model).sharding.context
            info.handle_model = object_from(context, 0, info.handle_model)
        if info.handle_model:  # set_state_dict does the optimizers first; f32 values come after
            info.__dict__.setdefault(PENDING, []).append((optimizers, state_dict))
        else:
            set_optimizer_state_dict(model, optimizers, state_dict, options=options_of(info))

    for name, function in zip(
        names, (get_model_state, load_model_state, get_optim_state, load_optim_state)
    ):
        setattr(module, name, function)


def install_saver(module: ModuleType) -> None:
    """Refuses saves in which every rank would write only what it has, as if it were alone."""
    plain = getattr(module, SAVE_STATE_DICT, None)
    if plain is None:
        return

    @functools.wraps(plain)
    def save_state_dict(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        alone = kwargs.get("no_dist") or not kwargs.get("use_collectives", True)
        own: Mapping[str, Any] = state_dict if isinstance(state_dict, Mapping) else {}
        if alone and any(isinstance(t, FlatShard) and t.ranks > 1 for t in tensors_in(own)):
            raise errors.StateError(
                "dcp.save without collectives (no process group, no_dist=True or "
                "use_collectives=False) would save only this rank's ranges of sharded tensors",
                subject="no_dist",
                advice="Call meron.torch.checkpoint.dcp_save on all ranks, or "
                'torch.distributed.init_process_group("gloo") before dcp.save.',
            )
        return plain(state_dict, *args, **kwargs)

    setattr(module, SAVE_STATE_DICT, save_state_dict)


def install_loader(module: ModuleType) -> None:
    """A load that fails leaves params without values (init="defer") without."""
    plain = getattr(module, LOAD_STATE_DICT, None)
    if plain is None:
        return

    @functools.wraps(plain)
    def load_state_dict(*args: Any, **kwargs: Any) -> Any:
        with filled_by_load():
            return plain(*args, **kwargs)

    setattr(module, LOAD_STATE_DICT, load_state_dict)


INSTALL: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.checkpoint.state_dict": install_state_dict,
    "torch.distributed.checkpoint.state_dict_saver": install_saver,
    "torch.distributed.checkpoint.state_dict_loader": install_loader,
}


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module when it has been imported."""

    def __init__(self) -> None:
        self.waiting = dict(INSTALL)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        install = self.waiting.pop(name, None)
        if install is None:
            return None
        if not self.waiting:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            plain = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                plain(module)
                install(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    finder = AfterImport()
    for name in INSTALL:
        if name in sys.modules and torch.distributed.is_available():
            finder.waiting.pop(name)(sys.modules[name])
    if finder.waiting:
        sys.meta_path.insert(0, finder)


install()
