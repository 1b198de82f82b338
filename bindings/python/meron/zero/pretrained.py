# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` of Hugging Face's models within zero.Init.

transformers builds the model on the device "meta", then gives one module after the other its
values. Within `from_pretrained` a module that is built on meta is not sharded until all its params
have values. It becomes a unit then, so one module of the model is unsharded at a time. Every rank
reads the files, which it maps: a host has them once, in the page cache.

If a config of stage 3 is active (HfDeepSpeedConfig, TrainingArguments), transformers enters
zero.Init itself, and fills the model after that context. It gathers one module at a time for that,
and reads names, params and flags from state dicts of the model on every rank, which have no values
here. It gathers the params that the files lack to initialise them. transformers 4 initialises
others of a module with them, before it loads these: such writes have no effect here.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch

from meron import errors
from meron.torch.sharding import Sharding, unit_of
from meron.torch.state_dict import without_values
from meron.torch.torch_internals import own_buffers, own_params, replace_params
from meron.torch.wrap import is_sharded
from meron.zero.filling import LOADED, keep_loaded, not_gathered
from meron.zero.gathered import GatheredParameters
from meron.zero.leaf import is_leaf
from meron.zero.units import fill_buffers

# Has transformers read a tensor when its module takes it, and none ahead.
ONE_AT_A_TIME = "HF_DEACTIVATE_ASYNC_LOAD"
SAMPLES = 32  # elements of a param that ranks compare
# Methods of transformers' models. The first two read no value of a state dict; the third, of
# transformers 5, compares params within from_pretrained.
LOADS, INITIALISES, TIES = "_load_pretrained_model", "_initialize_missing_keys", "tie_weights"


class Sharder(Protocol):
    """The object that shards modules: zero.Init."""

    awaited: Awaited | None  # while a from_pretrained runs

    def open(self) -> Sharding: ...

    def shard(self, module: torch.nn.Module, **options: bool) -> None: ...


class AwaitedParams(dict[str, Any]):
    """A module's own params until all of them have values."""

    __slots__ = ("awaited", "module")

    def __init__(self, awaited: Awaited, module: torch.nn.Module) -> None:
        super().__init__(own_params(module))
        self.awaited = awaited
        self.module = module

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        self.awaited.arrived(self.module)

    def __delitem__(self, name: str) -> None:
        dict.__delitem__(self, name)
        self.awaited.arrived(self.module)


class Awaited:
    """The modules that one from_pretrained builds and fills."""

    def __init__(self, init: Sharder) -> None:
        self.init = init
        # Modules that wait for values, each with the one that is sharded when all are there: a leaf
        # around it, or itself.
        self.roots: dict[torch.nn.Module, torch.nn.Module] = {}
        # In the order in which they were built, so parts first: what is left to do at the end.
        self.later: dict[torch.nn.Module, None] = {}
        self.done: set[torch.nn.Module] = set()  # of them, those that are sharded
        self.digest = hashlib.blake2b(digest_size=8)
        self.unchecked = 0  # params that `digest` has samples of

    def awaits(self, module: torch.nn.Module) -> bool:
        """Records a new module that must be sharded later; False if it can be sharded now."""
        leaf = is_leaf(module)
        parts = list(module.modules()) if leaf else [module]
        tensors = [tensor for part in parts for tensor in own_tensors(part)]
        around = any(part in self.later for part in module.modules())
        if not around and not any(tensor.is_meta for tensor in tensors):
            return False
        self.later[module] = None
        for part in parts:
            if part not in self.roots and not all_there([part]):
                replace_params(part, AwaitedParams(self, part))
                self.roots[part] = module
            elif part in self.roots:
                self.roots[part] = module
        return True

    def arrived(self, part: torch.nn.Module) -> None:
        """A param of a module has a value. Collective where it was the last."""
        root = self.roots.get(part)
        if root is None:
            return
        parts = list(root.modules()) if is_leaf(root) else [root]
        if not all_there(parts):
            return
        self.release(parts)
        fresh = [p for each in parts for p in own_params(each).values() if p is not None]
        loaded = all(getattr(p, LOADED, False) for p in fresh if unit_of(p) is None)
        if loaded:
            self.sample(fresh)
        # Loaded values are equal on all ranks, initialised ones are not.
        self.init.shard(root, buffers=False, broadcast=not loaded)
        self.done.add(root)

    def release(self, parts: list[torch.nn.Module]) -> None:
        for part in parts:
            if self.roots.pop(part, None) is not None:
                replace_params(part, dict(own_params(part)))

    def sample(self, params: list[torch.nn.Parameter]) -> None:
        """Notes a few elements of params, by which ranks see whether they read the same files."""
        for param in params:
            if unit_of(param) is None and param.numel():
                flat = param.detach().reshape(-1)
                few = flat[:: max(1, param.numel() // SAMPLES)].contiguous()
                self.digest.update(few.cpu().view(torch.uint8).numpy().tobytes())
                self.unchecked += 1

    def finish(self) -> None:
        """Shards what has got no values, as far as its reset_parameters gives it some, and modules
        around those that are sharded. Collective.

        Raises ArgumentError naming a module that stays without values, StateError where ranks read
        different weights.
        """
        self.release(list(self.roots))
        for module in self.later:
            if module not in self.done:
                self.init.shard(module, buffers=False)
            for part in module.modules() if is_leaf(module) else (module,):
                fill_buffers(self.init.open(), part, type(part).__name__)
        if self.unchecked:
            self.compare()

    def compare(self) -> None:
        context = self.init.open().context
        table = np.zeros((context.world_size, 4), np.float32)
        # As 16-bit words, which a sum of floats keeps.
        table[context.rank] = np.frombuffer(self.digest.digest(), np.uint16)
        if context.world_size > 1:
            context.world.all_reduce(table)
        different = [rank for rank, row in enumerate(table) if (row != table[0]).any()]
        if different:
            raise errors.StateError(
                f"from_pretrained: ranks {different} read other weights than rank 0",
                operation="from_pretrained",
                advice="Give all ranks the same files: the same revision, on every host.",
            )


def own_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    for tensor in (*own_params(module).values(), *own_buffers(module).values()):
        if tensor is not None and unit_of(tensor) is None:
            yield tensor


def all_there(parts: list[torch.nn.Module]) -> bool:
    params = [param for part in parts for param in own_params(part).values()]
    return not any(p is not None and unit_of(p) is None and p.is_meta for p in params)


def load_pretrained(plain: classmethod[Any, Any, Any], init: Sharder) -> Any:
    """`from_pretrained` of a class, whose model is sharded module by module. Collective."""

    @functools.wraps(plain.__func__)
    def load(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if init.awaited is not None:  # of a base class, or of a part
            return plain.__func__(kind, *args, **kwargs)
        awaited = init.awaited = Awaited(init)
        chosen = ONE_AT_A_TIME in os.environ
        os.environ.setdefault(ONE_AT_A_TIME, "1")
        try:
            result = plain.__func__(kind, *args, **kwargs)
            awaited.finish()
            return result
        except BaseException:
            awaited.release(list(awaited.roots))
            raise
        finally:
            init.awaited = None
            if not chosen:
                os.environ.pop(ONE_AT_A_TIME, None)

    return classmethod(load)


def read_names_alone(kind: type[torch.nn.Module]) -> None:
    """Lets the methods of transformers that fill a sharded model gather no state dict.

    For good, as they run after the context of zero.Init; models that are not sharded see nothing
    of it. Local.
    """
    wrap_own(kind, LOADS, functools.partial(without_gathers, initialises=False))
    wrap_own(kind, INITIALISES, functools.partial(without_gathers, initialises=True))


def wrap_own(kind: type[Any], name: str, wrap: Callable[[Callable[..., Any]], Any]) -> None:
    """Wraps a method that a class has itself, once."""
    plain = kind.__dict__.get(name)
    function = getattr(plain, "__func__", plain)  # of a staticmethod or classmethod
    if not callable(function) or hasattr(function, "_meron_wrapped"):
        return
    wrapped = wrap(function)
    wrapped._meron_wrapped = True
    if isinstance(plain, (staticmethod, classmethod)):
        wrapped = type(plain)(wrapped)
    setattr(kind, name, wrapped)


def without_gathers(plain: Callable[..., Any], initialises: bool) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        models = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.nn.Module)]
        if not any(is_sharded(part) for model in models for part in model.modules()):
            return plain(*args, **kwargs)
        if not initialises:
            with without_values():
                return plain(*args, **kwargs)
        for owner in type(models[0]).__mro__:
            # Not earlier: while transformers builds the model, this method is another.
            wrap_own(owner, TIES, with_compared)
        with without_values(), keep_loaded():
            return plain(*args, **kwargs)

    return call


def with_compared(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`tie_weights(missing_keys)`, which ties params that are both in the files if they are equal.
    Collective if there are such params."""

    @functools.wraps(plain)
    def call(model: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        missing = kwargs.get("missing_keys", args[0] if args else None)
        if missing is None:
            return plain(model, *args, **kwargs)
        params = dict(model.named_parameters(remove_duplicate=False))
        pairs = getattr(model, "all_tied_weights_keys", {}).items()
        compared = [name for pair in pairs if missing.isdisjoint(pair) for name in pair]
        found = [params[name] for name in compared if name in params]
        with GatheredParameters(not_gathered(found)):
            return plain(model, *args, **kwargs)

    return call
