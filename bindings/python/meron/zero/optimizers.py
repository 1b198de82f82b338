# SPDX-License-Identifier: Apache-2.0
"""The optimizer of a config's `optimizer` block, or of the caller, on shards."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Union

import torch

import meron.torch as mt
from meron import errors
from meron.torch.sharding import unit_of
from meron.torch.unit import ShardedUnit
from meron.zero.ops import FusedLion
from meron.zero.units import units_of

ParamGroups = Union["Iterable[torch.Tensor]", "Iterable[dict[str, Any]]", None]
Client = Union[torch.optim.Optimizer, Callable[[Any], torch.optim.Optimizer], None]

# The engine's, by the lower-case name.
ENGINE: dict[str, Any] = {
    kind.__name__.lower(): kind for kind in (mt.Adam, mt.AdamW, mt.Adagrad, mt.Lion, mt.SGD)
}
# Those of torch tensors.
RULES: dict[str, Any] = {
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
RULES["lion"] = FusedLion
# Names of DeepSpeed's classes: the rule, and defaults that are its own.
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "fusedadam": ("adam", {}),
    "deepspeedcpuadam": ("adam", {}),
    "deepspeedcpuadagrad": ("adagrad", {}),
    "fusedlion": ("lion", {}),
    "deepspeedcpulion": ("lion", {"betas": (0.9, 0.999)}),
}
# Defaults of DeepSpeed where torch has others, for all but `torch_adam`.
DEFAULTS: dict[str, dict[str, Any]] = {
    "adam": {"weight_decay": 0.0},
    "adamw": {"weight_decay": 0.0},
    "lion": {"lr": 1e-3},
}
# Not elementwise: what they do to one element depends on others of its tensor, and a rank has a
# shard alone.
NOT_ELEMENTWISE = ("adafactor", "fusedlamb", "lamb", "lbfgs", "muon", "muonwithauxadam")
# Options of DeepSpeed besides torch's. True is what Meron does where it is the only value.
ADAMS = ("adam", "adamw", "adagrad")  # DeepSpeed takes these of Adagrad too
ADAM_OPTIONS = ("adam_w_mode", "torch_adam")
ONLY_TRUE = {
    "adam": ("bias_correction", "fp32_optimizer_states", "set_grad_none"),
    "adamw": ("bias_correction", "fp32_optimizer_states", "set_grad_none"),
    "adagrad": ("fp32_optimizer_states",),
    "lion": ("fp32_optimizer_states", "set_grad_none"),
}
# Options that the engine's rules lack, or share between all groups.
NOT_THE_ENGINES = ("amsgrad", "maximize", "differentiable", "decoupled_weight_decay")


def make_optimizer(
    model: torch.nn.Module,
    client: Client,
    block: tuple[str, dict[str, Any]] | None,
    model_parameters: ParamGroups,
    clipping: float,
    check: Callable[[torch.optim.Optimizer], None],
    cycles_momentum: bool = False,
    in_place: mt.InPlace | None = None,
) -> torch.optim.Optimizer | None:
    """The optimizer of an engine, on shards; None if neither caller nor config has one. Collective.

    The caller's optimizer has precedence over the config's, and keeps its rule. The config's Adam,
    AdamW, Adagrad, Lion and SGD are the engine's own, which also clip. They are torch's if the
    param groups leave trainable params out, or for options that the engine lacks.

    Args:
        check: raises if torch's states cannot reside on the tier of the config.
        cycles_momentum: a schedule will set the momentum, even if it is 0 at first.
        in_place: bf16 params have no f32 values: torch's rule updates this rank's bf16 shards.
    """
    if client is not None:
        return take_client(model, client, model_parameters, clipping, check, in_place)
    if block is None:
        return None
    chosen = choose_rule(model, block, model_parameters, cycles_momentum, in_place is not None)
    if chosen.own:
        own: torch.optim.Optimizer = chosen.rule(chosen.groups, max_norm=clipping, **chosen.params)
        return own
    optimizer = chosen.rule(chosen.groups, **chosen.params)
    check(optimizer)
    return mt.shard_optimizer(model, optimizer, in_place=in_place)


@dataclass
class ChosenRule:
    """The rule of a config's optimizer block, to be made by `rule(groups, **params)`.

    `name` is its key of RULES. `own` is true if it is a rule of the engine, which clips too.
    """

    name: str
    rule: Any
    params: dict[str, Any]
    groups: list[Any]
    own: bool


def choose_rule(
    model: torch.nn.Module,
    block: tuple[str, dict[str, Any]],
    model_parameters: ParamGroups,
    cycles_momentum: bool,
    in_place: bool,
) -> ChosenRule:
    """The rule of a config's optimizer block, for arguments of make_optimizer. Local: whether the
    model is sharded makes no difference. Raises ArgumentError, UnsupportedError."""
    kind, name, params = block[0], *rule_of(*block)
    own = not (name in ADAMS and params.pop("torch_adam", False)) and not in_place
    check_params(kind, name, params)
    groups = groups_of(model, model_parameters)
    if not groups:
        raise errors.argument(
            f"there are no trainable params of {type(model).__name__} for the optimizer {kind}",
            subject="optimizer",
            advice="Leave the optimizer out, or let some params require gradients.",
        )
    trainable = {id(param) for param in model.parameters() if param.requires_grad}
    whole = trainable <= {id(param) for param in params_in(groups)}
    if own and whole and name in ENGINE and engine_has(name, params, groups, cycles_momentum):
        return ChosenRule(name, ENGINE[name], params, groups, True)
    return ChosenRule(name, RULES[name], params, groups, False)


def take_client(
    model: torch.nn.Module,
    client: Any,
    model_parameters: ParamGroups,
    clipping: float,
    check: Callable[[torch.optim.Optimizer], None],
    in_place: mt.InPlace | None,
) -> torch.optim.Optimizer:
    """The caller's optimizer on shards. Collective."""
    optimizer = client
    if not isinstance(optimizer, torch.optim.Optimizer) and callable(optimizer):
        optimizer = optimizer(groups_of(model, model_parameters))
    check_client(optimizer, clipping)
    assert isinstance(optimizer, torch.optim.Optimizer)
    if isinstance(optimizer, mt.EngineOptimizer):
        check(optimizer)
        check_own(model, optimizer.sharded)
        return optimizer
    check(optimizer)
    check_rows(model, optimizer)
    shards = getattr(optimizer, "_meron_shards", None)
    if shards is not None:
        check_own(model, shards.units())
        return optimizer
    return mt.shard_optimizer(model, optimizer, in_place=in_place)


def check_client(optimizer: Any, clipping: float) -> None:
    """ArgumentError for what is no optimizer, or cannot clip as the config says."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise errors.argument(
            f"optimizer is a {type(optimizer).__name__}: a torch.optim.Optimizer, or a function "
            "of params that makes one, is known",
            subject="optimizer",
        )
    if clipping and isinstance(optimizer, mt.EngineOptimizer):
        raise errors.argument(
            f"gradient_clipping of the config is no option of a meron.torch."
            f"{type(optimizer).__name__} that is made already",
            subject="gradient_clipping",
            advice="Pass it max_norm instead, and leave gradient_clipping out.",
        )


def rule_of(kind: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The lower-case name of a config's optimizer, and its params as torch has them, besides
    torch_adam."""
    name, own_defaults = CLASSES.get(kind.lower(), (kind.lower(), {}))
    if name in NOT_ELEMENTWISE:
        raise errors.argument(
            f"the optimizer {kind!r} is not elementwise: it cannot run on shards of tensors",
            subject="optimizer.type",
            advice="Use AdamW, or another type that docs/torch_deepspeed.md lists.",
        )
    if name not in RULES:
        known = [rule.__name__ for key, rule in RULES.items() if key != "lion"]
        raise errors.argument(
            f"unknown optimizer {kind!r}: {', '.join(sorted([*known, 'Lion']))} are known",
            subject="optimizer.type",
            advice="Pass an optimizer to initialize instead.",
        )
    params = dict(given)
    if "max_grad_norm" in params:
        raise errors.argument(
            f"max_grad_norm is no option of {kind}",
            subject="optimizer.params.max_grad_norm",
            advice="Write gradient_clipping at the top level of the config instead.",
        )
    for key in ONLY_TRUE.get(name, ()):
        if not params.pop(key, True):
            raise errors.UnsupportedError(
                f"Meron does not have yet: {kind} with {key} = false",
                subject=f"optimizer.params.{key}",
                advice="Leave it out, or pass an optimizer to initialize.",
            )
    if name in ADAMS:
        # DeepSpeed's Adam decays weights as AdamW does, unless told otherwise.
        decoupled = params.pop("adam_w_mode", True)
        if name == "adam" and decoupled:
            name = "adamw"
    if name == "adagrad" and not params.get("amsgrad", True):
        del params["amsgrad"]  # DeepSpeed's class has it, and off
    defaults = {} if params.get("torch_adam") else DEFAULTS.get(name, {})
    return name, {**defaults, **own_defaults, **params}


def check_params(kind: str, name: str, params: dict[str, Any]) -> None:
    """Raises ArgumentError naming all unknown params of a config's optimizer, or one that is a
    text."""
    for key, value in params.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(item, str) for item in items):
            raise errors.argument(
                f"optimizer.params.{key} of {kind} is {value!r}: no number",
                subject=f"optimizer.params.{key}",
                advice="Give a number.",
            )
    known: set[str] = set()
    for rule in (RULES[name], ENGINE.get(name)):
        if rule is not None:
            known |= set(inspect.signature(rule.__init__).parameters)
    known -= {"self", "params", "max_norm", "set_grad_none"}
    if name == "adamw":
        known.discard("decoupled_weight_decay")
    unknown = [key for key in params if key not in known]
    if not unknown:
        return
    options = sorted({*known, *ONLY_TRUE.get(name, ())})
    if name in ADAMS:
        options += ADAM_OPTIONS
    told = []
    for key in unknown:
        close = difflib.get_close_matches(key, options, 1)
        told.append(f"{key} (did you mean {close[0]}?)" if close else key)
    raise errors.argument(
        f"{kind} has no {' and no '.join(told)}",
        subject=f"optimizer.params.{unknown[0]}",
        advice=f"Its params are {', '.join(options)}.",
    )


def check_block(block: tuple[str, dict[str, Any]] | None) -> None:
    """ArgumentError and UnsupportedError for an optimizer of a config, or a param of it, that is
    unknown. Local: before anything is sharded."""
    if block is None:
        return
    name, params = rule_of(*block)
    if name in ADAMS:
        params.pop("torch_adam", None)
    check_params(block[0], name, params)


def engine_has(name: str, params: dict[str, Any], groups: list[Any], cycles_momentum: bool) -> bool:
    """True if the engine's rule supports the options of all groups."""
    rows = [{**params, **item} if isinstance(item, dict) else params for item in groups]
    if any(row.get(key) for row in rows for key in NOT_THE_ENGINES):
        return False
    if name != "sgd":
        return True
    alike = {
        (bool(row.get("momentum")), row.get("dampening", 0), bool(row.get("nesterov")))
        for row in rows
    }
    return len(alike) == 1 and not (cycles_momentum and not rows[0].get("momentum"))


def check_rows(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """UnsupportedError where torch would step on rows that lie on the device."""
    plan = json.loads(units_of(model)[0].sharding.context.plan.json())
    if plan["param"]["tier"] != "device":
        return
    raise errors.UnsupportedError(
        f"the parameters reside on the device, where {type(optimizer).__name__} of torch does not "
        "step: the config of zero.Init names an optimizer, whose step is the engine's",
        subject="optimizer",
        advice="Leave the optimizer to the config; or take its optimizer block out, or set "
        "MERON_ZERO_TIERS=host: the rows then stay on the host.",
    )


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
    items: list[Any] = []
    for item in given:
        if isinstance(item, dict):
            params = item["params"]
            params = [params] if isinstance(params, torch.Tensor) else list(params)
            items.append({**item, "params": params})
        elif not isinstance(item, torch.Tensor) or item.requires_grad:
            items.append(item)
    return items


def params_in(groups: list[Any]) -> list[Any]:
    """The params of what groups_of returns."""
    found: list[Any] = []
    for item in groups:
        found += item["params"] if isinstance(item, dict) else [item]
    return [item[1] if isinstance(item, tuple) else item for item in found]


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
