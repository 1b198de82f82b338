# SPDX-License-Identifier: Apache-2.0
"""Every rule on shards beside one process: bits of the engine's own, and what torch's rule does."""

from __future__ import annotations

import sys

import torch
from rules import (
    EXACT,
    RANK,
    RANKS,
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
from model import raises, run_cases

STEPS = range(12)


def case_one_process_without_torch_has_the_same_bits() -> None:
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


def case_torchs_rule_learns_the_same() -> None:
    for rule in RULES:
        model, plain = sharded(), build()
        optimizer, twin = make(rule, model), make_plain(rule, plain)
        losses = train(model, optimizer, schedule_of(optimizer), STEPS)
        expected = train_plain(plain, twin, schedule_of(twin), STEPS)
        # Lion takes the sign of a sum, which may be one of rounding.
        tolerance = 1e-3 if rule == "Lion" else 1e-5
        torch.testing.assert_close(losses, expected, rtol=tolerance, atol=0.0, msg=rule)
        if rule != "Lion":
            assert_equal(model, plain, 1e-4, 1e-5)
        for group, other in zip(optimizer.param_groups, twin.param_groups, strict=True):
            for key, value in other.items():
                if key not in ("params", "decoupled_weight_decay"):
                    assert group[key] == value, (rule, key)


def case_replicas_of_a_mesh() -> None:
    if RANKS != 4:
        return
    for rule in RULES:
        for plan in ("mics(2)", "hpz(2)"):
            model, plain = sharded(plan), build()
            optimizer, twin = make(rule, model), make_plain(rule, plain)
            losses = train(model, optimizer, schedule_of(optimizer), STEPS)
            expected = train_plain(plain, twin, schedule_of(twin), STEPS)
            tolerance = 1e-3 if rule == "Lion" else 1e-5
            torch.testing.assert_close(losses, expected, rtol=tolerance, atol=0.0, msg=rule)
            # Replicas own the same elements: each counts once.
            whole = optimizer.full_state_dict()["state"]
            again = sharded(plan)
            second = make(rule, again)
            again.load_state_dict(model.state_dict())
            second.load_state_dict(optimizer.state_dict())
            for index, state in second.full_state_dict()["state"].items():
                for key, value in state.items():
                    assert torch.equal(value, whole[index][key]), (rule, plan, key)


def case_a_cycled_momentum_is_taken_over() -> None:
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


def case_the_norm_is_of_all_groups() -> None:
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


def case_options_of_adagrad() -> None:
    model, plain = sharded(), build()
    options = {"lr": 0.1, "lr_decay": 0.3, "initial_accumulator_value": 0.25, "eps": 1e-6}
    optimizer = mt.Adagrad(model, **options)
    twin = torch.optim.Adagrad(plain.parameters(), **options)
    train(model, optimizer, schedule_of_one(optimizer), STEPS)
    train_plain(plain, twin, schedule_of_one(twin), STEPS)
    assert_equal(model, plain, 1e-4, 1e-5)
    # Of a group that comes late too, and of params that wait for one.
    model, plain = sharded(), build()
    half, others = list(model.parameters())[::2], list(model.parameters())[1::2]
    optimizer = mt.Adagrad(half, **options)
    optimizer.add_param_group({"params": others[:2], "initial_accumulator_value": 0.5})
    states = optimizer.engine
    for params, value in ((half, 0.25), (others[:2], 0.5), (others[2:], 0.25)):
        for param in params:
            unit, i = param._meron
            assert (states.read_state(unit.handles[i], "exp_avg_sq") == value).all()


def schedule_of_one(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)


def case_16_bit_params_follow_f32_values() -> None:
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


def case_a_bad_gradient_changes_nothing() -> None:
    for rule in RULES:
        model = sharded()
        optimizer = make(rule, model)
        train(model, optimizer, schedule_of(optimizer), range(2))
        before = [mt.full_param(param) for param in model.parameters()]
        (loss_of(model, 2) * (float("nan") if RANK == 0 else 1.0)).backward()
        with raises(meron.NonFiniteError, "norm"):
            optimizer.step()
        assert optimizer.steps == 2
        for param, value in zip(model.parameters(), before):
            assert torch.equal(mt.full_param(param), value)


if __name__ == "__main__":
    run_cases(sys.modules[__name__])
