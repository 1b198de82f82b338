# SPDX-License-Identifier: Apache-2.0
"""Optimizers of meron.torch that resume from state dicts."""

from __future__ import annotations

import copy
import io
import itertools
import re
from typing import Any

import pytest
import torch
from rules import (
    RANK,
    RANKS,
    RULES,
    assert_equal,
    build,
    groups_of,
    make,
    make_plain,
    schedule_of,
    sharded,
    train,
    train_plain,
    weights,
)

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2, 3)

LOW = {"mp": mt.MixedPrecision(torch.bfloat16)}
BF16_STATES = {"preset": "zero3", "optimizer": {"dtype": "bf16"}}


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def states_of(optimizer: mt.EngineOptimizer) -> list[torch.Tensor]:
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def same_states(optimizer: mt.EngineOptimizer, other: mt.EngineOptimizer) -> None:
    for value, expected in zip(states_of(optimizer), states_of(other), strict=True):
        assert torch.equal(value, expected)


def test_resumes_with_the_same_bits() -> None:
    for rule in RULES:
        for options in ({}, {"plan": "zero1"}, LOW):
            model = sharded(**options)
            optimizer = make(rule, model)
            schedule = schedule_of(optimizer)
            train(model, optimizer, schedule, range(5))
            values, state = through_a_file([model.state_dict(), optimizer.state_dict()])
            whole = through_a_file(optimizer.full_state_dict())
            counted = schedule.state_dict()
            expected = train(model, optimizer, schedule, range(5, 10))
            for saved in (state, whole):
                again = sharded(**options)
                second = make(rule, again)
                its = schedule_of(second)
                again.load_state_dict(values)
                its.load_state_dict(counted)
                second.load_state_dict(saved)
                assert second.steps == 5
                assert train(again, second, its, range(5, 10)) == expected, (rule, options)
                assert second.steps == 10
                for value, other in zip(weights(again), weights(model), strict=True):
                    assert torch.equal(value, other), rule
                same_states(second, optimizer)


def test_full_states_load_under_another_plan() -> None:
    for rule in RULES:
        model = sharded("zero3")
        optimizer = make(rule, model)
        schedule = schedule_of(optimizer)
        train(model, optimizer, schedule, range(4))
        values, counted = model.state_dict(), schedule.state_dict()
        part, whole = optimizer.state_dict(), optimizer.full_state_dict()
        expected = train(model, optimizer, schedule, range(4, 8))
        for plan in ("zero0", "zero1", "mics(1)"):
            again = sharded(plan)
            second = make(rule, again)
            its = schedule_of(second)
            again.load_state_dict(values)
            its.load_state_dict(counted)
            if RANKS > 1 and rule != "SGD" and plan != "zero1":
                with pytest.raises(meron.ArgumentError, match="unsharded it has"):
                    second.load_state_dict(part)
            second.load_state_dict(whole)
            losses = train(again, second, its, range(4, 8))
            assert losses == expected, (rule, plan)
            for value, other in zip(weights(again), weights(model), strict=True):
                assert torch.equal(value, other), (rule, plan)


def test_optimizer_reloads_its_own_earlier_checkpoints() -> None:
    """Loads the checkpoint of step 3, then that of step 0, before its first step."""
    for rule, plan in itertools.product(RULES, ("zero3", BF16_STATES)):
        model = sharded(plan)
        optimizer = make(rule, model)
        schedule = schedule_of(optimizer)
        kept = []
        for step in (0, 3):
            kept.append(
                copy.deepcopy([model.state_dict(), optimizer.state_dict(), schedule.state_dict()])
            )
            train(model, optimizer, schedule, range(step, step + 3))
        expected = weights(model)
        for step, (values, state, counted) in zip((3, 0), reversed(kept), strict=True):
            model.load_state_dict(values)
            schedule.load_state_dict(counted)
            optimizer.load_state_dict(state)
            assert optimizer.steps == step
            train(model, optimizer, schedule, range(step, 6))
            for value, other in zip(weights(model), expected, strict=True):
                assert torch.equal(value, other), (rule, plan, step)


def test_params_in_no_group_keep_no_states() -> None:
    for rule, first in (("AdamW", 0.0), ("Adagrad", 0.5)):
        model = sharded()
        own, _, _, options, _ = RULES[rule]
        options = {**options, "initial_accumulator_value": first} if first else options
        optimizer = own(groups_of(model, {})[:1], **options)
        bias = model.head.bias
        key = next(iter(optimizer.state_names))
        for again in (False, True):
            train(model, optimizer, steady(optimizer), range(2))
            assert (mt.full_optimizer_state(optimizer, bias, key) == 0).all()
            assert mt.full_optimizer_state(optimizer, bias, "step") == 0
            optimizer.load_state_dict(optimizer.state_dict())
            assert optimizer.steps == 2 + 2 * again
        optimizer.add_param_group(groups_of(model, {})[1])
        assert (mt.full_optimizer_state(optimizer, bias, key) == first).all()


def test_bf16_states_resume_in_a_new_optimizer_of_the_same_units() -> None:
    """The units are the same because their names seed the stochastic rounding."""
    for rule, options in itertools.product(RULES, ({}, LOW)):
        model = sharded(BF16_STATES, **options)
        optimizer = make(rule, model)
        schedule = schedule_of(optimizer)
        train(model, optimizer, schedule, range(3))
        values, states, whole, counted = copy.deepcopy(
            [
                model.state_dict(),
                optimizer.state_dict(),
                optimizer.full_state_dict(),
                schedule.state_dict(),
            ]
        )
        expected = train(model, optimizer, schedule, range(3, 8))
        last, after = weights(model), states_of(optimizer)
        for saved in (states, whole):
            optimizer.release()
            model.load_state_dict(values)
            optimizer = make(rule, model)
            schedule = schedule_of(optimizer)
            schedule.load_state_dict(counted)
            optimizer.load_state_dict(saved)
            assert train(model, optimizer, schedule, range(3, 8)) == expected, (rule, options)
            found = [*weights(model), *states_of(optimizer)]
            for value, other in zip(found, [*last, *after], strict=True):
                assert torch.equal(value, other), (rule, options)


def test_exchanges_checkpoints_with_torchs_optimizer() -> None:
    for rule in RULES:
        model, plain = sharded(), build()
        optimizer, twin = make(rule, model), make_plain(rule, plain)
        schedules = [schedule_of(optimizer), schedule_of(twin)]
        train_plain(plain, twin, schedules[1], range(4))
        model.load_state_dict(plain.state_dict())
        optimizer.load_state_dict(through_a_file(twin.state_dict()))
        schedules[0].load_state_dict(schedules[1].state_dict())
        # The states of other rules only show if there was a step.
        counted = rule in ("AdamW", "Adam", "Adagrad")
        assert optimizer.steps == (4 if counted else 0 if rule == "SGD" else 1)
        train(model, optimizer, schedules[0], range(4, 6))
        train_plain(plain, twin, schedules[1], range(4, 6))
        if rule != "Lion":
            assert_equal(model, plain, 1e-4, 1e-5)
        whole = through_a_file(optimizer.full_state_dict())
        third = build()
        third.load_state_dict(model.state_dict())
        fourth = make_plain(rule, third)
        last = schedule_of(fourth)
        last.load_state_dict(schedules[0].state_dict())
        fourth.load_state_dict(whole)
        train(model, optimizer, schedules[0], range(6, 8))
        train_plain(third, fourth, last, range(6, 8))
        if rule != "Lion":
            assert_equal(model, third, 1e-4, 1e-5)


def test_loads_a_large_step_count() -> None:
    model = sharded()
    optimizer = make("AdamW", model)
    state = optimizer.state_dict()
    state["state"] = {0: {"step": torch.tensor(1e6)}}
    optimizer.load_state_dict(state)
    assert optimizer.steps == optimizer.engine.steps == 10**6
    train(model, optimizer, schedule_of(optimizer), range(1))
    assert int(optimizer.state_dict()["state"][0]["step"]) == 10**6 + 1


def test_int8_states_resume_within_rounding() -> None:
    """A load rounds them again, so the bits differ."""
    plan = {"preset": "zero3", "optimizer": {"dtype": "int8"}}
    for rule in RULES:
        model = sharded(plan)
        optimizer = make(rule, model)
        schedule = schedule_of(optimizer)
        train(model, optimizer, schedule, range(5))
        values, state = model.state_dict(), optimizer.state_dict()
        again = sharded(plan)
        second = make(rule, again)
        its = schedule_of(second)
        again.load_state_dict(values)
        its.load_state_dict(schedule.state_dict())
        second.load_state_dict(state)
        for value, other in zip(states_of(second), states_of(optimizer), strict=True):
            torch.testing.assert_close(value, other, rtol=0.07, atol=1e-3)
        expected = train(model, optimizer, schedule, range(5, 10))
        losses = train(again, second, its, range(5, 10))
        torch.testing.assert_close(losses, expected, rtol=0.02, atol=0.0)


def test_load_names_states_that_do_not_fit() -> None:
    model = sharded()
    optimizer = make("AdamW", model)
    train(model, optimizer, schedule_of(optimizer), range(2))
    state = optimizer.full_state_dict()
    before = copy.deepcopy(optimizer.state_dict())

    def wrong(key: str, value: Any) -> dict[str, Any]:
        return {**state, "state": {**state["state"], 1: {**state["state"][1], key: value}}}

    text = re.escape(".blocks.0.up.weight' has shape (3,)")
    with pytest.raises(meron.ArgumentError, match=text):
        optimizer.load_state_dict(wrong("exp_avg", torch.zeros(3)))
    with pytest.raises(meron.ArgumentError, match="is -1"):
        optimizer.load_state_dict({**state, "state": {0: {"step": torch.tensor(-1.0)}}})
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict({**state, "param_groups": state["param_groups"][:1]})
    assert optimizer.state_dict()["param_groups"] == before["param_groups"]
    assert optimizer.steps == 2
    if RANKS > 1:
        part = {**before["state"][1], "exp_avg": torch.zeros(1)}
        state = {**before["state"], 1: part} if RANK == 1 else before["state"]
        with pytest.raises(
            meron.ArgumentError,
            match=re.escape("on as many ranks" if RANK == 1 else "on ranks [1]"),
        ):
            optimizer.load_state_dict({**before, "state": state})
    train(model, optimizer, schedule_of(optimizer), range(2, 3))


def test_load_keeps_the_count_of_steps_of_each_param() -> None:
    model = sharded()
    optimizer = make("AdamW", model)
    frozen = model.blocks[0].up.weight
    frozen.requires_grad_(False)
    train(model, optimizer, steady(optimizer), range(3))
    frozen.requires_grad_(True)
    train(model, optimizer, steady(optimizer), range(3, 5))
    values = copy.deepcopy(model.state_dict())
    saved = [copy.deepcopy(each()) for each in (optimizer.state_dict, optimizer.full_state_dict)]
    expected = train(model, optimizer, steady(optimizer), range(5, 8))
    for state in saved:
        counts = sorted({float(each["step"]) for each in state["state"].values()})
        assert counts == [2.0, 5.0]
        optimizer.release()
        model.load_state_dict(values)
        optimizer = make("AdamW", model)
        optimizer.load_state_dict(state)
        assert mt.full_optimizer_state(optimizer, frozen, "step") == 2
        assert train(model, optimizer, steady(optimizer), range(5, 8)) == expected


def steady(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)


def test_full_states_are_read_and_set_by_name() -> None:
    for rule, keys in (
        ("Adam", ("exp_avg", "exp_avg_sq")),
        ("Adagrad", ("sum",)),
        ("Lion", ("exp_avg",)),
        ("momentum", ("momentum_buffer",)),
        ("SGD", ()),
    ):
        model = sharded()
        optimizer = make(rule, model)
        assert optimizer.state_dict()["state"] == {}
        train(model, optimizer, schedule_of(optimizer), range(2))
        whole = optimizer.full_state_dict()["state"]
        weight = optimizer.param_groups[0]["params"][1]
        assert set(whole[1]) == {"step", *keys}
        for key in keys:
            state = mt.full_optimizer_state(optimizer, weight, key)
            assert torch.equal(state, whole[1][key]) and state.shape == (22, 11)
            mt.set_full_optimizer_state(optimizer, weight, key, state * 2)
            assert torch.equal(mt.full_optimizer_state(optimizer, weight, key), state * 2)
        assert mt.full_optimizer_state(optimizer, weight, "step") == 2
        for key in {"exp_avg", "exp_avg_sq", "sum", "momentum_buffer"} - set(keys):
            assert mt.full_optimizer_state(optimizer, weight, key) is None
