# SPDX-License-Identifier: Apache-2.0
"""Gradients, clipping, optimizers and plans of sharded models."""

from __future__ import annotations

import copy
import importlib
import json
import sys

import pytest
import torch
from mlp import RANK, RANKS, backward_all, data, loss, mlp, same, sgd, sharded
from torch import nn

import meron
import meron.torch as mt
from meron.torch.gradients.accumulation import ENDED

pytestmark = pytest.mark.ranks(1, 2)

# ---- Gradients ----------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ["zero3", "zero1"])
def test_no_sync_accumulates_locally(plan: str) -> None:
    model, optimizer = sharded(plan)
    plain = mlp()
    twin = sgd(plain)
    for step in range(2):
        with mt.no_sync(model):
            loss(model, 10 * step + RANK).backward()
        loss(model, 100 * step + 50 + RANK).backward()
        optimizer.step()
        twin.zero_grad()
        backward_all(plain, 10 * step)
        backward_all(plain, 100 * step + 50)
        twin.step()
    same(model, plain)


def test_step_reduces_gradients_left_by_no_sync() -> None:
    model, optimizer = sharded()
    plain = mlp()
    with mt.no_sync(model):
        loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)


@pytest.mark.parametrize("plan", ["zero1", "zero2", "zero3", "mics(1)"])
def test_last_backward_ends_the_accumulation(plan: str) -> None:
    """From the second step on; the params have the bits of a model whose step ends it."""
    marked, unmarked = sharded(plan), sharded(plan)
    for step in range(3):
        for model, optimizer in (marked, unmarked):
            for micro in range(3):
                mt.set_is_last_backward(model, model is marked[0] and micro == 2)
                loss(model, 100 * step + 10 * micro + RANK).backward()
            ended = [unit.gradients.phase is ENDED for unit in mt.api.require_units(model)]
            assert ended == [model is marked[0] and step > 0] * len(ended), step
            mt.clip_grad_norm_(model, 0.5)
            optimizer.step()
    for one, other in zip(marked[0].parameters(), unmarked[0].parameters()):
        assert torch.equal(mt.full_param(one), mt.full_param(other))


def test_rejects_a_backward_after_the_last() -> None:
    model, optimizer = sharded()
    plain = mlp()
    for step in range(2):
        mt.set_is_last_backward(model, True)
        loss(model, 10 * step + RANK).backward()
        if step == 1:
            with pytest.raises(meron.StateError, match="after those of the last"):
                loss(model, 0).backward()
            with pytest.raises(meron.StateError, match="after those of the last"):
                optimizer.step()
            optimizer.zero_grad()
            mt.set_is_last_backward(model, False)
            loss(model, 10 * step + RANK).backward()
        optimizer.step()
        plain.zero_grad()
        backward_all(plain, 10 * step)
        sgd(plain).step()
    same(model, plain)


def test_trains_two_models_in_turns() -> None:
    """A generator and its critic: they share a backward, and are clipped and stepped apart."""
    (maker, makers), (critic, critics) = sharded(), sharded()
    plain_maker, plain_critic = mlp(), mlp()
    plain_makers, plain_critics = sgd(plain_maker), sgd(plain_critic)
    for step in range(3):
        critic(maker(data(step + RANK))).square().mean().backward()
        mt.clip_grad_norm_(maker, 1e9)
        mt.clip_grad_norm_(critic, 1e9)
        makers.step()
        critics.step()
        critic(maker(data(step + RANK)).detach()).square().mean().backward()
        critics.step()
        makers.zero_grad()
        plain_makers.zero_grad()
        plain_critics.zero_grad()
        for rank in range(RANKS):
            (plain_critic(plain_maker(data(step + rank))).square().mean() / RANKS).backward()
        plain_makers.step()
        plain_critics.step()
        plain_critics.zero_grad()
        for rank in range(RANKS):
            made = plain_maker(data(step + rank)).detach()
            (plain_critic(made).square().mean() / RANKS).backward()
        plain_critics.step()
    same(maker, plain_maker)
    same(critic, plain_critic)


def test_trains_two_models_under_different_plans() -> None:
    model, optimizer = sharded("zero1")
    other, others = sharded("zero2")
    plain = mlp()
    for each, its in ((model, optimizer), (other, others)):
        loss(each, RANK).backward()
        its.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)
    same(other, plain)


@pytest.mark.ranks(1, 2, environment={"IMPORTS": "anew"})  # else meron.zero may be imported
def test_takes_the_plan_from_a_deepspeed_config() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": True},
    }
    assert "meron.zero" not in sys.modules
    with pytest.raises(meron.StateError, match=r"import meron\.zero"):
        mt.shard(mlp(), config=config)
    importlib.import_module("meron.zero")
    model = mt.shard(mlp(), config=config)
    assert model(data(RANK)).dtype == torch.bfloat16
    unit = model[0].weight._meron[0]
    assert json.loads(unit.sharding.context.plan.json())["name"] == "zero2"
    with pytest.raises(meron.ArgumentError, match="not both"):
        mt.shard(mlp(), plan="zero1", config=config)
    wrong = {"zero_optimization": {"stagee": 2}}
    with pytest.raises(meron.ArgumentError, match="stage"):
        mt.shard(mlp(), config=wrong)


def test_differentiates_a_gradient() -> None:
    def penalty(model: nn.Module, seed: int) -> torch.Tensor:
        x = data(seed).requires_grad_()
        (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    model = mt.shard(mlp(), units=nn.Linear)
    optimizer = mt.shard_optimizer(model, sgd(model))
    plain = mlp()
    penalty(model, RANK).backward()
    optimizer.step()
    for rank in range(RANKS):
        (penalty(plain, rank) / RANKS).backward()
    sgd(plain).step()
    same(model, plain)


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero3"])
def test_clips_like_torch(plan: str) -> None:
    for kind in (2.0, 1.0, float("inf")):
        model, _ = sharded(plan)
        plain = mlp()
        loss(model, RANK).backward()
        backward_all(plain, 0)
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e-3, kind)
        torch.testing.assert_close(mt.clip_grad_norm_(model, 1e-3, kind), expected)
        for param, twin in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(mt.full_grad(param), twin.grad)


def test_has_no_gradients_before_a_backward() -> None:
    model, optimizer = sharded()
    assert mt.full_grad(model[0].weight) is None
    assert float(mt.clip_grad_norm_(model, 1.0)) == 0.0
    loss(model, RANK).backward()
    optimizer.step()


def test_reads_and_writes_full_tensors() -> None:
    model = mt.shard(mlp())
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    weight = model[0].weight
    loss(model, RANK).backward()
    plain = mlp()
    backward_all(plain, 0)
    grad = mt.full_grad(weight)
    torch.testing.assert_close(grad, plain[0].weight.grad)
    mt.set_full_grad(weight, grad * 2)
    torch.testing.assert_close(mt.full_grad(weight), grad * 2)
    optimizer.step()
    torch.testing.assert_close(mt.full_optimizer_state(optimizer, weight, "exp_avg"), grad * 0.2)
    mt.set_full_optimizer_state(optimizer, weight, "exp_avg", torch.ones(8, 8))
    assert mt.full_optimizer_state(optimizer, weight, "exp_avg").eq(1).all()
    assert mt.full_optimizer_state(optimizer, weight, "step") == 1
    assert mt.full_optimizer_state(optimizer, weight, "nothing") is None
    mt.set_full_param(weight, torch.full((8, 8), 0.5))
    assert mt.full_param(weight).eq(0.5).all()
    assert mt.full_grad(weight) is None, "the step consumes it"


# ---- Optimizers ---------------------------------------------------------------------------------


def test_shard_optimizer_keeps_existing_states() -> None:
    model, plain = mlp(), mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(2):
        for each, its in ((model, optimizer), (plain, twin)):
            its.zero_grad()
            loss(each, seed).backward()
            its.step()
    twin.zero_grad()
    mt.shard(model)
    mt.shard_optimizer(model, optimizer)
    loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    twin.step()
    same(model, plain)


@pytest.mark.parametrize(("dtype", "tolerance"), [(None, 1e-6), (torch.bfloat16, 2e-2)])
def test_engine_adamw_equals_torch(dtype: torch.dtype | None, tolerance: float) -> None:
    model = mt.shard(mlp(), mp=mt.MixedPrecision(dtype))
    plain = mlp()
    optimizer = mt.AdamW(model, lr=0.01, weight_decay=0.1)
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    schedules = [torch.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (optimizer, twin)]
    for seed in range(4):
        loss(model, seed + RANK).backward()
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        backward_all(plain, seed)
        twin.step()
        for schedule in schedules:
            schedule.step()
    same(model, plain, rtol=tolerance, atol=tolerance)


def test_mixed_precision_updates_f32_weights() -> None:
    """bf16 forward and gradients, f32 sums and updates: equal bits to the same in plain torch."""
    mp = mt.MixedPrecision(torch.bfloat16, torch.float32)
    model = mt.shard(mlp(), mp=mp)
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    plain = mlp()
    low = copy.deepcopy(plain).bfloat16()
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for seed in range(3):
        out = model(data(seed + RANK))
        assert out.dtype == torch.bfloat16
        out.float().square().mean().backward()
        optimizer.step()
        sums = [torch.zeros_like(param) for param in plain.parameters()]
        for rank in range(RANKS):
            low.zero_grad()
            low(data(seed + rank).bfloat16()).float().square().mean().backward()
            for total, param in zip(sums, low.parameters()):
                total += param.grad.float()
        for total, param in zip(sums, plain.parameters()):
            param.grad = total / RANKS
        twin.step()
        for param, values in zip(low.parameters(), plain.parameters()):
            param.data.copy_(values.detach())
    for param, expected in zip(model.parameters(), low.parameters()):
        assert torch.equal(mt.full_param(param), expected.detach())


def test_shards_params_added_later() -> None:
    model = mt.shard(mlp())
    optimizer = mt.shard_optimizer(model, sgd(model))
    loss(model, RANK).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.add_module("3", nn.Linear(8, 8))
    with pytest.raises(meron.ArgumentError, match=r"3\.weight"):
        mt.AdamW(model)
    mt.shard(model)
    optimizer.add_param_group({"params": model[3].parameters()})
    before = mt.full_param(model[3].weight)
    loss(model, RANK).backward()
    optimizer.step()
    assert not torch.equal(before, mt.full_param(model[3].weight))


def test_rejects_two_optimizers_for_one_unit() -> None:
    model = mt.shard(mlp())
    params = list(model.parameters())
    first = mt.shard_optimizer(model, torch.optim.SGD(params[:2], lr=0.1))
    second = torch.optim.SGD(params[2:], lr=0.1)
    with pytest.raises(meron.ArgumentError, match="share the unit"):
        mt.shard_optimizer(model, second)
    assert second.param_groups[0]["params"][0] is params[2]
    first.add_param_group({"params": params[2:]})
    loss(model, RANK).backward()
    first.step()
    parts = mt.shard(mlp(), units=nn.Linear)
    for part in (parts[0], parts[2]):
        mt.shard_optimizer(parts, sgd(part))
