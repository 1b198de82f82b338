# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: sums over ranks, overflows, autocast, bf16 values and states."""

from __future__ import annotations

import copy
import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt
from meron import zero
from meron.zero.config import parse
from meron.zero.loss_scale import LossScale
from model import (
    RANK,
    RANKS,
    Model,
    Scale,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    loss_of,
    on_device,
    scale_engine,
    twins,
    weight_of,
)

pytestmark = [pytest.mark.ranks(1, 2), on_device(1)]

ADAM = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}
VALUES = {"enabled": True, "bf16_master_weights_and_grads": True}
BOTH = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}


# ---- Sums over ranks ----------------------------------------------------------------------------


def test_sums_gradients_over_ranks() -> None:
    for stage in range(4):
        model, engine = scale_engine(stage, gradient_allreduce_op="sum")
        for _ in range(2):
            engine.backward(engine())
            engine.step()
        assert weight_of(model) == -2.0 * RANKS, stage
        engine.destroy()
        steps = {"gradient_accumulation_steps": 2, "gradient_clipping": 0.5}
        model, engine = scale_engine(stage, gradient_allreduce_op="sum", **steps)
        for _ in range(2):
            engine.backward(engine())
            engine.step()
        assert abs(engine.get_global_grad_norm() - RANKS * 5**0.5) < 1e-5, stage
        engine.destroy()


def test_division_before_the_sum_changes_nothing() -> None:
    batch = batches_of(1)
    for stage in range(4):
        weights = []
        for options in ({}, {"prescale_gradients": True, "gradient_predivide_factor": 3.0}):
            model, _ = twins()
            engine = zero.initialize(model=model, config=config(stage, **options))[0]
            engine_step(engine, batch)
            weights.append([zero.safe_get_full_fp32_param(p) for p in model.parameters()])
        assert all(map(torch.equal, *weights)), stage


def test_averages_fp16_gradients_without_overflow() -> None:
    """The sum, 80000, exceeds the range of fp16; the mean does not."""
    fp16 = {"enabled": True, "loss_scale": 1.0}
    for stage in range(4):
        for options in (
            {},
            {"gradient_predivide_factor": 1.0},
            {"communication_data_type": "fp16"},
        ):
            model, engine = scale_engine(stage, fp16=fp16, **options)
            engine.backward(engine() * 40000.0)
            engine.step()
            assert engine.skipped_steps == 0 and weight_of(model) == -40000.0, stage
            engine.destroy()


# ---- Overflows ----------------------------------------------------------------------------------


def test_all_ranks_share_one_loss_scale() -> None:
    """The scale equals that of one process that sees the overflows of all ranks."""
    block = {
        "enabled": True,
        "initial_scale_power": 8,
        "loss_scale_window": 2,
        "hysteresis": 2,
        "min_loss_scale": 2,
    }
    overflows = [step in (1, 4, 5, 9, 10) for step in range(12)]
    for stage in range(4):
        model, engine = scale_engine(stage, fp16=block, gradient_accumulation_steps=2)
        expected = LossScale(parse({"fp16": block}).fp16)  # type: ignore[arg-type]
        taken = 0
        for step, overflow in enumerate(overflows):
            factor = float("inf") if overflow and step % RANKS == RANK else 1.0
            for part in range(2):  # in one micro-batch alone
                engine.backward(engine() * (factor if part == step % 2 else 1.0))
                engine.step()
            expected.update(overflow)
            taken += not overflow
            assert engine.cur_scale == expected.value == engine.loss_scale(), (stage, step)
            assert engine.was_step_applied() != overflow and engine.global_steps == step + 1
            assert engine.skipped_steps == step + 1 - taken and weight_of(model) == -taken
            assert (engine.get_global_grad_norm() == math.inf) == overflow
        engine.destroy()


def test_a_skipped_step_changes_nothing() -> None:
    """With an optimizer of torch and with one of the caller (engine: test_zero_engine.py)."""
    schedule = {"type": "StepLR", "params": {"step_size": 1, "gamma": 0.5}}
    rms = {"type": "RMSprop", "params": {"lr": 0.01}}
    makes: list[Any] = [None, lambda p: torch.optim.AdamW(p, lr=0.01)]
    blocks = ({"fp16": {"enabled": True, "initial_scale_power": 8}}, {"bf16": {"enabled": True}})
    for stage, make, block in itertools.product((1, 3), makes, (*blocks, {"bf16": BOTH})):
        settings = config(stage, optimizer=rms, scheduler=schedule, **block)
        engine, optimizer, _, _ = zero.initialize(model=twins()[0], optimizer=make, config=settings)
        good = batches_of(1)[0]
        engine_step(engine, [good])
        before = state_of(engine, optimizer)
        factor = float("nan") if RANK == RANKS - 1 else 1.0
        engine.backward(loss_of(engine, good[0][RANK], good[1][RANK]) * factor)
        engine.step()
        assert engine.skipped_steps == 1 and not engine.was_step_applied()
        after = state_of(engine, optimizer)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before), stage
        engine_step(engine, [good])
        assert engine.was_step_applied() and engine.get_lr()[0] == 0.01 * 0.25
        engine.destroy()


def state_of(engine: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    """Returns values, f32 values, states and learning rates."""
    found = {f"model.{name}": v.clone() for name, v in zero.full_state_dict(engine).items()}
    for number, param in enumerate(engine.module.parameters()):
        found[f"value.{number}"] = zero.safe_get_full_fp32_param(param)
    for number, state in enumerate(optimizer.state.values()):
        for key, value in state.items():
            found[f"{key}.{number}"] = torch.as_tensor(value).clone()
    found["lr"] = torch.tensor(engine.get_lr())
    return found


# ---- Autocast -----------------------------------------------------------------------------------


def autocast_step(plain: Model, optimizer: Any, batch: Any, dtype: torch.dtype) -> None:
    optimizer.zero_grad()
    for rank in range(RANKS):
        with torch.autocast("cpu", dtype):
            output = plain(batch[0][rank])
        loss_of(lambda _: output, batch[0][rank], batch[1][rank]).div(RANKS).backward()  # noqa: B023
    optimizer.step()


def test_autocasts_forward_of_the_engine() -> None:
    for stage in range(4):
        model, plain = twins()
        block = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": ["torch.nn.Linear"],
        }
        engine = zero.initialize(model=model, config=config(stage, torch_autocast=block))[0]
        assert engine.torch_autocast_enabled() and engine.torch_autocast_dtype() is torch.bfloat16
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        for batch in batches_of(3):
            output = engine(batch[0][RANK])
            assert output.dtype is torch.bfloat16 and not torch.is_autocast_enabled("cpu")
            engine.backward(loss_of(lambda _: output, batch[0][RANK], batch[1][RANK]))  # noqa: B023
            engine.step()
            autocast_step(plain, optimizer, batch, torch.bfloat16)
        assert all(p.dtype is torch.float32 for p in model.parameters())
        assert_equal_weights(model, plain, 1e-6 if RANKS == 1 else 1e-3)
        engine.destroy()


def test_fp16_autocast_scales_the_loss() -> None:
    for stage in (0, 3):
        model, plain = twins()
        block = {"enabled": True, "dtype": "fp16"}
        engine = zero.initialize(model=model, config=config(stage, torch_autocast=block))[0]
        assert engine.cur_scale == 2.0**16 and engine.dynamic_loss_scale()
        assert not engine.fp16_enabled()
        batch = batches_of(1)[0]
        before = zero.safe_get_full_fp32_param(model.embed.weight)
        factor = float("inf") if RANK == RANKS - 1 else 1.0
        engine.backward(loss_of(engine, batch[0][RANK], batch[1][RANK]) * factor)
        engine.step()
        assert engine.skipped_steps == 1 and engine.cur_scale == 2.0**15
        assert torch.equal(before, zero.safe_get_full_fp32_param(model.embed.weight))
        engine_step(engine, [batch])
        autocast_step(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batch, torch.float16)
        assert engine.was_step_applied()
        assert_equal_weights(model, plain, 1e-3)
        engine.destroy()


def test_respects_the_callers_autocast() -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config())[0]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert engine(batches_of(1)[0][0][RANK]).dtype is torch.bfloat16
    engine.destroy()


# ---- bf16 values and states ---------------------------------------------------------------------


def mean_gradients(plain: Model, batch: Any) -> list[torch.Tensor]:
    """Those of bf16 params over all ranks, in f32."""
    sums = [torch.zeros_like(p, dtype=torch.float32) for p in plain.parameters()]
    for rank in range(RANKS):
        plain.zero_grad()
        loss_of(plain, batch[0][rank], batch[1][rank]).backward()
        for total, param in zip(sums, plain.parameters(), strict=True):
            assert param.grad is not None
            total += param.grad.float()
    return [total / RANKS for total in sums]


def largest_difference(stage: int, bf16: Any, make: Any, optimizer: Any, twin_kind: Any) -> float:
    """Between an engine's bf16 values and those of steps in f32 whose results are rounded."""
    model, plain = twins()
    plain.bfloat16()
    wide = copy.deepcopy(plain).float()
    settings = config(stage, bf16=bf16, optimizer=optimizer)
    engine, own, _, _ = zero.initialize(model=model, optimizer=make, config=settings)
    twin = twin_kind(wide.parameters())
    for batch in batches_of(4):
        engine_step(engine, [batch])
        for its, gradient in zip(wide.parameters(), mean_gradients(plain, batch), strict=True):
            its.grad = gradient
        twin.step()
        with torch.no_grad():
            for its, param in zip(wide.parameters(), plain.parameters(), strict=True):
                param.copy_(its)
                its.copy_(param)
    assert not any(unit.masters for unit in engine.units)
    states = torch.bfloat16 if "bf16_optimizer_states" in bf16 else torch.float32
    for state in own.state.values():
        found = {key: value.dtype for key, value in state.items() if key != "step"}
        assert set(found.values()) == {states}, found
    differences = []
    for param, its in zip(model.parameters(), plain.parameters(), strict=True):
        value = zero.safe_get_full_fp32_param(param)
        assert value is not None and torch.equal(value, value.bfloat16().float())
        differences.append(float((value - its.detach().float()).abs().max()))
    engine.destroy()
    return max(differences)


def adam_twin(params: Any) -> Any:
    return torch.optim.Adam(params, lr=0.01, weight_decay=0.1)


def adamw_twin(params: Any) -> Any:
    return torch.optim.AdamW(params, lr=0.01, weight_decay=0.1)


def momentum(params: Any) -> Any:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def test_updates_bf16_values_in_place() -> None:
    """Each step is one in f32; values are rounded to nearest and bf16 states at random."""
    for stage, make, twin in (
        (1, None, adamw_twin),
        (2, momentum, momentum),
        (3, None, adamw_twin),
    ):
        assert largest_difference(stage, BOTH, make, ADAM, twin) <= 1e-2, stage


def test_updates_bf16_values_with_f32_states() -> None:
    """Each step is one in f32 whose result is rounded, under any rule."""
    coupled = {"type": "Adam", "params": {**ADAM["params"], "adam_w_mode": False}}
    for stage, make, block, twin in (
        (1, None, ADAM, adamw_twin),
        (3, None, ADAM, adamw_twin),
        (3, None, coupled, adam_twin),
        (2, momentum, ADAM, momentum),
    ):
        tolerance = 0.0 if RANKS in (1, 2) else 1e-2
        assert largest_difference(stage, VALUES, make, block, twin) <= tolerance, stage


class Product(torch.nn.Module):
    """The gradient of its weight is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2048))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def test_bf16_states_in_place_decay_with_the_gradients() -> None:
    """To nearest they would stay: each step changes them by less than 1/512."""
    for stage in (1, 3):
        settings = config(stage, bf16=BOTH, optimizer={"type": "AdamW", "params": {"lr": 1e-4}})
        model = Product()
        engine = zero.initialize(model=model, config=settings)[0]
        for step in range(151):
            engine.backward(engine(torch.zeros(2048, dtype=torch.bfloat16)))
            engine.step()
            if step == 0:
                ones = torch.ones(2048)
                zero.safe_set_full_optimizer_state(model.weight, ones, "exp_avg_sq")
        found = zero.safe_get_full_optimizer_state(model.weight, "exp_avg_sq")
        assert found is not None
        assert abs(float(found.double().mean()) / 0.999**150 - 1) < 5e-3, stage
        engine.destroy()


@pytest.mark.parametrize("bf16", [BOTH, VALUES], ids=["bf16_states", "f32_states"])
def test_resumes_bf16_values_from_a_checkpoint(bf16: dict[str, Any], tmp_path: Path) -> None:
    settings = config(3, bf16=bf16, optimizer=ADAM)
    batches = batches_of(4)
    engine = zero.initialize(model=twins()[0], config=settings)[0]
    engine_step_all(engine, batches[:2])
    engine.save_checkpoint(tmp_path)
    engine_step_all(engine, batches[2:])
    wanted = [zero.safe_get_full_fp32_param(p) for p in engine.module.parameters()]
    engine.destroy()
    other = zero.initialize(model=twins()[0], config=settings)[0]
    assert other.load_checkpoint(tmp_path)[0] is not None
    engine_step_all(other, batches[2:])
    found = [zero.safe_get_full_fp32_param(p) for p in other.module.parameters()]
    assert all(map(torch.equal, wanted, found))
    assert not any(unit.masters for unit in other.units)


def engine_step_all(engine: Any, batches: list[Any]) -> None:
    for batch in batches:
        engine_step(engine, [batch])


def test_keeps_bf16_states_beside_f32_values() -> None:
    bf16 = {"enabled": True, "bf16_optimizer_states": True}
    for stage in range(4):
        model, plain = twins()
        engine = zero.initialize(model=model, config=config(stage, bf16=bf16, optimizer=ADAM))[0]
        assert isinstance(engine.optimizer, mt.AdamW)
        engine_step_all(engine, batches_of(2))
        state = zero.safe_get_full_optimizer_state(model.embed.weight, "exp_avg")
        value = zero.safe_get_full_fp32_param(model.embed.weight)
        assert state is not None and value is not None
        assert torch.equal(state, state.bfloat16().float()) and bool(state.any())
        assert not torch.equal(value, value.bfloat16().float())
        engine.destroy()
        del plain


def test_rejects_optimizers_that_do_not_fit(tmp_path: Path) -> None:
    states = {"enabled": True, "bf16_optimizer_states": True}
    with pytest.raises(meron.UnsupportedError, match="bf16_optimizer_states"):
        zero.initialize(
            model=Scale(),
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
            config=config(bf16=states),
        )
    with pytest.raises(meron.UnsupportedError, match="bf16_optimizer_states"):
        rms = {"type": "RMSprop", "params": {}}
        zero.initialize(model=Scale(), config=config(bf16=states, optimizer=rms))
    with pytest.raises(meron.UnsupportedError, match="bf16_master_weights_and_grads"):
        zero.initialize(model=Scale(), optimizer=lambda p: mt.SGD(p), config=config(bf16=BOTH))
    folder = {"device": "nvme", "nvme_path": str(tmp_path)}
    with pytest.raises(meron.UnsupportedError, match=re.escape("offload_optimizer.device")):
        nvme = {"stage": 3, "offload_optimizer": folder}
        zero.initialize(
            model=Scale(), config=config(bf16=BOTH, optimizer=ADAM, zero_optimization=nvme)
        )


def test_accepts_a_tensor_as_learning_rate() -> None:
    schedule = {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 0.1}}
    batches = batches_of(3)
    found = []
    for rate in (0.1, torch.tensor(0.1)):
        model, _ = twins()
        block = {"type": "AdamW", "params": {"lr": copy.deepcopy(rate)}}
        settings = config(optimizer=block, scheduler=schedule)
        engine = zero.initialize(model=model, config=settings)[0]
        engine_step_all(engine, batches)
        found.append([zero.safe_get_full_fp32_param(p) for p in model.parameters()])
        assert abs(float(engine.get_lr()[0]) - 0.1 * math.log10(3)) < 1e-6
    for first, second in zip(*found, strict=True):
        assert torch.allclose(first, second, atol=1e-6)
