# SPDX-License-Identifier: Apache-2.0
"""Learning rates and estimates: numbers over time."""

from __future__ import annotations

import argparse
import logging
import math
from typing import Any

import pytest
import torch

import meron
from meron import zero
from meron.zero import schedulers
from meron.zero.rehearsal import rehearse
from meron.zero.schedulers import make_scheduler


def deepspeed(name: str) -> Any:
    """A module of DeepSpeed's own; skips where it is not installed."""
    return pytest.importorskip(f"deepspeed.runtime.{name}", reason="deepspeed is not installed")


def rates(kind: str, steps: int, lr: float = 1.0, **params: Any) -> list[float]:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=lr)
    schedule = make_scheduler(optimizer, kind, params)
    values = [optimizer.param_groups[0]["lr"]]
    for _ in range(steps):
        schedule.step()
        values.append(optimizer.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [values[-1]]
    return values


def test_warmup() -> None:
    linear = {"warmup_num_steps": 4, "warmup_type": "linear", "warmup_max_lr": 8}
    assert rates("WarmupLR", 6, **linear) == [0, 0, 2, 4, 6, 8, 8]
    log = rates("WarmupLR", 4, warmup_num_steps=4, warmup_max_lr=1)
    assert log == pytest.approx([0, 0, math.log(2) / math.log(4), math.log(3) / math.log(4), 1])
    decay = rates("WarmupDecayLR", 8, total_num_steps=6, **linear)
    assert decay == [0, 0, 2, 4, 6, 8, 4, 0, 0]


def test_a_cosine() -> None:
    values = rates(
        "WarmupCosineLR",
        8,
        lr=10.0,
        total_num_steps=6,
        warmup_num_steps=2,
        warmup_type="linear",
        cos_min_ratio=0.1,
    )
    expected = [0, 0, 5] + [1 + 9 * (1 + math.cos(math.pi * k / 4)) / 2 for k in (1, 2, 3, 4)]
    assert values == pytest.approx([*expected, 1, 1])


def test_a_cycle_that_ends_at_its_top() -> None:
    """The values of DeepSpeed 0.19.8, whose cycle may have no second half."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])
    schedule = make_scheduler(
        optimizer,
        "OneCycle",
        {
            "cycle_min_lr": 0.1,
            "cycle_max_lr": 0.5,
            "decay_lr_rate": 0.5,
            "cycle_first_step_size": 4,
            "cycle_second_step_size": 0,
            "decay_step_size": 2,
        },
    )
    group = optimizer.param_groups[0]
    assert group["betas"] == (0.8, 0.99) and schedule.get_mom() == [(0.9, 0.99)]
    seen = []
    for _ in range(6):
        schedule.step()
        seen.append((group["lr"], group["betas"][0]))
        assert schedule.get_mom() == [group["betas"]]
    expected = [0.2, 0.3, 0.4, 0.1, 0.08, 0.1 / 1.5]
    assert [rate for rate, _ in seen] == pytest.approx(expected)
    assert [mom for _, mom in seen] == pytest.approx([0.875, 0.85, 0.825, 0.9, 0.9, 0.9])


def test_one_cycle() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])
    schedule = make_scheduler(
        optimizer,
        "OneCycle",
        {
            "cycle_min_lr": 1,
            "cycle_max_lr": 3,
            "cycle_first_step_size": 2,
            "decay_step_size": 1,
            "decay_lr_rate": 1,
        },
    )
    group = optimizer.param_groups[0]
    assert group["lr"] == 1 and group["betas"] == (0.8, 0.99)
    seen = []
    for _ in range(7):
        schedule.step()
        seen.append((group["lr"], round(group["betas"][0], 6)))
    assert [lr for lr, _ in seen] == pytest.approx([2, 3, 2, 1, 1 / 2, 1 / 3, 1 / 4])
    assert seen[1][1] == 0.8 and seen[3][1] == 0.9


def test_a_range() -> None:
    options = {"lr_range_test_min_lr": 1.0, "lr_range_test_step_size": 2}
    assert rates("LRRangeTest", 3, **options) == [1, 1.5, 2, 2.5]
    assert rates("LRRangeTest", 3, lr_range_test_staircase=True, **options) == [1, 1, 2, 2]


PARAMS: dict[str, list[dict[str, Any]]] = {
    "WarmupLR": [{"warmup_num_steps": 5}, {"warmup_num_steps": 5, "warmup_max_lr": None}],
    "WarmupDecayLR": [{"warmup_num_steps": 3, "total_num_steps": 9, "warmup_type": "linear"}],
    "WarmupCosineLR": [{"warmup_num_steps": 3, "total_num_steps": 9, "warmup_min_ratio": 0.1}],
    "LRRangeTest": [{"lr_range_test_step_size": 3}],
    "OneCycle": [
        {"cycle_min_lr": 0.1, "cycle_max_lr": 0.5, "cycle_first_step_size": 4},
        {
            "cycle_min_lr": 0.1,
            "cycle_max_lr": 0.5,
            "cycle_first_step_size": 4,
            "cycle_second_step_size": 2,
            "decay_step_size": 2,
            "decay_lr_rate": 0.5,
            "decay_mom_rate": 0.1,
        },
    ],
}


# Attributes of DeepSpeed's schedules that are steps of its computation.
INNER = [
    "optimizer",
    "interval_fn",
    "inverse_log_warm_up",
    "step_ratio",
    "skip_lr_decay",
    "skip_mom_decay",
]


@pytest.mark.parametrize("kind", PARAMS)
def test_rates_and_attributes_of_deepspeed(kind: str) -> None:
    theirs = deepspeed("lr_schedules")
    for params in PARAMS[kind]:
        optimizers = [
            torch.optim.AdamW(
                [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (1.0, 0.5)]
            )
            for _ in range(2)
        ]
        own = make_scheduler(optimizers[0], kind, params)
        other = getattr(theirs, kind)(optimizers[1], **params)
        for _ in range(14):
            for mine, its in zip(*(each.param_groups for each in optimizers)):
                assert mine["lr"] == pytest.approx(its["lr"]), own.last_batch_iteration
                assert mine["betas"] == pytest.approx(its["betas"]), own.last_batch_iteration
            assert own.state_dict() == other.state_dict()
            own.step()
            other.step()
            assert own.get_lr() == pytest.approx(other.get_lr())
            assert own.get_last_lr() == pytest.approx(other.get_last_lr())
        for name, value in vars(other).items():
            if name not in INNER:
                flat = [getattr(own, name), value]
                if name in ("min_moms", "max_moms"):
                    flat = [[beta for betas in each for beta in betas] for each in flat]
                assert flat[0] == pytest.approx(flat[1]), name


def test_the_constants_of_deepspeed() -> None:
    theirs = deepspeed("lr_schedules")
    for name, value in vars(theirs).items():
        if name.isupper() and name not in ("EDGE_VALUE", "MID_VALUE"):
            assert getattr(schedulers, name) == value
    parser = schedulers.add_tuning_arguments(argparse.ArgumentParser())
    for words in (
        [],
        ["--lr_schedule", "Linear"],
        ["--lr_schedule", "OneCycle", "--cycle_max_lr", "0.3"],
        ["--lr_schedule", "WarmupLR", "--warmup_num_steps", "7"],
        ["--lr_schedule", "WarmupCosineLR"],
        ["--lr_schedule", "LRRangeTest"],
    ):
        args = parser.parse_args(words)
        own, other = schedulers.get_config_from_args(args)[0], theirs.get_config_from_args(args)[0]
        assert (own is None) == (other is None)
        if own is None:
            continue
        given = {name: value for name, value in other["params"].items() if value != -1}
        assert own["type"] == other["type"] and given.items() <= own["params"].items()
        assert schedulers.get_lr_from_config(own)[0] == theirs.get_lr_from_config(other)[0]


@pytest.mark.parametrize("kind", PARAMS)
def test_learning_rates_that_are_tensors(kind: str) -> None:
    """They are changed in place, and the schedule's own numbers are not."""
    for params in PARAMS[kind]:
        param = torch.nn.Parameter(torch.ones(1))
        plain = torch.optim.AdamW([param], lr=0.5)
        tensor = torch.optim.AdamW([param], lr=torch.tensor(0.5), foreach=False)
        held = tensor.param_groups[0]["lr"]
        first, second = (make_scheduler(each, kind, params) for each in (plain, tensor))
        for _ in range(14):
            assert tensor.param_groups[0]["lr"] is held
            assert float(held) == pytest.approx(plain.param_groups[0]["lr"])
            assert second.get_last_lr() == pytest.approx(first.get_last_lr())
            first.step()
            second.step()


def test_schedules_of_torch_and_mistakes() -> None:
    assert rates("StepLR", 2, step_size=1, gamma=0.5) == [1, 0.5, 0.25]
    with pytest.raises(meron.ArgumentError, match="unknown scheduler"):
        rates("WarmUp", 1)
    with pytest.raises(meron.ArgumentError, match="warmup_steps"):
        rates("WarmupLR", 1, warmup_steps=3)
    with pytest.raises(meron.ArgumentError, match="log and linear"):
        rates("WarmupLR", 1, warmup_type="cosine")
    with pytest.raises(meron.ArgumentError, match="2 values"):
        rates("WarmupLR", 1, warmup_max_lr=[1, 2])


def test_rejects_invalid_schedules() -> None:
    for name in ("Optimizer", "math", "bisect_right"):
        with pytest.raises(meron.ArgumentError, match="unknown scheduler"):
            rates(name, 1)
    for params in (
        {"kind": "LRRangeTest", "lr_range_test_step_size": 0},
        {"kind": "OneCycle", "cycle_min_lr": 1, "cycle_max_lr": 2, "cycle_first_step_size": 0},
    ):
        with pytest.raises(meron.ArgumentError, match="step_size"):
            rates(params.pop("kind"), 1, **params)


WARMUP = {"warmup_num_steps": 4}
TOTAL = {**WARMUP, "total_num_steps": 8}
RANGE = {"lr_range_test_step_size": 4}
CYCLE = {"cycle_min_lr": 1, "cycle_max_lr": 2, "cycle_first_step_size": 4}


@pytest.mark.parametrize(
    ("kind", "fine", "wrong", "value"),
    [
        ("WarmupLR", WARMUP, "warmup_num_steps", -3),
        ("WarmupLR", WARMUP, "warmup_num_steps", 0),
        ("WarmupLR", WARMUP, "warmup_num_steps", 2.5),
        ("WarmupLR", WARMUP, "warmup_num_steps", "many"),
        ("WarmupLR", WARMUP, "last_batch_iteration", -2),
        ("WarmupLR", WARMUP, "warmup_max_lr", -0.1),
        ("WarmupLR", WARMUP, "warmup_max_lr", math.nan),
        ("WarmupLR", WARMUP, "warmup_max_lr", "fast"),
        ("WarmupDecayLR", TOTAL, "total_num_steps", -8),
        ("WarmupDecayLR", TOTAL, "warmup_num_steps", -1),
        ("WarmupCosineLR", TOTAL, "total_num_steps", 0),
        ("WarmupCosineLR", TOTAL, "warmup_num_steps", -1),
        ("WarmupCosineLR", TOTAL, "cos_min_ratio", -0.1),
        ("LRRangeTest", RANGE, "lr_range_test_step_size", -4),
        ("LRRangeTest", RANGE, "lr_range_test_step_rate", -1),
        ("OneCycle", CYCLE, "cycle_first_step_size", -4),
        ("OneCycle", CYCLE, "cycle_second_step_size", -4),
        ("OneCycle", CYCLE, "cycle_first_stair_count", -1),
        ("OneCycle", CYCLE, "cycle_second_stair_count", -1),
        ("OneCycle", CYCLE, "decay_step_size", -1),
        ("OneCycle", CYCLE, "decay_lr_rate", -1),
        ("OneCycle", CYCLE, "decay_mom_rate", math.inf),
        ("OneCycle", CYCLE, "cycle_min_mom", [0.8, 0.85]),
        ("OneCycle", CYCLE, "cycle_max_mom", []),
        ("OneCycle", CYCLE, "cycle_max_mom", 1.0),
    ],
)
def test_numbers_that_make_no_schedule_are_refused_by_name(
    kind: str, fine: dict[str, Any], wrong: str, value: Any
) -> None:
    rates(kind, 9, **fine)
    with pytest.raises(meron.ArgumentError, match=wrong) as caught:
        rates(kind, 1, **{**fine, wrong: value})
    assert caught.value.subject == wrong


def test_a_schedule_does_not_go_to_negative_steps() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))])
    schedule = make_scheduler(optimizer, "WarmupLR", {"warmup_type": "linear", **WARMUP})
    schedule.step(3)
    rate = optimizer.param_groups[0]["lr"]
    for wrong in (-1, -5, 1.5, None):
        with pytest.raises(meron.ArgumentError, match="last_batch_iteration"):
            if wrong is None:
                schedule.load_state_dict({"last_batch_iteration": -2})
            else:
                schedule.step(wrong)
    assert schedule.last_batch_iteration == 3 and optimizer.param_groups[0]["lr"] == rate


def test_a_cycle_has_the_momentum_of_each_group() -> None:
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(3)]
    optimizer = torch.optim.AdamW([{"params": [param]} for param in params[:2]])
    block = {**CYCLE, "cycle_min_mom": [0.7, 0.8], "cycle_max_mom": (0.8, 0.9)}
    schedule = make_scheduler(optimizer, "OneCycle", block)
    for _ in range(4):
        schedule.step()
    assert [group["betas"][0] for group in optimizer.param_groups] == pytest.approx([0.7, 0.8])
    for _ in range(4):
        schedule.step()
    assert [group["betas"][0] for group in optimizer.param_groups] == pytest.approx([0.8, 0.9])
    optimizer.add_param_group({"params": [params[2]]})
    with pytest.raises(meron.StateError, match="3 param groups"):
        schedule.step()


def test_a_cycle_without_a_momentum_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    make_scheduler(optimizer, "OneCycle", {**CYCLE, "cycle_momentum": False})
    assert not caplog.records
    make_scheduler(optimizer, "OneCycle", CYCLE)
    make_scheduler(optimizer, "WarmupDecayLR", {**WARMUP, "total_num_steps": 3})
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "OneCycle leaves the momentum of SGD as it is",
        "WarmupDecayLR warms up for 4 steps, of 3 in total",
    ]


def test_a_rehearsal_has_no_effects_and_no_warnings(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(2, 2)
    rate = torch.tensor(0.5)
    cycle = {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}
    for optimizer, kind, params in (
        (torch.optim.AdamW(model.parameters(), lr=rate), "WarmupLR", {}),
        (torch.optim.AdamW(model.parameters(), lr=rate), "LambdaLR", {"lr_lambda": lambda _: 0.1}),
        (torch.optim.Adagrad(model.parameters(), lr=rate), "OneCycle", cycle),
    ):
        config = zero.config.parse(
            {"train_batch_size": 1, "scheduler": {"type": kind, "params": params}}
        )
        rehearse(model, config, optimizer, None, None)
        assert optimizer.param_groups[0]["lr"] is rate and rate == 0.5
        assert "initial_lr" not in optimizer.param_groups[0]
    assert not caplog.records and not logging.getLogger("meron.zero").disabled


def test_a_schedule_continues() -> None:
    options = {"warmup_num_steps": 4, "warmup_type": "linear", "warmup_max_lr": 8}
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=4.0)
    schedule = make_scheduler(optimizer, "WarmupLR", {**options, "last_batch_iteration": 2})
    assert schedule.get_last_lr() == [4.0]  # nothing is changed before the next step
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 6
    other = make_scheduler(optimizer, "WarmupLR", options)
    other.load_state_dict(schedule.state_dict())
    assert other.get_last_lr() == other.get_lr() == [6] == [optimizer.param_groups[0]["lr"]]
    other.step()
    assert optimizer.param_groups[0]["lr"] == 8


def test_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    # 1000 params, a layer of 100, 2 nodes with 4 GPUs.
    estimate = zero.estimate_zero3_model_states_mem_needs
    assert estimate(1000, 100, 4, 2, False) == (2400, 400 + 2250, 400)
    assert estimate(1000, 100, 4, 2) == (13500, 400, 400)
    assert estimate(1000, 100, 4, 2, True, False) == (12000, 650, 400)
    assert estimate(1000, 100, 4, 2, True, True, False) == (24000, 400, 400)
    assert zero.estimate_zero2_model_states_mem_needs(1000, 4, 2, False) == (24000, 4250)
    assert zero.estimate_zero2_model_states_mem_needs(1000, 1, 1) == (24000, 2000)
    zero.estimate_zero3_model_states_mem_needs_all_live(torch.nn.Linear(10, 10), 4, 2)
    zero.estimate_zero2_model_states_mem_needs_all_live(torch.nn.Linear(10, 10))
    printed = capsys.readouterr().out
    assert printed.count("offload_param=cpu") == 2 and "ZeRO-2" in printed
