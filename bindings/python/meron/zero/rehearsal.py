# SPDX-License-Identifier: Apache-2.0
"""Checks an optimizer and a scheduler before a model is sharded.

A sharded model keeps the plan of its config. So `initialize` raises errors in the config's other
blocks first. It can then be called again with a corrected config, of any stage.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from meron import errors
from meron.torch.optim.groups import check_numbers
from meron.zero.config import Config
from meron.zero.optimizers import (
    RULES,
    Client,
    ParamGroups,
    check_client,
    choose_rule,
)
from meron.zero.optimizers import check_block as check_optimizer_block
from meron.zero.schedulers import check_block as check_scheduler_block
from meron.zero.schedulers import make_scheduler

# Schedules that change more than the learning rate.
MOMENTUM_SCHEDULES = {"OneCycle", "OneCycleLR", "CyclicLR"}
# Options of torch's rules that need params on a device, which the stand-in has not.
ON_DEVICES = ("fused", "capturable", "foreach")


def rehearse(
    model: torch.nn.Module,
    config: Config,
    client: Client,
    groups: ParamGroups,
    lr_scheduler: Any,
) -> None:
    """Raises what making the optimizer and the scheduler of an engine would raise. Local.

    Both are made of a param that stands in for the model's. Not called are the caller's functions
    that make an optimizer or a scheduler, as they may count on a sharded model. Nothing of the
    caller's changes, and warnings are left to the engine's own.
    """
    if makes_optimizer(client):
        if lr_scheduler is None:
            check_scheduler_block(config.scheduler)
        return
    stand_in = optimizer_for_rehearsal(model, config, client, groups)
    if stand_in is None:
        check_scheduler_block(config.scheduler)
    if not has_scheduler(config, stand_in, lr_scheduler):
        return
    require_optimizer(stand_in, lr_scheduler)
    if lr_scheduler is None:
        assert config.scheduler is not None and stand_in is not None
        with unheard():
            make_scheduler(stand_in, *copy.deepcopy(config.scheduler))
    elif not is_function(lr_scheduler):
        check_same_optimizer(lr_scheduler, client)


def check_names(config: Config) -> None:
    """Raises for an optimizer or a scheduler of a config, or an argument of it, that is unknown.
    Local: for configs whose model is not built yet."""
    check_optimizer_block(config.optimizer)
    check_scheduler_block(config.scheduler)


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Within, no warning of a schedule is shown."""
    logger = logging.getLogger("meron.zero")
    before, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = before


def cycles_momentum(config: Config) -> bool:
    """True if the config's schedule sets the momentum too."""
    return config.scheduler is not None and config.scheduler[0] in MOMENTUM_SCHEDULES


def is_function(given: Any) -> bool:
    """True if a caller passes a function that makes a scheduler, and not a scheduler."""
    return callable(given) and not hasattr(given, "step")


def makes_optimizer(given: Any) -> bool:
    """True if a caller passes a function or class that makes an optimizer, and not an optimizer."""
    return callable(given) and not isinstance(given, torch.optim.Optimizer)


def optimizer_for_rehearsal(
    model: torch.nn.Module, config: Config, client: Client, groups: ParamGroups
) -> torch.optim.Optimizer | None:
    """One like the engine's, of a param of its own; None where there will be none."""
    if client is not None:
        check_client(client, config.given_clipping)
        assert isinstance(client, torch.optim.Optimizer)
        config.check_optimizer(client)
        return stand_in_of(client.param_groups)
    if config.optimizer is None:
        return None
    chosen = choose_rule(
        model, config.optimizer, groups, cycles_momentum(config), config.bf16_values
    )
    known = set(inspect.signature(RULES[chosen.name].__init__).parameters) - set(ON_DEVICES)
    options = copied({key: value for key, value in chosen.params.items() if key in known})
    check_numbers(f"{config.optimizer[0]}: ", options)
    own = stand_in_groups(chosen.groups)
    try:
        made: torch.optim.Optimizer = RULES[chosen.name](own, **options)
    except (TypeError, ValueError) as error:
        raise errors.argument(
            f"{config.optimizer[0]}: {error}", subject="optimizer.params"
        ) from None
    if not chosen.own:
        config.check_optimizer(chosen.rule(stand_in_groups(chosen.groups), **options))
    return made


def copied(numbers: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a param group. A learning rate may be a tensor, which schedules write."""
    return {key: copy.deepcopy(value) for key, value in numbers.items() if key != "params"}


def stand_in_param() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros(1))


def stand_in_groups(items: list[Any]) -> list[dict[str, Any]]:
    """As many param groups, with their numbers."""
    groups = [item for item in items if isinstance(item, dict)]
    return [{**copied(group), "params": [stand_in_param()]} for group in groups or [{}]]


def stand_in_of(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """An optimizer with the numbers of some param groups."""
    numbers = [copied(group) for group in groups]
    made = torch.optim.SGD([{"params": [stand_in_param()]} for _ in numbers], lr=1e-3)
    for group, own in zip(made.param_groups, numbers):
        group.update(own)
    made.defaults.update(numbers[0])
    return made


def has_scheduler(config: Config, optimizer: Any, lr_scheduler: Any) -> bool:
    """True if an engine gets a scheduler. A config's scheduler needs an optimizer.

    transformers' `deepspeed_init(inference=True)` removes the optimizer and leaves the scheduler.
    """
    return lr_scheduler is not None or (config.scheduler is not None and optimizer is not None)


def require_optimizer(optimizer: Any, lr_scheduler: Any) -> None:
    """ArgumentError for a scheduler without an optimizer."""
    if optimizer is None:
        raise errors.argument(
            "there is a scheduler, but no optimizer for it",
            subject="scheduler" if lr_scheduler is None else "lr_scheduler",
            advice="Pass an optimizer to initialize, name one in the config, or leave the "
            "scheduler out.",
        )


def check_same_optimizer(lr_scheduler: Any, optimizer: Any) -> None:
    """ArgumentError for a scheduler whose optimizer is another one."""
    its_optimizer = getattr(lr_scheduler, "optimizer", None)
    if isinstance(its_optimizer, torch.optim.Optimizer) and its_optimizer is not optimizer:
        raise errors.argument(
            f"the {type(lr_scheduler).__name__} is of another optimizer than the engine's",
            subject="lr_scheduler",
            advice="Pass its optimizer to initialize too, or pass a function of the optimizer.",
        )


__all__ = [
    "check_names",
    "check_same_optimizer",
    "cycles_momentum",
    "has_scheduler",
    "is_function",
    "rehearse",
    "require_optimizer",
]
