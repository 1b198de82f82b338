# SPDX-License-Identifier: Apache-2.0
"""Differences from DeepSpeed: the log names those that a run meets, and each behaviour is real."""

from __future__ import annotations

import io
import logging
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt
from meron import zero
from meron.zero import differences
from model import RANK, config

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.ranks(1, 2)


def engine_of(**keys: Any) -> Any:
    return zero.initialize(model=torch.nn.Linear(4, 4), config=config(**keys))[0]


def lines_of(**keys: Any) -> str:
    """Returns the lines about differences that `initialize` logs on this rank."""
    logger, stream = logging.getLogger("meron.zero"), io.StringIO()
    handler, level = logging.StreamHandler(stream), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        engine_of(**keys).destroy()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    lines = stream.getvalue().splitlines()
    return "\n".join(line for line in lines if "other than DeepSpeed" in line)


def test_rank_0_logs_each_difference_that_a_run_meets() -> None:
    plain = lines_of(stage=0)
    absent = lines_of(stage=3)
    given = lines_of(stage=3, gradient_clipping=1.0)
    if RANK:
        assert not plain and not absent and not given
        return
    assert "gradient_clipping is 0 by default, not 1" in absent
    assert "gradient_clipping" not in given
    key = "zero_optimization.stage3_max_live_parameters is none by default, not 1000000000"
    assert key in given and "stage3" not in plain
    assert "`param.grad` is None" in plain and "`param.grad` is None" not in given


def test_the_page_has_each_behaviour() -> None:
    page = (ROOT / "docs" / "torch_deepspeed.md").read_text()
    rows = [f"| {each.meron} | {each.deepspeed} |" for each in differences.BEHAVIOURS]
    assert rows == [row for row in rows if row in page]


# ---- One test for each row of the table, in its order --------------------------------------------


def test_parameters_have_the_names_of_the_model() -> None:
    engine = engine_of(stage=2)
    assert [name for name, _ in engine.named_parameters()] == ["weight", "bias"]
    assert list(engine.state_dict()) == ["weight", "bias"]


def test_rejects_a_second_backward_of_a_micro_batch() -> None:
    engine = engine_of(stage=1)
    engine.backward(engine(torch.ones(1, 4)).sum())
    with pytest.raises(meron.StateError, match="backward ran already"):
        engine.backward(engine(torch.ones(1, 4)).sum())
    engine.zero_grad()


def test_grad_is_none_after_a_backward_at_stage_0() -> None:
    engine = engine_of(stage=0)
    engine.backward(engine(torch.ones(1, 4)).sum())
    assert engine.module.bias.grad is None
    found = zero.safe_get_full_grad(engine.module.bias)
    assert found is not None and torch.equal(found, torch.ones(4))
    engine.zero_grad()


def test_the_norm_at_stage_0_is_that_of_the_step() -> None:
    engine = engine_of(stage=0)
    assert engine.get_global_grad_norm() is None
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
    norm = engine.get_global_grad_norm()
    assert norm is not None and math.isclose(norm, math.sqrt(20), rel_tol=1e-6)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_publishes_a_write_to_a_parameter_out_of_use(stage: int) -> None:
    engine = engine_of(stage=stage)
    expected = engine.module.bias.detach() + 1
    with torch.no_grad():
        engine.module.bias.add_(1.0)
    assert torch.equal(engine.state_dict()["bias"], expected)


@pytest.mark.parametrize("client", [False, True])
def test_rejects_a_step_with_nan_in_f32(client: bool) -> None:
    """With the engine's rule, and with an optimizer of torch that the caller passes."""
    optimizer = (lambda params: torch.optim.RMSprop(params, lr=0.1)) if client else None
    settings = config(stage=1, optimizer={"type": "SGD", "params": {"lr": 0.1}})
    if client:
        del settings["optimizer"]
    model = torch.nn.Linear(4, 4)
    engine = zero.initialize(model=model, optimizer=optimizer, config=settings)[0]
    assert isinstance(engine.optimizer, mt.EngineOptimizer) is not client
    before = zero.full_state_dict(engine)
    engine.backward(engine(torch.ones(1, 4)).sum() * math.nan)
    with pytest.raises(meron.NonFiniteError):
        engine.step()
    assert all(
        torch.equal(value, before[name]) for name, value in zero.full_state_dict(engine).items()
    )


def test_buffers_stay_in_f32_beside_bf16_parameters() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    model.register_buffer("frequencies", torch.arange(4.0) + 1 / 3)
    engine = zero.initialize(model=model, config=config(2, bf16={"enabled": True}))[0]
    assert engine.module[0].weight.dtype == torch.bfloat16
    assert torch.equal(engine.module.frequencies, torch.arange(4.0) + 1 / 3)


def test_a_thawed_parameter_gets_its_own_first_step() -> None:
    engine = engine_of(stage=2, optimizer={"type": "Adam", "params": {"lr": 0.125}})
    bias = engine.module.bias
    bias.requires_grad_(False)
    for _ in range(5):
        engine.backward(engine(torch.ones(1, 4)).sum())
        engine.step()
    before = mt.full_param(bias)
    bias.requires_grad_(True)
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
    assert torch.allclose(before - mt.full_param(bias), torch.tensor(0.125), rtol=1e-4)
