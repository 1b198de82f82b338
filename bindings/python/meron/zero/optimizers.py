# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a config's `optimizer` block, or of the caller, on shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Union

import torch

import meron.torch as mt
from meron import errors
from meron.torch.sharding import unit_of
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
# Of DeepSpeed's Adam, which torch's do not know.
SWITCHES = ("torch_adam", "adam_w_mode", "fp32_optimizer_states")
ENGINE_ADAMW = {"lr", "betas", "eps", "weight_decay", "bias_correction"}


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
        if not isinstance(client, torch.optim.Optimizer):
            client = client(groups_of(model, model_parameters))
        if isinstance(client, mt.AdamW) or getattr(client, "_meron_shards", None) is not None:
            return client
        keep_masters(model)
        return mt.shard_optimizer(model, client)
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
    switches = {key: params.pop(key) for key in SWITCHES if key in params}
    if name in ("adam", "adamw"):
        # DeepSpeed's Adam decays weights as AdamW does, unless told otherwise, and not at all by
        # default.
        name = "adamw" if name == "adamw" or switches.get("adam_w_mode", True) else "adam"
        params.setdefault("weight_decay", 0.0)
    groups = groups_of(model, model_parameters)
    trainable = {id(param) for param in model.parameters() if param.requires_grad}
    plain = all(isinstance(item, torch.Tensor) for item in groups)
    whole = plain and {id(param) for param in groups} == trainable
    if (
        name == "adamw"
        and whole
        and not switches.get("torch_adam", False)
        and params.keys() <= ENGINE_ADAMW
        and params.pop("bias_correction", True)
    ):
        if "betas" in params:
            params["betas"] = tuple(params["betas"])
        return mt.AdamW(model, max_norm=clipping, **params)
    params.pop("bias_correction", None)
    try:
        optimizer = RULES[name](groups, **params)
    except TypeError as error:
        raise errors.argument(f"optimizer {kind}: {error}", "optimizer.params") from None
    keep_masters(model)
    return mt.shard_optimizer(model, optimizer)


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
