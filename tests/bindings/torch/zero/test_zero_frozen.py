# SPDX-License-Identifier: Apache-2.0
"""Frozen and trained params in one module (BitFit, LoRA): training, and reads of their values."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from model import (
    RANK,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    plain_step,
)

pytestmark = pytest.mark.ranks(2)


class Adapted(nn.Linear):
    """LoRA, with all its params in one module."""

    def __init__(self, size: int, more: int) -> None:
        super().__init__(size, more)
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, size) / 8)
        self.up = nn.Parameter(torch.randn(more, 2) / 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + x @ self.down.t() @ self.up.t()


def bitfit() -> Model:
    model = Model()
    for name, param in model.named_parameters():
        param.requires_grad_(name.endswith("bias") or name == "shift")
    return model


def lora() -> Model:
    model = Model().requires_grad_(False)
    for block in model.blocks:
        block.up = Adapted(12, 24)
    return model


DTYPES: dict[str, dict[str, Any]] = {
    "f32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "initial_scale_power": 8}},
}


def rule(own: bool) -> dict[str, Any]:
    # The large epsilon makes rounding errors of small gradients count little.
    return {"type": "AdamW", "params": {"lr": 0.01, "eps": 1.0, "torch_adam": not own}}


def test_trains_modules_with_some_frozen_params() -> None:
    for make in (bitfit, lora):
        for stage, dtype in ((0, "bf16"), (1, "fp16"), (2, "bf16"), (3, "bf16"), (3, "fp16")):
            for own in (True, False):
                for init in (False, True) if stage == 3 else (False,):
                    torch.manual_seed(0)
                    settings = config(stage, optimizer=rule(own), **DTYPES[dtype])
                    with zero.Init(config_dict_or_path=settings, enabled=init):
                        model = make()
                    torch.manual_seed(0)
                    plain = make()
                    engine = zero.initialize(model=model, config=settings)[0]
                    trained = [param for param in plain.parameters() if param.requires_grad]
                    expected = torch.optim.AdamW(trained, lr=0.01, eps=1.0, weight_decay=0.0)
                    generator = torch.Generator().manual_seed(1)
                    for _ in range(2):
                        batch = data(generator)
                        engine_step(engine, [batch])
                        plain_step(plain, expected, [batch])
                    for param in plain.parameters():
                        if not param.requires_grad:  # the engine has only the 16-bit value
                            param.data = param.to(model.shift.dtype).float()
                    assert_equal_weights(model, plain, 1e-3)
                    engine.destroy()


def test_optimizers_of_meron_torch_skip_frozen_params() -> None:
    model = bitfit()
    mt.shard(model, mp=mt.MixedPrecision(param_dtype=torch.bfloat16))
    optimizer = mt.AdamW(model, lr=0.01)
    x, y = data(torch.Generator().manual_seed(1))
    before = mt.full_param(model.blocks[0].up.bias)
    loss_of(model, x[RANK], y[RANK]).backward()
    optimizer.step()
    assert not torch.equal(before, mt.full_param(model.blocks[0].up.bias))
    frozen = model.blocks[0].up.weight
    assert mt.full_optimizer_state(optimizer, frozen, "exp_avg") is None
    assert mt.full_optimizer_state(optimizer, frozen, "step") is None


def check_frozen(param: nn.Parameter, value: torch.Tensor) -> None:
    """Each access to a frozen param succeeds, or is rejected with the param's name."""
    unit, i = param._meron
    shard_range = unit.shard_range(i)
    own = value.reshape(-1)[shard_range.start : shard_range.stop]
    assert torch.equal(param.ds_tensor.float(), own)
    assert param.ds_tensor.dtype == param.dtype
    assert torch.equal(zero.safe_get_full_fp32_param(param), value)
    assert torch.equal(zero.safe_get_local_fp32_param(param), own)
    assert zero.safe_get_full_grad(param) is None and zero.safe_get_local_grad(param) is None
    for key in ("exp_avg", "exp_avg_sq", "step", "nonsense"):
        assert zero.safe_get_full_optimizer_state(param, key) is None
        assert zero.safe_get_local_optimizer_state(param, key) is None
    zero.safe_update_full_grad_vectorized([param], lambda *_: 1 / 0)
    name = f"{unit.names[i]} is frozen"
    with pytest.raises(meron.StateError, match=re.escape(name)):
        zero.safe_set_full_grad(param, value)
    with pytest.raises(meron.StateError, match=re.escape(name)):
        zero.safe_set_local_grad(param, own)
    with pytest.raises(meron.ArgumentError, match=re.escape(name)):
        zero.safe_set_full_optimizer_state(param, value, "exp_avg")
    with pytest.raises(meron.ArgumentError, match=re.escape(name)):
        zero.safe_set_local_optimizer_state(param, own, "exp_avg")


def test_reads_frozen_params_and_rejects_writes_of_their_states() -> None:
    for stage in (1, 3):
        for own in (True, False):
            for block in DTYPES.values():
                torch.manual_seed(0)
                model = bitfit()
                weight = model.blocks[0].up.weight
                value = copy.deepcopy(weight.detach())
                engine = zero.initialize(
                    model=model, config=config(stage, optimizer=rule(own), **block)
                )[0]
                value = value.to(weight.dtype).float()
                check_frozen(weight, value)
                batch = data(torch.Generator().manual_seed(1))
                engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]))
                check_frozen(weight, value)
                engine.step()
                check_frozen(weight, value)
                value = value.to(weight.dtype).float() * 2
                zero.safe_set_full_fp32_param(weight, value)
                check_frozen(weight, value)
                zero.safe_set_local_fp32_param(weight, zero.safe_get_local_fp32_param(weight) * 2)
                check_frozen(weight, value * 2)
                engine_step(engine, [batch])
                check_frozen(weight, value * 2)
                engine.destroy()


def test_keeps_no_f32_values_of_frozen_params() -> None:
    model = bitfit()
    with zero.Init(config_dict_or_path=config(**DTYPES["bf16"])):
        built = bitfit()
    for each in (model, built):
        if each is model:
            zero.initialize(model=model, config=config(**DTYPES["bf16"]))
        for param in each.parameters():
            unit, i = param._meron
            assert i in unit.trainable or i not in unit.masters
