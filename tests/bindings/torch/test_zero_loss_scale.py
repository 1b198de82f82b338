# SPDX-License-Identifier: Apache-2.0
"""The loss scale: its own sequences, DeepSpeed's, and those of torch.amp.GradScaler."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
import torch

import meron
from meron.zero import imported
from meron.zero.compat.loss_scaler import DynamicLossScaler
from meron.zero.config import parse
from meron.zero.config.precision import Autocast, Fp16
from meron.zero.loss_scale import LossScale


def scales(options: Fp16, overflows: str) -> list[float]:
    """The scale after each step; "x" is one that overflows."""
    scale = LossScale(options)
    values = []
    for step in overflows:
        scale.update(step == "x")
        values.append(scale.value)
    return values


def test_the_scale_halves_when_the_hysteresis_is_used_up() -> None:
    options = Fp16(initial_scale_power=4, hysteresis=2, loss_scale_window=100)
    assert scales(options, "x.x.x") == [16, 16, 8, 8, 4]


def test_consecutive_hysteresis_is_whole_after_every_clean_step() -> None:
    options = Fp16(
        initial_scale_power=4, hysteresis=2, loss_scale_window=100, consecutive_hysteresis=True
    )
    assert scales(options, "x.x.xx") == [16, 16, 16, 16, 16, 8]


def test_the_scale_doubles_after_a_window() -> None:
    """At the clean step after so many clean ones."""
    options = Fp16(initial_scale_power=4, hysteresis=1, loss_scale_window=3)
    assert scales(options, "...x....") == [16, 16, 16, 8, 8, 8, 8, 16]
    assert scales(options, ".......") == [16, 16, 16, 32, 32, 32, 64]
    options = Fp16(initial_scale_power=4, hysteresis=2, loss_scale_window=2)
    assert scales(options, "x...x") == [16, 16, 16, 32, 32]  # the hysteresis is reset


def sequences() -> list[str]:
    generator = random.Random(0)
    return ["".join(generator.choices(".x", (4, 1), k=60)) for _ in range(30)]


SCALES = [
    Fp16(
        initial_scale_power=8,
        loss_scale_window=window,
        hysteresis=hysteresis,
        consecutive_hysteresis=consecutive,
        min_loss_scale=floor,
    )
    for window in (1, 2, 5)
    for hysteresis in (1, 2, 3)
    for consecutive in (False, True)
    for floor in (1, 64)
]


def test_the_sequences_of_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip(
        "deepspeed.runtime.fp16.loss_scaler", reason="deepspeed is not installed"
    )
    monkeypatch.setattr(module.dist, "get_rank", lambda: 1)  # who logs nothing
    for options, sequence in itertools.product(SCALES, sequences()):
        scaler = module.DynamicLossScaler(
            init_scale=2.0**options.initial_scale_power,
            scale_window=options.loss_scale_window,
            min_scale=options.min_loss_scale,
            delayed_shift=options.hysteresis,
            consecutive_hysteresis=options.consecutive_hysteresis,
        )
        own = LossScale(options)
        for step in sequence:
            assert own.value == scaler.cur_scale
            try:
                scaler.update_scale(step == "x")
            except Exception:  # DeepSpeed's, at the smallest scale
                with pytest.raises(meron.NonFiniteError):
                    own.update(step == "x")
                break
            own.update(step == "x")


def test_the_sequences_of_a_grad_scaler() -> None:
    """The scale has the sequences of torch's GradScaler, which autocast in fp16 uses."""
    for sequence in sequences():
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=4)
        scaling = Autocast(torch.float16).scaling
        assert scaling is not None and scaling.loss_scale_window == 2000
        own = LossScale(dataclasses.replace(scaling, loss_scale_window=4))
        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=0.0)
        for step in sequence:
            factor = float("inf") if step == "x" else 1.0
            scaler.scale(weight.sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            own.update(step == "x")
            assert scaler.get_scale() == own.value


def test_an_overflow_at_the_floor_is_an_error() -> None:
    scale = LossScale(Fp16(initial_scale_power=2, hysteresis=1, min_loss_scale=3))
    scale.update(True)
    assert scale.value == 3
    with pytest.raises(meron.NonFiniteError, match="smallest loss scale"):
        scale.update(True)


def test_a_fixed_scale_stays() -> None:
    assert scales(Fp16(loss_scale=128), "xxxx....") == [128] * 8
    first = LossScale(Fp16(initial_scale_power=4))
    first.update(True)
    second = LossScale(Fp16())
    second.load_state_dict(first.state_dict())
    assert second.state_dict() == first.state_dict()


def test_the_scale_stays_within_f32_while_all_gradients_are_zero() -> None:
    options = Fp16(initial_scale_power=8, hysteresis=1, loss_scale_window=1)
    scale = LossScale(options)
    for _ in range(1100):
        scale.update(False)
    assert scale.value == 2.0**127 and bool(torch.tensor(1.0).mul(scale.value).isfinite())
    scale.update(True)
    assert scale.value == 2.0**126
    own = DynamicLossScaler(init_scale=3.0, scale_window=1)
    for _ in range(1100):
        own.update_scale(False)
    assert own.cur_scale == 3 * 2.0**126
    scaling = Autocast(torch.float16).scaling
    assert scaling is not None
    mixed = LossScale(dataclasses.replace(scaling, loss_scale_window=1))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=1)
    weight = torch.nn.Parameter(torch.ones(1))
    for _ in range(120):
        mixed.update(False)
        scaler.scale(weight.sum() * 0).backward()
        scaler.step(torch.optim.SGD([weight], lr=0.0))
        scaler.update()
    assert mixed.value == scaler.get_scale() == 2.0**127


@pytest.mark.parametrize("value", [float("inf"), 2.0**500, 2.0**128])
def test_a_resumed_scale_too_large_for_f32_is_reduced_with_words(
    value: float, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"value": value, "left": 1, "clean": 0}
    LossScale.check_state(state)
    scale = LossScale(Fp16())
    with caplog.at_level("WARNING", "meron.zero"):
        scale.load_state_dict(state)
    assert scale.value == 2.0**127 and f"{value:g}" in caplog.text
    other = LossScale(Fp16())
    extra = {imported.KEY: {"loss_scale": value}}
    imported.check(extra, None)
    imported.restore(extra, None, other)
    assert other.value == 2.0**127


def test_refuses_scales_that_are_no_numbers() -> None:
    for value in (float("nan"), 0.0, -1.0, "16", None):
        with pytest.raises(meron.ArgumentError, match="loss scale"):
            LossScale.check_state({"value": value, "left": 1, "clean": 0})
    for value in (1e39, float("inf")):
        with pytest.raises(meron.ArgumentError, match=r"fp16\.loss_scale"):
            parse({"fp16": {"enabled": True, "loss_scale": value}})
