# SPDX-License-Identifier: Apache-2.0
"""safe_get and safe_set: values, gradients and states of single params."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import meron
from meron import zero
from model import RANK, config, data, engine_step, loss_of, on_device, plain_step, twins

pytestmark = [pytest.mark.ranks(3), on_device(3)]


def test_accepts_moves_that_change_nothing() -> None:
    with zero.Init():
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert model.to("cpu").float() is model
    with pytest.raises(meron.StateError, match="cannot be moved"):
        model.to(torch.bfloat16)
    with pytest.raises(meron.StateError, match="cannot be moved"):
        model.to_empty(device="cpu")


def test_reads_and_writes_values_gradients_and_states() -> None:
    for stage in (1, 2, 3):
        for kind in ("AdamW", "torch"):
            model, plain = twins()
            block = {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": kind == "torch"}}
            engine = zero.initialize(model=model, config=config(stage, optimizer=block))[0]
            expected = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
            generator = torch.Generator().manual_seed(1)
            x, y = data(generator)
            weight, twin = model.blocks[1].up.weight, plain.blocks[1].up.weight
            assert zero.safe_get_full_optimizer_state(weight, "nonsense") is None
            engine.backward(loss_of(engine, x[RANK], y[RANK]))
            gradient = zero.safe_get_full_grad(weight)
            local = zero.safe_get_local_grad(weight)
            zero.safe_set_full_grad(model.shift, torch.zeros(12))
            engine.step()
            plain_step(plain, expected, [(x, y)])
            assert torch.allclose(gradient, twin.grad, atol=1e-6)
            unit, i = weight._meron
            shard_range = unit.shard_range(i)
            mine = gradient.view(-1)[shard_range.start : shard_range.stop]
            assert torch.equal(local, mine)
            assert float(zero.safe_get_full_fp32_param(model.shift).abs().max()) == 0.0
            for key in ("exp_avg", "exp_avg_sq"):
                state = zero.safe_get_full_optimizer_state(weight, key)
                assert torch.allclose(state, expected.state[twin][key], atol=1e-6), key
                zero.safe_set_full_optimizer_state(weight, state * 2, key)
                part = zero.safe_get_local_optimizer_state(weight, key)
                assert torch.equal(part, state.view(-1)[shard_range.start : shard_range.stop] * 2)
                zero.safe_set_local_optimizer_state(weight, part / 2, key)
                assert torch.equal(zero.safe_get_full_optimizer_state(weight, key), state)
            # The number of ranks does not divide these sizes.
            zero.safe_set_full_fp32_param(weight, torch.arange(288.0).view(24, 12))
            part = zero.safe_get_local_fp32_param(weight)
            assert torch.equal(part, torch.arange(288.0)[shard_range.start : shard_range.stop])
            zero.safe_set_local_fp32_param(weight, part + 1)
            whole = zero.safe_get_full_fp32_param(weight)
            assert torch.equal(whole.view(-1), torch.arange(288.0) + 1)
            engine.backward(loss_of(engine, x[RANK], y[RANK]))
            with pytest.raises(meron.ArgumentError, match="elements"):
                zero.safe_set_local_grad(weight, torch.zeros(len(shard_range) + 1))
            zero.safe_update_full_grad_vectorized([weight], lambda g, p: torch.ones_like(p))
            assert torch.equal(zero.safe_get_full_grad(weight), torch.ones(24, 12))
            engine.step()
    assert zero.safe_get_full_grad(nn.Parameter(torch.ones(2))) is None


def test_rejects_reads_of_gradients_during_an_accumulation() -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config(gradient_accumulation_steps=2))[0]
    batch = data(torch.Generator().manual_seed(1))
    engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]))
    with pytest.raises(meron.StateError, match="not complete"):
        zero.safe_get_full_grad(model.shift)
    engine.step()
    engine_step(engine, [batch])


def test_each_rank_has_all_values_at_stage_0() -> None:
    for kind in ("AdamW", "SGD"):
        model, _ = twins()
        block = {"type": kind, "params": {"lr": 0.1}}
        engine = zero.initialize(model=model, config=config(0, optimizer=block))[0]
        x, y = data(torch.Generator().manual_seed(1))
        engine.backward(loss_of(engine, x[RANK], y[RANK]))
        weight = model.blocks[0].up.weight
        part = zero.safe_get_local_grad(weight)
        assert torch.equal(part, zero.safe_get_full_grad(weight).view(-1))
        zero.safe_set_local_grad(weight, torch.zeros(288))
        zero.safe_set_local_fp32_param(weight, torch.arange(288.0))
        engine.step()
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), torch.arange(288.0))
        assert torch.equal(zero.safe_get_local_fp32_param(weight), torch.arange(288.0))


def test_reads_and_writes_f32_values_of_16_bit_params() -> None:
    for kind in ("AdamW", "SGD"):
        model, _ = twins()
        block = {"type": kind, "params": {"lr": 0.0}}
        settings = config(bf16={"enabled": True}, optimizer=block)
        engine = zero.initialize(model=model, config=settings)[0]
        weight = model.blocks[0].up.weight
        unit, i = weight._meron
        values = torch.arange(288.0) + 1 / 3
        shard_range = unit.shard_range(i)
        zero.safe_set_local_fp32_param(
            weight, values[shard_range.start : shard_range.stop].double()
        )
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), values)
        engine_step(engine, [data(torch.Generator().manual_seed(1))])
        assert torch.equal(zero.safe_get_full_fp32_param(weight).view(-1), values)
        assert torch.equal(
            weight.ds_tensor, values[shard_range.start : shard_range.stop].bfloat16()
        )
        zero.safe_set_full_fp32_param(weight, torch.ones(24, 12, dtype=torch.int64))
        assert torch.equal(zero.safe_get_full_fp32_param(weight), torch.ones(24, 12))


def test_rejects_writes_to_a_shard() -> None:
    for stage in (1, 3):
        model, _ = twins()
        zero.initialize(model=model, config=config(stage))
        weight = model.blocks[0].up.weight
        before = zero.safe_get_full_fp32_param(weight)
        for write in (
            lambda part: part.fill_(1.0),
            lambda part: part.data.copy_(torch.zeros_like(part)),
            lambda part: part.view(-1)[:1].add_(1),
            lambda part: setattr(part, "data", torch.zeros(3)),
        ):
            with pytest.raises(meron.StateError, match=re.escape("up.weight' is sharded: a write")):
                write(weight.ds_tensor)
        assert torch.equal(zero.safe_get_full_fp32_param(weight), before)
        with (
            zero.GatheredParameters(weight),
            pytest.raises(meron.StateError, match="safe_set_local_fp32_param"),
        ):
            weight.ds_tensor.zero_()


def test_rejects_writes_of_unsupported_states() -> None:
    for kind in ("AdamW", "torch"):
        model, _ = twins()
        block = {"type": "AdamW", "params": {"torch_adam": kind == "torch"}}
        engine = zero.initialize(model=model, config=config(optimizer=block))[0]
        engine_step(engine, [data(torch.Generator().manual_seed(1))])
        weight = model.blocks[0].up.weight
        assert float(zero.safe_get_full_optimizer_state(weight, "step")) == 1
        for write in (zero.safe_set_full_optimizer_state, zero.safe_set_local_optimizer_state):
            if kind == "torch":
                write(weight, torch.tensor(5.0), "step")
                assert float(zero.safe_get_local_optimizer_state(weight, "step")) == 5
            else:
                with pytest.raises(meron.UnsupportedError, match="step"):
                    write(weight, torch.tensor(5.0), "step")
            with pytest.raises(meron.ArgumentError, match="weight"):
                write(weight, torch.zeros(3), "exp_avg")
            with pytest.raises(meron.ArgumentError, match="'nonsense'"):
                write(weight, torch.zeros(24, 12), "nonsense")


def test_misuse_names_the_param() -> None:
    outside = nn.Parameter(torch.ones(2))
    for get in (zero.safe_get_full_optimizer_state, zero.safe_get_local_optimizer_state):
        assert get(outside, "exp_avg") is None
    assert zero.safe_get_local_fp32_param(outside) is None
    assert zero.safe_get_local_grad(outside) is None
    for write in (zero.safe_set_full_fp32_param, zero.safe_set_local_fp32_param):
        with pytest.raises(meron.ArgumentError, match="no sharded param"):
            write(outside, torch.ones(2))
    with zero.Init():
        layer = nn.Linear(2, 3)
    with pytest.raises(meron.StateError, match="weight has no optimizer"):
        zero.safe_get_full_optimizer_state(layer.weight, "exp_avg")
    with pytest.raises(meron.ArgumentError, match=re.escape("(3, 2)")):
        zero.safe_set_full_fp32_param(layer.weight, torch.ones(2, 3))
    engine = zero.initialize(model=layer, config=config())[0]
    with pytest.raises(meron.StateError, match="has no gradient"):
        zero.safe_set_local_grad(
            layer.weight, torch.zeros(len(layer.weight._meron[0].shard_range(0)))
        )
    assert zero.safe_get_full_grad(layer.weight) is None
    engine.backward(engine(torch.ones(2)).sum())
    with pytest.raises(meron.ArgumentError, match=re.escape("(3, 2)")):
        zero.safe_set_full_grad(layer.weight, torch.ones(2, 3))
    with pytest.raises(meron.ArgumentError, match=re.escape("(3, 2)")):
        zero.safe_update_full_grad_vectorized([layer.weight], lambda g, p: g.sum(0))
    engine.step()
