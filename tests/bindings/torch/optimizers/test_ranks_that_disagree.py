# SPDX-License-Identifier: Apache-2.0
"""If ranks give an optimizer different numbers, all ranks raise an error that names one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(2)
RANK = int(os.environ.get("MERON_RANK", "0"))
PLANS = ["zero0", "zero1", "zero2", "zero3"]

Change = Callable[[Any, torch.nn.Module], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "lr": (lambda o, m: o.param_groups[0].update(lr=0.01 * (1 + RANK)), "0.01 on rank 0, and 0.02"),
    r"betas\[1\]": (
        lambda o, m: o.param_groups[0].update(betas=(0.9, 0.9 + 0.05 * RANK)),
        "0.9 on rank 0, and 0.95",
    ),
    "weight_decay": (
        lambda o, m: o.param_groups[1].update(weight_decay=0.1 * RANK),
        "param group 1 is 0 on rank 0, and 0.1",
    ),
    "requires_grad": (
        lambda o, m: m[1].bias.requires_grad_(RANK == 0),
        r"'Sequential(#\d+)?\.1\.bias' is 1 on rank 0, and 0 on rank 1",
    ),
}


def sharded(plan: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    mt.shard(model, units=torch.nn.Linear, plan=plan)
    groups = [{"params": list(layer.parameters())} for layer in model]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.0)
    return model, mt.shard_optimizer(model, optimizer)


def backward(model: torch.nn.Module) -> None:
    model(torch.ones(2, 4) * (1 + RANK)).square().mean().backward()


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", list(CHANGES))
def test_names_the_number_that_differs(plan: str, name: str) -> None:
    change, values = CHANGES[name]
    model, optimizer = sharded(plan)
    backward(model)
    optimizer.step()
    optimizer.zero_grad()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    backward(model)
    change(optimizer, model)
    with pytest.raises(meron.ArgumentError, match=f"{name} of .*{values}"):
        optimizer.step()
    # Nothing was changed, and with equal numbers the step is taken.
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    for group in optimizer.param_groups:
        group.update(lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    model.requires_grad_(True)
    optimizer.step()
    assert not torch.equal(model.state_dict()["0.weight"], before["0.weight"])


def test_a_scheduler_that_follows_the_metric_of_a_rank_is_found() -> None:
    model, optimizer = sharded("zero3")
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    metrics = [1.0, 0.5] if RANK == 0 else [0.5, 1.0]
    for metric in metrics:
        backward(model)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step(metric)
    backward(model)
    with pytest.raises(meron.ArgumentError, match=r"lr of AdamW's .*on rank 1.*mean"):
        optimizer.step()


@pytest.mark.parametrize("plan", PLANS)
def test_names_the_norm_to_which_ranks_clip(plan: str) -> None:
    model, optimizer = sharded(plan)
    backward(model)
    for options, name in (((0.1 * (1 + RANK),), "max_norm"), ((1.0, 2.0 + RANK), "norm_type")):
        with pytest.raises(meron.ArgumentError, match=f"{name} of clip_grad_norm_ is"):
            mt.clip_grad_norm_(model, *options)
    mt.clip_grad_norm_(model, 0.1)
    optimizer.step()


def test_groups_of_another_number_of_values_are_named() -> None:
    model, optimizer = sharded("zero3")
    if RANK == 1:
        optimizer.param_groups[0]["params"] += optimizer.param_groups.pop()["params"]
    backward(model)
    with pytest.raises(meron.ArgumentError, match="the number of values of AdamW is"):
        optimizer.step()


def test_equal_numbers_of_any_kind_are_accepted() -> None:
    model, optimizer = sharded("zero3")
    for rate in (torch.tensor(0.5), float("nan"), 0.01, 1):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.param_groups[0]["note"] = object()  # a key of the caller's, of no rule
        backward(model)
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("name", ["lr", "betas"])
def test_the_optimizers_of_the_engine_show_the_numbers_of_each_rank(name: str) -> None:
    torch.manual_seed(0)
    model = mt.shard(torch.nn.Linear(4, 4))
    optimizer = mt.AdamW(model, lr=0.01)
    backward(model)
    value = {"lr": 0.01 * (1 + RANK), "betas": (0.9, 0.9 + 0.05 * RANK)}[name]
    optimizer.param_groups[0][name] = value
    with pytest.raises(meron.MismatchError) as caught:
        optimizer.step()
    assert "On this rank AdamW has max_norm 0; param group 0: lr" in str(caught.value)
    assert f"{name} {value}" in str(caught.value)


def test_the_optimizers_of_the_engine_show_the_max_norm_of_each_rank() -> None:
    model = mt.shard(torch.nn.Linear(4, 4))
    with pytest.raises(meron.ArgumentError, match="max_norm of AdamW is 1 on rank 0, and 2 on"):
        mt.AdamW(model, lr=0.01, max_norm=1.0 + RANK)
    optimizer = mt.AdamW(model, lr=0.01)
    backward(model)
    optimizer.max_norm = 1.0 + RANK
    with pytest.raises(meron.MismatchError) as caught:
        optimizer.step()
    assert f"On this rank AdamW has max_norm {1 + RANK};" in str(caught.value)


def test_the_engines_optimizer_says_what_may_differ() -> None:
    """The engine compares a hash of the options, so its message lists what is in it."""
    model = torch.nn.Linear(4, 4)
    mt.shard(model, plan="zero3")
    optimizer = mt.AdamW(model, lr=0.01)
    backward(model)
    optimizer.param_groups[0]["lr"] = 0.01 * (1 + RANK)
    with pytest.raises(meron.MismatchError, match="another option of an optimizer group"):
        optimizer.step()
