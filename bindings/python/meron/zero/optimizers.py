# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a config's `optimizer` block, or of the caller, on shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Union

import torch

import meron.torch as mt
from meron import errors
from meron.torch.sharding import unit_of
from meron.torch.unit import ShardedUnit
from meron.zero.units import units_of

ParamGroups = Union["Iterable[torch.Tensor]", "Iterable[dict[str, Any]]", None]
Client = Union[torch.optim.Optimizer, Callable[[Any], torch.optim.Optimizer], None]

RULES: dict[str, type[torch.optim.Optimizer]] = {
    name.lower(): getattr(torch.optim, name)
    for name in (
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    )
}
ENGINE_ADAMW = {"lr", "betas", "eps", "weight_decay"}


def make_optimizer(
    model: torch.nn.Module,
    client: Client,
    block: tuple[str, dict[str, Any]] | None,
    model_parameters: ParamGroups,
    clipping: float,
) -> torch.optim.Optimizer | None:
    """The optimizer of an engine, on shards; None when nobody gives one. Collective.

    The caller's counts rather than the config's. The config's Adam and AdamW, over all params with
    one group of options, are the engine's own, which also clips.
    """
    if client is not None:
        optimizer = client
        if not isinstance(optimizer, torch.optim.Optimizer) and callable(optimizer):
            optimizer = optimizer(groups_of(model, model_parameters))
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise errors.argument(
                f"optimizer is a {type(client).__name__}: a torch.optim.Optimizer, or a function "
                "of params that makes one, is known",
                subject="optimizer",
            )
        if isinstance(optimizer, mt.AdamW):
            check_own(model, optimizer.sharded)
            if clipping:
                raise errors.argument(
                    "gradient_clipping of the config is no option of a meron.torch.AdamW that is "
                    "made already",
                    subject="gradient_clipping",
                    advice="Pass it max_norm instead, and leave gradient_clipping out.",
                )
            return optimizer
        shards = getattr(optimizer, "_meron_shards", None)
        if shards is not None:
            check_own(model, shards.units())
            return optimizer
        keep_masters(model)
        return mt.shard_optimizer(model, optimizer)
    if block is None:
        return None
    kind, params = block[0], dict(block[1])
    name = kind.lower()
    if name == "fusedadam":
        name = "adam"
    if name not in RULES:
        raise errors.argument(
            f"unknown optimizer {kind!r}: {', '.join(rule.__name__ for rule in RULES.values())} "
            "are known",
            subject="optimizer.type",
            advice="Pass an optimizer to initialize instead.",
        )
    torch_adam = False
    if name in ("adam", "adamw"):
        # DeepSpeed's Adam decays weights as AdamW does, unless told otherwise, and not at all by
        # default.
        name = "adamw" if params.pop("adam_w_mode", True) or name == "adamw" else "adam"
        params.setdefault("weight_decay", 0.0)
        torch_adam = bool(params.pop("torch_adam", False))
        for key in ("bias_correction", "fp32_optimizer_states"):
            if not params.pop(key, True):
                raise errors.UnsupportedError(
                    f"Meron does not have yet: {kind} with {key} = false",
                    subject=f"optimizer.params.{key}",
                    advice="Leave it out, or pass an optimizer to initialize.",
                )
    groups = groups_of(model, model_parameters)
    if not groups:
        raise errors.argument(
            f"there are no trainable params of {type(model).__name__} for the optimizer {kind}",
            subject="optimizer",
            advice="Leave the optimizer out, or let some params require gradients.",
        )
    trainable = {id(param) for param in model.parameters() if param.requires_grad}
    plain = all(isinstance(item, torch.Tensor) for item in groups)
    whole = plain and {id(param) for param in groups} == trainable
    if name == "adamw" and whole and not torch_adam and params.keys() <= ENGINE_ADAMW:
        if "betas" in params:
            params["betas"] = tuple(params["betas"])
        return mt.AdamW(model, max_norm=clipping, **params)
    try:
        optimizer = RULES[name](groups, **params)
    except TypeError as error:
        raise errors.argument(f"optimizer {kind}: {error}", "optimizer.params") from None
    keep_masters(model)
    return mt.shard_optimizer(model, optimizer)


def check_own(model: torch.nn.Module, units: Iterable[ShardedUnit]) -> None:
    """ArgumentError for an optimizer whose units are not those of the model."""
    known = set(units_of(model))
    for unit in units:
        if unit not in known:
            raise errors.argument(
                f"the optimizer has the params of '{unit.name}', which is of another model than "
                f"the {type(model).__name__}",
                subject="optimizer",
                advice="Make it from the params of the model.",
            )


def groups_of(model: torch.nn.Module, given: ParamGroups) -> list[Any]:
    """Params or param groups for an optimizer: what was given, else all trainable ones."""
    if given is None:
        return [param for param in model.parameters() if param.requires_grad]
    items: list[Any] = list(given)
    return [item for item in items if not isinstance(item, torch.Tensor) or item.requires_grad]


def keep_masters(model: torch.nn.Module) -> None:
    """f32 values of this rank's parts for every 16-bit param that has none. Collective."""
    for unit in units_of(model):
        for i in unit.trainable:
            if unit.handles[i].dtype != "f32" and i not in unit.masters:
                unit.masters[i] = mt.local_param(unit.params[i]).float()


def check_trainable(model: torch.nn.Module) -> None:
    """StateError naming params that were frozen when they were sharded and are not any more."""
    for name, param in model.named_parameters():
        place = unit_of(param)
        if place is not None and param.requires_grad and place[0].handles[place[1]].frozen:
            raise errors.StateError(
                f"{name} was frozen when it was sharded: it has no place for a gradient",
                subject=name,
                advice="Set requires_grad before the model is sharded (within zero.Init: in the "
                "module's __init__).",
            )


def check_options(optimizer: mt.AdamW) -> None:
    """The engine's rule takes a new learning rate only: other changes must not go unnoticed."""
    for group in optimizer.param_groups:
        for key, value in optimizer.defaults.items():
            if key != "lr" and group[key] != value:
                raise errors.UnsupportedError(
                    f"{key} of the optimizer changed from {value} to {group[key]}",
                    subject=key,
                    advice='Write "torch_adam": true in the optimizer\'s params.',
                )
