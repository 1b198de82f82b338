# SPDX-License-Identifier: Apache-2.0
"""Each rule on shards: the bits of the engine without torch, and the values of torch's rule."""

from __future__ import annotations

import pytest
import torch
from rules import (
    EXACT,
    RANK,
    RULES,
    WithoutTorch,
    assert_equal,
    backward_of_all,
    build,
    loss_of,
    make,
    make_plain,
    schedule_of,
    sharded,
    train,
    train_plain,
)

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2, 3, 4)

STEPS = range(12)


def test_ranks_have_the_bits_of_one_process_without_torch() -> None:
    for rule in RULES:
        for plan in ("zero0", "zero1", "zero2", "zero3"):
            model, plain = sharded(plan), build()
            optimizer = make(rule, model)
            twin = WithoutTorch(rule, plain)
            losses = train(model, optimizer, schedule_of(optimizer), STEPS)
            expected = twin.train(STEPS)
            if EXACT:
                assert losses == expected, (rule, plan)
            assert_equal(model, plain, *((0.0, 0.0) if EXACT else (1e-4, 1e-5)))
            assert losses[-1] < losses[0], "it did not learn"


def test_rule_learns_as_torchs_rule_on_one_process() -> None:
    for rule in RULES:
        model, plain = sharded(), build()
        optimizer, twin = make(rule, model), make_plain(rule, plain)
        losses = train(model, optimizer, schedule_of(optimizer), STEPS)
        expected = train_plain(plain, twin, schedule_of(twin), STEPS)
        # Lion takes the sign of a sum, which rounding may change.
        tolerance = 1e-3 if rule == "Lion" else 1e-5
        torch.testing.assert_close(losses, expected, rtol=tolerance, atol=0.0, msg=rule)
        if rule != "Lion":
            assert_equal(model, plain, 1e-4, 1e-5)
        for group, other in zip(optimizer.param_groups, twin.param_groups, strict=True):
            for key, value in other.items():
                if key not in ("params", "decoupled_weight_decay"):
                    assert group[key] == value, (rule, key)


@pytest.mark.ranks(4)
def test_rule_learns_as_torchs_rule_over_a_mesh() -> None:
    for rule in RULES:
        for plan in ("mics(2)", "hpz(2)"):
            model, plain = sharded(plan), build()
            optimizer, twin = make(rule, model), make_plain(rule, plain)
            losses = train(model, optimizer, schedule_of(optimizer), STEPS)
            expected = train_plain(plain, twin, schedule_of(twin), STEPS)
            tolerance = 1e-3 if rule == "Lion" else 1e-5
            torch.testing.assert_close(losses, expected, rtol=tolerance, atol=0.0, msg=rule)
            # Replicas own the same elements; each element appears once.
            whole = optimizer.full_state_dict()["state"]
            again = sharded(plan)
            second = make(rule, again)
            again.load_state_dict(model.state_dict())
            second.load_state_dict(optimizer.state_dict())
            for index, state in second.full_state_dict()["state"].items():
                for key, value in state.items():
                    assert torch.equal(value, whole[index][key]), (rule, plan, key)


def test_step_uses_the_momentum_that_a_schedule_sets() -> None:
    for rule in ("AdamW", "Adam", "momentum"):
        model, plain = sharded(), build()
        optimizer, twin = make(rule, model), make_plain(rule, plain)
        cycles = [
            torch.optim.lr_scheduler.OneCycleLR(each, [0.02, 0.01], total_steps=20)
            for each in (optimizer, twin)
        ]
        train(model, optimizer, cycles[0], STEPS)
        train_plain(plain, twin, cycles[1], STEPS)
        assert_equal(model, plain, 1e-4, 1e-5)


def test_clips_by_the_norm_over_all_param_groups() -> None:
    model, plain = sharded(), build()
    optimizer = make("SGD", model, max_norm=0.5)
    twin = make_plain("SGD", plain)
    for step in STEPS:
        loss_of(model, step).backward()
        optimizer.step()
        backward_of_all(plain, step)
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        torch.testing.assert_close(optimizer.grad_norm, float(norm), rtol=1e-5, atol=0.0)
        twin.step()
    assert_equal(model, plain, 1e-4, 1e-5)


def test_adagrad_applies_lr_decay_and_initial_accumulator() -> None:
    model, plain = sharded(), build()
    options = {"lr": 0.1, "lr_decay": 0.3, "initial_accumulator_value": 0.25, "eps": 1e-6}
    optimizer = mt.Adagrad(model, **options)
    twin = torch.optim.Adagrad(plain.parameters(), **options)
    train(model, optimizer, schedule_of_one(optimizer), STEPS)
    train_plain(plain, twin, schedule_of_one(twin), STEPS)
    assert_equal(model, plain, 1e-4, 1e-5)
    # A later group has its own initial value.
    model, plain = sharded(), build()
    half, others = list(model.parameters())[::2], list(model.parameters())[1::2]
    optimizer = mt.Adagrad(half, **options)
    optimizer.add_param_group({"params": others[:2], "initial_accumulator_value": 0.5})
    states = optimizer.engine
    for params, value in ((half, 0.25), (others[:2], 0.5), (others[2:], 0.0)):
        for param in params:
            unit, i = param._meron
            assert (states.read_state(unit.handles[i], "exp_avg_sq") == value).all()


def schedule_of_one(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


def test_16_bit_params_follow_f32_master_values() -> None:
    for rule in RULES:
        model, plain = sharded(mp=mt.MixedPrecision(torch.bfloat16)), build()
        optimizer, twin = make(rule, model), make_plain(rule, plain)
        train(model, optimizer, schedule_of(optimizer), STEPS)
        train_plain(plain, twin, schedule_of(twin), STEPS)
        if rule != "Lion":
            tolerance = 0.2 if rule in ("Adam", "AdamW", "Adagrad") else 2e-2
            assert_equal(model, plain, tolerance, tolerance)
        for name, state in optimizer.state_dict()["state"].items():
            assert state["master"].dtype == torch.float32, name


def test_step_with_a_non_finite_gradient_changes_nothing() -> None:
    for rule in RULES:
        model = sharded()
        optimizer = make(rule, model)
        train(model, optimizer, schedule_of(optimizer), range(2))
        before = [mt.full_param(param) for param in model.parameters()]
        (loss_of(model, 2) * (float("nan") if RANK == 0 else 1.0)).backward()
        with pytest.raises(meron.NonFiniteError, match="norm"):
            optimizer.step()
        assert optimizer.steps == 2
        for param, value in zip(model.parameters(), before):
            assert torch.equal(mt.full_param(param), value)
