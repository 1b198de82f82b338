# SPDX-License-Identifier: Apache-2.0
"""One rank: what meron.torch promises of gradients, clipping, optimizers and plans.

Run and reported by promise_program.py.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys

import torch
from mlp import backward_all, data, loss, mlp, same, sgd, sharded
from promise_program import RANK, RANKS, main, promises_of, raises
from torch import nn

import meron
import meron.torch as mt
from meron.torch.gradients.accumulation import ENDED

# ---- Gradients ----------------------------------------------------------------------------------


def no_sync_keeps_gradients_here() -> None:
    for plan in ("zero3", "zero1"):
        model, optimizer = sharded(plan)
        plain, twin = mlp(), None
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


def a_step_takes_what_no_sync_left() -> None:
    model, optimizer = sharded()
    plain = mlp()
    with mt.no_sync(model):
        loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)


def the_last_backward_ends_the_accumulation() -> None:
    """With the bits of a step that ends it; after the first step."""
    for plan in ("zero1", "zero2", "zero3", "mics(1)"):
        told, untold = sharded(plan), sharded(plan)
        for step in range(3):
            for model, optimizer in (told, untold):
                for micro in range(3):
                    mt.set_is_last_backward(model, model is told[0] and micro == 2)
                    loss(model, 100 * step + 10 * micro + RANK).backward()
                ended = [unit.gradients.phase is ENDED for unit in mt.api.require_units(model)]
                assert ended == [model is told[0] and step > 0] * len(ended), (plan, step)
                mt.clip_grad_norm_(model, 0.5)
                optimizer.step()
        for one, other in zip(told[0].parameters(), untold[0].parameters()):
            assert torch.equal(mt.full_param(one), mt.full_param(other)), plan


def a_backward_after_the_last_is_refused() -> None:
    model, optimizer = sharded()
    plain = mlp()
    for step in range(2):
        mt.set_is_last_backward(model, True)
        loss(model, 10 * step + RANK).backward()
        if step == 1:
            raises(meron.StateError, "after those of the last", lambda: loss(model, 0).backward())
            raises(meron.StateError, "after those of the last", optimizer.step)
            optimizer.zero_grad()
            mt.set_is_last_backward(model, False)
            loss(model, 10 * step + RANK).backward()
        optimizer.step()
        plain.zero_grad()
        backward_all(plain, 10 * step)
        sgd(plain).step()
    same(model, plain)


def two_models_take_turns() -> None:
    """A generator and its critic: one backward for both, clipping and steps of each alone."""
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


def two_engines_with_other_plans() -> None:
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


def a_deepspeed_config_is_a_plan() -> None:
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": 2, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": True},
    }
    if "meron.zero" not in sys.modules:
        raises(meron.StateError, "import meron.zero", lambda: mt.shard(mlp(), config=config))
        importlib.import_module("meron.zero")
    model = mt.shard(mlp(), config=config)
    assert model(data(RANK)).dtype == torch.bfloat16
    unit = model[0].weight._meron[0]
    assert json.loads(unit.sharding.context.plan.json())["name"] == "zero2"
    raises(meron.ArgumentError, "not both", lambda: mt.shard(mlp(), plan="zero1", config=config))
    wrong = {"zero_optimization": {"stagee": 2}}
    raises(meron.ArgumentError, "stage", lambda: mt.shard(mlp(), config=wrong))


def gradient_of_a_gradient() -> None:
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


def clipping_is_that_of_torch() -> None:
    for plan in ("zero0", "zero1", "zero3"):
        for kind in (2.0, 1.0, float("inf")):
            model, _ = sharded(plan)
            plain = mlp()
            loss(model, RANK).backward()
            backward_all(plain, 0)
            expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), 1e-3, kind)
            torch.testing.assert_close(mt.clip_grad_norm_(model, 1e-3, kind), expected)
            for param, twin in zip(model.parameters(), plain.parameters()):
                torch.testing.assert_close(mt.full_grad(param), twin.grad)


def gradients_may_be_asked_for_before_there_are_any() -> None:
    model, optimizer = sharded()
    assert mt.full_grad(model[0].weight) is None
    assert float(mt.clip_grad_norm_(model, 1.0)) == 0.0
    loss(model, RANK).backward()
    optimizer.step()


def whole_tensors_on_demand() -> None:
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
    assert mt.full_grad(weight) is None, "the step has used it"


# ---- Optimizers ---------------------------------------------------------------------------------


def an_optimizer_of_before_keeps_its_states() -> None:
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


def the_engines_adamw_is_that_of_torch() -> None:
    for dtype, tolerance in ((None, 1e-6), (torch.bfloat16, 2e-2)):
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


def mixed_precision_keeps_f32_weights() -> None:
    """bf16 compute and gradients, f32 sums and updates: bit for bit what plain torch does so."""
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


def params_added_late() -> None:
    model = mt.shard(mlp())
    optimizer = mt.shard_optimizer(model, sgd(model))
    loss(model, RANK).backward()
    optimizer.step()
    optimizer.zero_grad()
    model.add_module("3", nn.Linear(8, 8))
    raises(meron.ArgumentError, "3.weight", lambda: mt.AdamW(model))
    mt.shard(model)
    optimizer.add_param_group({"params": model[3].parameters()})
    before = mt.full_param(model[3].weight)
    loss(model, RANK).backward()
    optimizer.step()
    assert not torch.equal(before, mt.full_param(model[3].weight))


def two_optimizers_of_one_unit_are_told() -> None:
    model = mt.shard(mlp())
    params = list(model.parameters())
    first = mt.shard_optimizer(model, torch.optim.SGD(params[:2], lr=0.1))
    second = torch.optim.SGD(params[2:], lr=0.1)
    raises(meron.ArgumentError, "share the unit", lambda: mt.shard_optimizer(model, second))
    assert second.param_groups[0]["params"][0] is params[2], "it was changed"
    first.add_param_group({"params": params[2:]})
    loss(model, RANK).backward()
    first.step()
    parts = mt.shard(mlp(), units=nn.Linear)
    for part in (parts[0], parts[2]):
        mt.shard_optimizer(parts, sgd(part))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))
