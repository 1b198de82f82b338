# SPDX-License-Identifier: Apache-2.0
"""Training by an engine against plain torch, and misuse of an engine."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt
from meron import zero
from model import (
    RANK,
    RANKS,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    on_device,
    plain_step,
    train,
    twins,
)

pytestmark = [pytest.mark.ranks(1, 2, 3), on_device(2)]


def test_each_stage_accumulates_and_clips() -> None:
    for stage in range(4):
        for own in (False, True):
            model, plain = twins()
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": not own}}
            engine, optimizer, _, _ = zero.initialize(
                model=model,
                config=config(
                    stage, optimizer=block, gradient_accumulation_steps=2, gradient_clipping=0.3
                ),
            )
            decay = 0.0 if own else 0.01  # torch_adam has PyTorch's default
            expected = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=decay)
            train(engine, plain, expected, 4, clip=0.3)
            assert_equal_weights(model, plain, 2e-5)
            assert engine.global_steps == 4 and engine.micro_steps == 8
            assert engine.train_batch_size() == 4 * RANKS
            assert type(optimizer).__module__.startswith("meron") == own


def test_plain_backward_equals_engine_backward() -> None:
    weights = []
    for by_hand in (False, True):
        model, _ = twins()
        engine, _, _, _ = zero.initialize(model=model, config=config(gradient_accumulation_steps=2))
        generator = torch.Generator().manual_seed(1)
        for _ in range(4):
            x, y = data(generator)
            loss = loss_of(engine, x[RANK], y[RANK])
            if by_hand:
                loss.backward()
            else:
                assert torch.equal(engine.backward(loss), loss.detach() / 2)
            engine.step()
        weights.append(zero.safe_get_full_fp32_param(model.embed.weight))
    assert torch.equal(*weights)


def test_no_sync_defers_the_reduction() -> None:
    for stage in (1, 2, 3):
        model, plain = twins()
        engine, _, _, _ = zero.initialize(model=model, config=config(stage))
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        batches = [data(generator) for _ in range(2)]
        with engine.no_sync():
            x, y = batches[0]
            engine.backward(loss_of(engine, x[RANK], y[RANK]) / 2)
            with pytest.raises(meron.StateError, match="no_sync"):
                engine.step()
            with pytest.raises(meron.StateError, match="no_sync"), engine.no_sync():
                pass
        x, y = batches[1]
        engine.backward(loss_of(engine, x[RANK], y[RANK]) / 2)
        engine.step()
        plain_step(plain, optimizer, batches)
        assert_equal_weights(model, plain, 1e-6)


def test_trains_two_engines_together() -> None:
    first, plain_first = twins()
    second, plain_second = twins(size=8)
    one = zero.initialize(model=first, config=config())[0]
    two = zero.initialize(model=second, config=config(gradient_accumulation_steps=2))[0]
    generator = torch.Generator().manual_seed(1)
    batches = [data(generator) for _ in range(2)]
    for x, y in batches:
        losses = loss_of(one, x[RANK], y[RANK]), loss_of(two, x[RANK], y[RANK])
        one.backward(losses[0])
        two.backward(losses[1])
        one.step()
        two.step()
    optimizer = torch.optim.SGD(plain_first.parameters(), lr=0.1)
    for batch in batches:
        plain_step(plain_first, optimizer, [batch])
    plain_step(plain_second, torch.optim.SGD(plain_second.parameters(), lr=0.1), batches)
    assert_equal_weights(first, plain_first, 1e-6)
    assert_equal_weights(second, plain_second, 1e-6)


def test_bf16_keeps_f32_master_values() -> None:
    for kind in ("SGD", "AdamW"):
        model, plain = twins()
        engine, _, _, _ = zero.initialize(
            model=model,
            config=config(bf16={"enabled": True}, optimizer={"type": kind, "params": {"lr": 1e-4}}),
        )
        assert model.embed.weight.dtype == torch.bfloat16
        # bf16 would round these steps away.
        before = zero.safe_get_full_fp32_param(model.embed.weight)
        assert torch.equal(before, plain.embed.weight)
        generator = torch.Generator().manual_seed(1)
        batches = [data(generator) for _ in range(3)]
        for batch in batches:
            engine_step(engine, [batch])
        after = zero.safe_get_full_fp32_param(model.embed.weight)
        assert 0 < float((after - before).abs().max()) < 1e-3
        whole = zero.safe_get_full_fp32_param(model.blocks[0].up.weight)
        with zero.GatheredParameters(model.blocks[0].up.weight):
            assert torch.equal(whole.bfloat16(), model.blocks[0].up.weight)
        # A write reaches the f32 values.
        zero.safe_set_full_fp32_param(model.shift, torch.full((12,), 0.1))
        engine_step(engine, batches[:1])
        moved = zero.safe_get_full_fp32_param(model.shift) - 0.1
        assert float(moved.abs().max()) < 1e-3


def test_fp16_scales_the_loss_and_skips_overflows() -> None:
    for kind in ("SGD", "AdamW"):
        model, plain = twins()
        fp16 = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 4, "hysteresis": 1}
        block = {"type": kind, "params": {"lr": 0.01}}
        engine, _, _, _ = zero.initialize(
            model=model,
            config=config(
                fp16=fp16,
                optimizer=block,
                scheduler={"type": "LambdaLR", "params": {"lr_lambda": lambda n: 1 / (n + 1)}},
            ),
        )
        generator = torch.Generator().manual_seed(1)
        batch = data(generator)
        x, y = batch[0][RANK], batch[1][RANK]
        engine_step(engine, [batch])
        assert engine.was_step_applied() and engine.get_lr()[0] == 0.005
        expected = torch.optim.SGD(plain.parameters(), lr=0.01)
        plain_step(plain, expected, [batch])
        if kind == "SGD":
            assert_equal_weights(model, plain, 1e-3)
        before = zero.safe_get_full_fp32_param(model.embed.weight)
        states = zero.safe_get_full_optimizer_state(model.embed.weight, "exp_avg")
        # Only the last rank overflows: none may step.
        loss = loss_of(engine, x, y) * (float("inf") if RANK == RANKS - 1 else 1.0)
        engine.backward(loss)
        engine.step()
        assert engine.skipped_steps == 1 and not engine.was_step_applied()
        assert engine.cur_scale == 128 and engine.get_lr()[0] == 0.005
        assert torch.equal(before, zero.safe_get_full_fp32_param(model.embed.weight))
        if states is not None:
            again = zero.safe_get_full_optimizer_state(model.embed.weight, "exp_avg")
            assert torch.equal(states, again)
        for _ in range(5):  # one clean step more than the window
            engine_step(engine, [batch])
        assert engine.cur_scale == 256 and engine.skipped_steps == 1
        loss_of(engine, x, y).backward()
        with pytest.raises(meron.StateError, match="not scaled"):
            engine.step()
        engine.scale(loss_of(engine, x, y)).backward()
        engine.step()
        assert engine.was_step_applied()


def test_an_infinity_on_another_rank_fails_the_step() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    x, y = data(torch.Generator().manual_seed(1))
    factor = float("inf") if RANK == 0 else 1.0
    engine.backward(loss_of(engine, x[RANK], y[RANK]) * factor)
    with pytest.raises(meron.NonFiniteError, match="norm"):
        engine.step()
    assert_equal_weights(model, plain, 0.0)
    engine_step(engine, [(x, y)])


def test_rejects_misuse_of_an_engine() -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config())[0]
    x, y = data(torch.Generator().manual_seed(1))
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    engine(x[RANK])
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    loss = loss_of(engine, x[RANK], y[RANK])
    engine.backward(loss, retain_graph=True)
    with pytest.raises(meron.StateError, match="backward ran already"):
        engine.backward(loss)
    engine.step()
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    with pytest.raises(meron.ArgumentError, match="scalar"):
        engine.backward(engine(x[RANK]))
    with pytest.raises(meron.StateError, match="has an engine already"):
        zero.initialize(model=engine, config=config())
    engine.destroy()
    engine_step(zero.initialize(model=model, config=config())[0], [(x, y)])
    with pytest.raises(meron.ArgumentError, match="no config"):
        zero.initialize(model=torch.nn.Linear(2, 2))
    with pytest.raises(meron.ArgumentError, match="no params"):
        zero.initialize(model=torch.nn.ReLU(), config=config())
    with pytest.raises(meron.ArgumentError, match=re.escape("torch.nn.Module")):
        zero.initialize(model=None, config=config())
    with pytest.raises(meron.ArgumentError, match="train_batch_size"):
        zero.initialize(model=torch.nn.Linear(2, 2), config=config(train_batch_size=14 * RANKS + 1))


def test_uses_the_callers_optimizer_and_scheduler() -> None:
    model, plain = twins()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    dataset = [torch.full((5,), i) for i in range(8)]
    engine, same, loader, schedule = zero.initialize(
        model=model,
        optimizer=optimizer,
        lr_scheduler=scheduler,
        training_data=dataset,
        config=config(),
    )
    assert same is optimizer and schedule is scheduler
    assert len(loader) == -(-8 // RANKS // 2) and next(iter(loader)).shape == (2, 5)
    expected = torch.optim.Adam(plain.parameters(), lr=0.01)
    expected_schedule = torch.optim.lr_scheduler.StepLR(expected, 2, 0.5)
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        batch = data(generator)
        engine_step(engine, [batch])
        plain_step(plain, expected, [batch])
        expected_schedule.step()
    assert engine.get_lr() == expected_schedule.get_last_lr()
    assert_equal_weights(model, plain, 1e-5)


def test_makes_an_optimizer_from_a_function_and_param_groups() -> None:
    def make(params: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=0.1, momentum=0.9)

    def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
        decay = [p for p in model.parameters() if p.dim() > 1]
        return [
            {"params": decay, "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() < 2], "lr": 0.01},
        ]

    model, plain = twins()
    engine = zero.initialize(
        model=model, optimizer=make, model_parameters=groups(model), config=config(2)
    )[0]
    train(engine, plain, make(groups(plain)), 3)
    assert_equal_weights(model, plain, 1e-5)


def test_trains_with_frozen_params() -> None:
    model, plain = twins()
    for twin in (model, plain):
        twin.blocks[0].requires_grad_(False)
    engine = zero.initialize(model=model, config=config())[0]
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 2)
    assert_equal_weights(model, plain, 1e-6)


def test_keeps_names_of_params() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    assert [name for name, _ in engine.named_parameters()] == [
        name for name, _ in plain.named_parameters()
    ]


class Rotary(torch.nn.Module):
    """Its frequencies need f32: bf16 would turn positions by whole radians."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert self.inv_freq.dtype == self.wanted
        return self.norm(self.proj(x)) * self.inv_freq.cos().to(x.dtype)


def test_keeps_f32_buffers_in_16_bit_models() -> None:
    for dtype, block in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        for asked, wanted in (
            (None, torch.float32),
            ("fp32", torch.float32),
            (block, dtype),
        ):
            model = Rotary()
            model.wanted, before = wanted, model.inv_freq.clone()
            settings = config(**{block: {"enabled": True}})
            if asked is not None:
                settings["data_types"] = {"buffer_dtype": asked}
            engine = zero.initialize(model=model, config=settings)[0]
            assert torch.equal(model.inv_freq, before.to(wanted))
            if asked != "fp32":  # torch's batch norm needs the dtype of params
                engine.backward(engine(torch.ones(3, 4, dtype=dtype)).float().sum())
                engine.step()
        for asked, wanted in ((None, torch.float32), (dtype, dtype)):
            model = Rotary()
            model.wanted = wanted
            mt.shard(model, mp=mt.MixedPrecision(dtype, buffer_dtype=asked))
            model(torch.ones(3, 4)).float().sum().backward()
            assert model.inv_freq.dtype == wanted and model.norm.running_var.dtype == dtype
            mt.AdamW(model).zero_grad()
