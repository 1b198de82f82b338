# SPDX-License-Identifier: Apache-2.0
"""Gradients as PyTorch's idioms expect them: dropped, written, read between backward and step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp import RANK, backward_all, loss, mlp, same, sgd, step_both
from torch import nn

import meron
import meron.torch as mt

PLANS = ["zero0", "zero1", "zero2", "zero3"]
pytestmark = [
    pytest.mark.ranks(2),
    pytest.mark.parametrize("plan", PLANS),
    pytest.mark.parametrize("kind", ["torch", "engine"]),
]
Optimizer = torch.optim.Optimizer


def sharded(plan: str, kind: str, units: Any = nn.Linear) -> tuple[nn.Sequential, Optimizer]:
    model = mt.shard(mlp(), plan=plan, units=units)
    if kind == "engine":
        return model, mt.SGD(model, lr=0.1, momentum=0.9)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, mt.shard_optimizer(model, plain)


def twin() -> tuple[nn.Sequential, Optimizer]:
    model = mlp()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def each_to_none(model: nn.Module) -> None:
    for param in model.parameters():
        param.grad = None


def each_deleted(model: nn.Module) -> None:
    for param in model.parameters():
        del param.grad


def of_the_module(model: nn.Module) -> None:
    model.zero_grad()


def of_a_module_around(model: nn.Module) -> None:
    nn.Sequential(model).zero_grad(set_to_none=False)


DROPS = [of_the_module, of_a_module_around, each_to_none, each_deleted]


@pytest.mark.parametrize("drop", DROPS, ids=["module", "wrapper", "none", "delete"])
@pytest.mark.parametrize("synced", [True, False], ids=["reduced", "no_sync"])
def test_drops_the_gradients_of_a_skipped_batch(
    plan: str, kind: str, drop: Callable[[nn.Module], None], synced: bool
) -> None:
    model, optimizer = sharded(plan, kind)
    plain, same_rule = twin()
    for seed in range(3):
        if synced:
            loss(model, 50 + RANK).mul(1e3).backward()
        else:
            with mt.no_sync(model):
                loss(model, 50 + RANK).mul(1e3).backward()
        drop(model)
        optimizer.step()  # without a gradient, it has no effect
        step_both(model, optimizer, plain, same_rule, seed)


def test_drops_the_gradients_of_a_submodule(plan: str, kind: str) -> None:
    model, optimizer = sharded(plan, kind)
    plain, same_rule = twin()
    loss(model, RANK).backward()
    backward_all(plain, 0)
    for each in (model, plain):
        each[0].zero_grad()
    loss(model, 7 + RANK).backward()
    backward_all(plain, 7)
    optimizer.step()
    same_rule.step()
    same(model, plain)


@pytest.mark.parametrize("finished", [False, True], ids=["backward", "clipped"])
def test_drops_the_gradients_of_one_param(plan: str, kind: str, finished: bool) -> None:
    model, optimizer = sharded(plan, kind, units=None)
    plain, same_rule = twin()
    loss(model, RANK).backward()
    backward_all(plain, 0)
    if finished:
        mt.clip_grad_norm_(model, 1e9)
    for each in (model, plain):
        each[0].weight.grad = None
    optimizer.step()
    same_rule.step()
    same(model, plain)
    loss(model, RANK).backward()  # the next backward begins from nothing
    optimizer.step()
    same_rule.zero_grad()
    backward_all(plain, 0)
    same_rule.step()
    same(model, plain)


def test_drops_finished_gradients(plan: str, kind: str) -> None:
    model, optimizer = sharded(plan, kind)
    plain, same_rule = twin()
    loss(model, RANK).backward()
    mt.full_grad(model[0].weight)
    model.zero_grad()
    assert mt.full_grad(model[0].weight) is None
    step_both(model, optimizer, plain, same_rule)


def test_rejects_a_backward_after_one_param_of_a_unit_was_dropped(plan: str, kind: str) -> None:
    model, optimizer = sharded(plan, kind, units=None)
    loss(model, RANK).backward()
    model[0].weight.grad = None
    with pytest.raises(meron.StateError, match=r"0\.weight.*zero_grad"):
        loss(model, RANK).backward()
    model.zero_grad()
    plain, same_rule = twin()
    step_both(model, optimizer, plain, same_rule)


@pytest.mark.parametrize("finished", [False, True], ids=["backward", "clipped"])
def test_rejects_a_gradient_written_after_a_backward(plan: str, kind: str, finished: bool) -> None:
    model, optimizer = sharded(plan, kind)
    plain, same_rule = twin()
    loss(model, RANK).backward()
    if finished:
        mt.clip_grad_norm_(model, 1e9)
    weight = model[0].weight
    with pytest.raises(meron.StateError, match=r"0\.weight.*set_full_grad"):
        weight.grad = torch.ones(8, 8)
    mt.set_full_grad(weight, torch.ones(8, 8))
    optimizer.step()
    backward_all(plain, 0)
    plain[0].weight.grad = torch.ones(8, 8)
    same_rule.step()
    same(model, plain)


def test_adds_a_gradient_written_before_a_backward(plan: str, kind: str) -> None:
    model, optimizer = sharded(plan, kind)
    plain, same_rule = twin()
    model[0].weight.grad = torch.ones(8, 8)
    plain[0].weight.grad = torch.ones(8, 8)
    loss(model, RANK).backward()
    backward_all(plain, 0)
    optimizer.step()
    same_rule.step()
    same(model, plain)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_hooks_of_the_user_see_the_gradient(plan: str, kind: str, first: bool) -> None:
    seen: list[bool] = []

    def halve(param: torch.Tensor) -> None:
        seen.append(param.grad is not None)
        if param.grad is not None:
            param.grad.mul_(0.5)

    model, plain = mlp(), mlp()
    if first:
        handles = [p.register_post_accumulate_grad_hook(halve) for p in model.parameters()]
    mt.shard(model, plan=plan, units=nn.Linear)
    if not first:
        handles = [p.register_post_accumulate_grad_hook(halve) for p in model.parameters()]
    optimizer: Any = mt.SGD(model, lr=0.1) if kind == "engine" else sgd(model)
    if kind == "torch":
        mt.shard_optimizer(model, optimizer)
    twins = sgd(plain)
    loss(model, RANK).backward()
    optimizer.step()
    assert seen == [True] * 4
    backward_all(plain, 0)
    for param in plain.parameters():
        assert param.grad is not None
        param.grad.mul_(0.5)
    twins.step()
    same(model, plain)
    for handle in handles:
        handle.remove()
    step_both(model, optimizer, plain, twins)
    assert len(seen) == 4


def test_total_norm_of_collected_gradients_is_not_zero(plan: str, kind: str) -> None:
    model, optimizer = sharded(plan, kind)
    loss(model, RANK).backward()
    with pytest.raises(meron.StateError, match="clip_grad_norm_"):
        nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    optimizer.step()
    assert nn.utils.get_total_norm([]) == 0
    assert nn.utils.get_total_norm([torch.full((4,), 2.0)]) == 4


def test_rejects_an_optimizer_in_the_backward(plan: str, kind: str) -> None:
    from torch.distributed.optim import _apply_optimizer_in_backward as apply

    model, _ = sharded(plan, kind)
    # Its values cannot be read either, where they are sharded.
    refusal = meron.StateError if plan == "zero3" else meron.UnsupportedError
    with pytest.raises(refusal, match=r"0\.weight"):
        apply(torch.optim.SGD, model.parameters(), {"lr": 0.1})
    built = mlp()
    apply(torch.optim.SGD, built.parameters(), {"lr": 0.1})
    with pytest.raises(meron.UnsupportedError, match=r"0\.weight.*_apply_optimizer_in_backward"):
        mt.shard(built, plan=plan)


def test_rejects_a_gradient_written_to_a_shard(plan: str, kind: str) -> None:
    if kind == "engine":
        pytest.skip("its groups have the params themselves")
    model, optimizer = sharded(plan, kind)
    loss(model, RANK).backward()
    part = optimizer.param_groups[0]["params"][0]
    part.grad = torch.ones_like(part)
    with pytest.raises(meron.StateError, match="local_grad"):
        optimizer.step()
    part.grad = None
    plain, same_rule = twin()
    backward_all(plain, 0)
    optimizer.step()
    same_rule.step()
    same(model, plain)
