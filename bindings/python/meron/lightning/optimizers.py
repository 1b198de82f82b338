# SPDX-License-Identifier: Apache-2.0
"""The optimizers of a LightningModule, on shards: their params, clipping, and the engine's twins.

If states or params reside on NVMe, only the engine's optimizers step. They replace torch's AdamW,
Adam, Adagrad and SGD there.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

import meron.torch as mt
from meron import errors
from meron.torch.sharding import unit_of
from meron.torch.torch_internals import (
    has_scheduler_mark,
    keep_scheduler_mark,
    note_step,
    parts_of_scheduler,
)
from meron.torch.unit import ShardedUnit

TWINS: dict[type[torch.optim.Optimizer], tuple[Any, tuple[str, ...]]] = {
    torch.optim.AdamW: (mt.AdamW, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    torch.optim.Adam: (mt.Adam, ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")),
    torch.optim.Adagrad: (
        mt.Adagrad,
        ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"),
    ),
    torch.optim.SGD: (
        mt.SGD,
        ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize"),
    ),
}


# Methods that change an optimizer or its shards.
DELEGATED = ("zero_grad", "add_param_group", "state_dict", "load_state_dict")


def bare(optimizer: Any) -> Any:
    """The optimizer that Lightning's wrappers stand for."""
    for name in ("_optimizer", "optimizer"):
        inner = getattr(optimizer, name, None) if is_wrapper(optimizer) else None
        if isinstance(inner, torch.optim.Optimizer):
            return inner
    return optimizer


def is_wrapper(optimizer: Any) -> bool:
    return type(optimizer).__name__.startswith(("Lightning", "Fabric", "_Fabric"))


def waits(optimizer: torch.optim.Optimizer) -> bool:
    """True if the engine counts micro-batches, and the optimizer's gradients are incomplete yet."""
    session = getattr(optimizer, "_meron_session", lambda: None)()
    return session is not None and session.waits()


def params_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    """The params of the model that an optimizer on shards updates."""
    shards = getattr(optimizer, "_meron_shards", None)
    if shards is not None:
        return [unit.params[i] for unit in shards.units() for i in sorted(shards.parts[unit])]
    return [param for group in optimizer.param_groups for param in group["params"]]


def units_of(optimizer: torch.optim.Optimizer) -> list[ShardedUnit]:
    """The units that an optimizer updates, in one order on all ranks."""
    if isinstance(optimizer, mt.EngineOptimizer):
        return list(optimizer.sharded)
    shards = getattr(optimizer, "_meron_shards", None)
    return list(shards.units()) if shards is not None else []


def clip_norm(
    optimizer: torch.optim.Optimizer,
    limit: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """Scales the gradients of an optimizer's params to at most a global norm. Collective."""
    return mt.clip_grad_norm_(params_of(optimizer), limit, norm_type, error_if_nonfinite)


def clip_value(optimizer: torch.optim.Optimizer, limit: float) -> None:
    """Clamps the gradients of an optimizer's params to [-limit, limit]. Collective."""
    torch.nn.utils.clip_grad_value_(params_of(optimizer), limit)


def delegate(optimizer: torch.optim.Optimizer) -> None:
    """Lets wrappers of an optimizer call its own methods.

    Lightning's wrappers are of a class below the optimizer's. So a method that is not their own
    would run on the wrapper: `zero_grad` would drop no gradient of a shard.
    """
    kind = type(optimizer)
    methods: dict[str, Any] = {name: getattr(optimizer, name) for name in DELEGATED}

    def delegated(method: Any) -> Any:
        @functools.wraps(method)
        def call(_self: Any, *args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call

    own = {name: delegated(method) for name, method in methods.items()}
    own.update({"__module__": kind.__module__, "__doc__": kind.__doc__})
    own["__reduce_ex__"] = refuse_copy
    optimizer.__class__ = type(kind.__name__, (kind,), own)


def refuse_copy(optimizer: torch.optim.Optimizer, _protocol: Any) -> Any:
    """In place of __reduce_ex__, by which optimizers are copied and pickled: a copy would have
    shards that no model has."""
    raise errors.StateError(
        f"this {type(optimizer).__name__} runs on shards of a model: it cannot be copied or "
        "pickled",
        operation="copy",
        advice="Save optimizer.state_dict(), which has this rank's shards, or a checkpoint by "
        "trainer.save_checkpoint or fabric.save.",
    )


def engine_twin(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The engine's optimizer with the rule and the groups of one of torch's. Collective.

    Groups keep keys of the caller's and of schedulers. Raises UnsupportedError for a rule that the
    engine does not have.
    """
    if isinstance(optimizer, mt.EngineOptimizer):
        return optimizer
    kind = type(optimizer)
    if kind is torch.optim.Adam and is_decoupled(optimizer):
        kind = torch.optim.AdamW
    if kind not in TWINS:
        raise errors.UnsupportedError(
            f"{kind.__name__} of torch keeps its states and the values that it updates in memory, "
            "and the config has them on NVMe",
            subject="offload_optimizer",
            advice=f"Use one of {', '.join(sorted(each.__name__ for each in TWINS))}, or offload "
            'to "cpu".',
        )
    twin, options = TWINS[kind]
    groups: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        groups.append({key: group[key] for key in ("params", *options) if key in group})
    made: torch.optim.Optimizer = twin(groups)
    for ours, theirs in zip(made.param_groups, optimizer.param_groups):
        known = {*ours, *optimizer.defaults}
        ours.update((key, value) for key, value in theirs.items() if key not in known)
    return made


def is_decoupled(adam: torch.optim.Optimizer) -> bool:
    """True if torch's Adam decays weights as AdamW does (decoupled_weight_decay).

    Raises UnsupportedError if it does so in some groups only.
    """
    flags = {
        bool(group.get("decoupled_weight_decay"))
        for group in adam.param_groups
        if group["weight_decay"]
    }
    if len(flags) > 1:
        raise errors.UnsupportedError(
            "Adam has groups with and without decoupled_weight_decay, and the engine's optimizers, "
            "which step states on NVMe, have one rule for all groups",
            subject="offload_optimizer",
            advice='Make two optimizers, or offload to "cpu".',
        )
    return flags == {True}


def move_schedulers(schedulers: Iterable[Any], old: Any, new: Any) -> None:
    """Lets the schedulers of one optimizer set the rates of another."""
    for scheduler in schedulers:
        if getattr(scheduler, "optimizer", None) is old:
            scheduler.optimizer = new
        move_schedulers(parts_of_scheduler(scheduler), old, new)
    if has_scheduler_mark(old.step):
        plain = new.step

        def step(*args: Any, **kwargs: Any) -> Any:
            note_step(new)
            return plain(*args, **kwargs)

        keep_scheduler_mark(old.step, step)
        new.step = step


@contextlib.contextmanager
def trainable(model: torch.nn.Module, flag: bool) -> Iterator[None]:
    """Within, with `flag`, all params that can require gradients do."""
    frozen = []
    for param in model.parameters() if flag else ():
        if not param.requires_grad and param.is_floating_point():
            frozen.append(param)
            param.requires_grad_(True)
    try:
        yield
    finally:
        for param in frozen:
            param.requires_grad_(False)


class Toggle:
    """`toggle_optimizer` and `untoggle_optimizer` of a LightningModule.

    Lightning's own freeze the params of the param groups. These are shards, and the model computes
    with other tensors.
    """

    def __init__(self, optimizers: list[torch.optim.Optimizer]) -> None:
        self.optimizers = optimizers
        self.before: dict[torch.nn.Parameter, bool] = {}

    def toggle_optimizer(self, optimizer: Any) -> None:
        """Lets only the params of one optimizer require gradients, until `untoggle_optimizer`."""
        before: dict[torch.nn.Parameter, bool] = {}
        for each in self.optimizers:
            for param in params_of(each):
                if param not in before:
                    before[param] = param.requires_grad
                    param.requires_grad = False
        for param in params_of(bare(optimizer)):
            param.requires_grad = before[param]
        self.before = before

    def untoggle_optimizer(self, optimizer: Any) -> None:
        """Ends `toggle_optimizer`."""
        own = bare(optimizer)
        for each in self.optimizers:
            for param in params_of(each) if each is not own else ():
                if param in self.before:
                    param.requires_grad = self.before[param]
        self.before = {}

    def __deepcopy__(self, _memo: dict[int, Any]) -> Toggle:
        """Itself: a copy of the module has no optimizers of its own."""
        return self

    def put_on(self, module: torch.nn.Module) -> None:
        for name in ("toggle_optimizer", "untoggle_optimizer"):
            module.__dict__[name] = getattr(self, name)

    @staticmethod
    def take_off(module: torch.nn.Module) -> None:
        """Ends this, and a toggle that an exception has left."""
        method = module.__dict__.get("untoggle_optimizer")
        if method is not None:
            for param, flag in method.__self__.before.items():
                param.requires_grad = flag
        for name in ("toggle_optimizer", "untoggle_optimizer"):
            module.__dict__.pop(name, None)


def sharded(model: torch.nn.Module) -> bool:
    """True if any param of the model is sharded."""
    return any(unit_of(param) is not None for param in model.parameters())
