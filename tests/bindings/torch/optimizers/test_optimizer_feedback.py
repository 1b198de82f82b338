# SPDX-License-Identifier: Apache-2.0
"""Error feedback of coded gradients: it goes with the gradient and the loss scale that it is of."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rules import RANK
from torch import nn

import meron.torch as mt
from meron import zero

pytestmark = pytest.mark.ranks(2)

SIZE = 1024
WORLD = {"sharding": "replica x shard"}
CODEC = {"kind": "int4", "feedback": {"beta": 0.0, "reset": 0}}
PLANS: list[dict[str, Any]] = [
    {"mesh": {"shard": 1}, "gradient": {**WORLD, "codec": CODEC}, "optimizer": WORLD},
    {"preset": "mics(1)", "gradient": {"codec": CODEC}},
]
MAKERS: dict[str, Any] = {
    "engine": lambda model: mt.SGD(model, lr=1.0),
    "shard_optimizer": lambda model: mt.shard_optimizer(
        model, torch.optim.SGD(model.parameters(), lr=1.0)
    ),
}


class Row(nn.Module):
    """Its gradient is what its forward is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(SIZE))

    def forward(self, grad: torch.Tensor) -> torch.Tensor:
        return (self.weight * grad).sum()


def rough() -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(3))


def next_gradient(model: Row, scale: float = 1.0) -> torch.Tensor:
    """The reduced gradient of a loss of zero: what feedback has added."""
    (scale * model(torch.zeros(SIZE))).backward()
    grad = mt.full_grad(model.weight)
    assert grad is not None
    return grad


def sharded(plan: dict[str, Any]) -> Row:
    model = Row()
    mt.shard(model, plan=plan)
    return model


@pytest.mark.parametrize("plan", PLANS, ids=["own", "shared"])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_step_keeps_feedback(maker: str, plan: dict[str, Any]) -> None:
    """Two steps move by the gradient. The second one makes up for the error of the first."""
    model = sharded(plan)
    optimizer, grad = MAKERS[maker](model), rough()
    model(grad).backward()
    optimizer.step()
    first = (grad + mt.full_param(model.weight)).abs().max()
    model(torch.zeros(SIZE)).backward()
    optimizer.step()
    second = (grad + mt.full_param(model.weight)).abs().max()
    assert first > 0.1 and second < first / 5


@pytest.mark.parametrize("plan", PLANS, ids=["own", "shared"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("how", ["optimizer.zero_grad", "model.zero_grad", "grad = None"])
def test_dropped_gradients_take_their_feedback_along(
    how: str, maker: str, plan: dict[str, Any]
) -> None:
    model = sharded(plan)
    optimizer = MAKERS[maker](model)
    model(rough()).backward()
    mt.full_grad(model.weight)
    if how == "grad = None":
        model.weight.grad = None
    else:
        (optimizer if how.startswith("optimizer") else model).zero_grad()
    assert not next_gradient(model).any()
    optimizer.zero_grad()


@pytest.mark.parametrize("plan", PLANS, ids=["own", "shared"])
@pytest.mark.parametrize("maker", MAKERS)
def test_a_step_that_grad_scaler_skips_drops_feedback(maker: str, plan: dict[str, Any]) -> None:
    model = sharded(plan)
    optimizer, scaler = MAKERS[maker](model), torch.amp.GradScaler("cpu", init_scale=4.0)
    grad = rough()
    if RANK == 1:
        grad[700] = math.inf
    scaler.scale(model(grad)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0
    assert not next_gradient(model).any()
    optimizer.zero_grad()


@pytest.mark.parametrize("plan", PLANS, ids=["own", "shared"])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("new", [None, 2.0, 0.25])
def test_feedback_follows_the_scale_of_grad_scaler(
    new: float | None, maker: str, plan: dict[str, Any]
) -> None:
    seen = []
    for after in (new, 1.0):
        model = sharded(plan)
        optimizer = MAKERS[maker](model)
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1, growth_factor=4.0)
        scaler.scale(model(rough())).backward()
        scaler.step(optimizer)
        scaler.update(after)
        scale = scaler.get_scale()
        assert scale == (4.0 if after is None else after)
        seen.append(next_gradient(model) / scale)
        optimizer.zero_grad()
    assert torch.equal(seen[0], seen[1]) and seen[0].any()


def test_grad_scaler_outlives_a_model() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1)
    kept = []
    for _ in range(2):
        model = sharded(PLANS[0])
        optimizer = mt.SGD(model, lr=1.0)
        scaler.scale(model(rough())).backward()
        scaler.step(optimizer)
        scaler.update()
        mt.destroy(model)
        kept.append(optimizer)
    assert scaler.get_scale() == 4.0


@pytest.mark.parametrize("dynamic", [True, False])
def test_feedback_follows_the_loss_scale_of_meron_zero(dynamic: bool) -> None:
    """The scale doubles after a step. If that of feedback did not, half of the loss would stay."""
    grad = rough().clamp(-2, 2)
    fp16 = {"enabled": True, "loss_scale": 0 if dynamic else 16.0, "initial_scale_power": 4}
    model = Row()
    engine = zero.initialize(
        model=model,
        config={
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {
                "stage": 3,
                "mics_shard_size": 1,
                "zero_quantized_gradients": True,
                "zeropp_loco_param": {"err_beta": 0.0, "reset_T": 1000},
            },
            "zero_allow_untested_optimizer": True,
            "fp16": {**fp16, "loss_scale_window": 1, "hysteresis": 1},
            "optimizer": {"type": "SGD", "params": {"lr": 1.0}},
        },
    )[0]
    errors, scales = [], []
    for given in (torch.zeros(SIZE), grad, torch.zeros(SIZE)):
        scales.append(engine.cur_scale)
        engine.backward(engine(given.half()))
        engine.step()
        weight = zero.safe_get_full_fp32_param(model.weight)
        assert weight is not None
        errors.append(float((weight + grad.half().float()).abs().max()))
    assert scales[2] == (2 * scales[1] if dynamic else 16)
    assert errors[1] > 0.1 and errors[2] < errors[1] / 5
