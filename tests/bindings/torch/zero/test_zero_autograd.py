# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.grad beside the backward of an engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import grad

import meron
from meron import zero
from model import RANK, RANKS, assert_equal_weights, config, on_device, sgd

pytestmark = [
    pytest.mark.ranks(2),
    on_device(2),
    pytest.mark.parametrize("stage", [0, 1, 2, 3]),
]


def net() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def twins(stage: int, **options: Any) -> tuple[Any, nn.Module, torch.optim.Optimizer]:
    engine = zero.initialize(model=net(), config=config(stage, **options))[0]
    plain = net()
    return engine, plain, sgd(plain)


def features(seed: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def loss_of(model: Any, seed: int) -> torch.Tensor:
    result: torch.Tensor = model(features(seed)).square().mean()
    return result


def penalty(model: Any, seed: int) -> torch.Tensor:
    """Of the norm of the gradient of the input, as of a critic."""
    given = features(seed).requires_grad_()
    (found,) = grad(model(given).sum(), given, create_graph=True)
    return (found.norm(dim=1) - 1).square().mean() + loss_of(model, seed)


def norm_of_gradients(model: Any, seed: int) -> torch.Tensor:
    found = grad(loss_of(model, seed), list(model.parameters()), create_graph=True)
    return torch.stack([each.square().sum() for each in found]).sum()


def after_grad(model: Any, seed: int) -> torch.Tensor:
    grad(loss_of(model, seed + 7), list(model.parameters()))
    return loss_of(model, seed)


@pytest.mark.parametrize("objective", [penalty, norm_of_gradients, after_grad])
@pytest.mark.parametrize("steps", [1, 2], ids=["one", "accumulated"])
def test_grad_is_no_backward_of_a_micro_batch(stage: int, objective: Any, steps: int) -> None:
    engine, plain, optimizer = twins(stage, gradient_accumulation_steps=steps)
    for step in range(3):
        for batch in range(steps):
            engine.backward(objective(engine, 10 * step + 2 * batch + RANK))
            engine.step()
        optimizer.zero_grad()
        for batch in range(steps):
            for rank in range(RANKS):
                value = objective(plain, 10 * step + 2 * batch + rank)
                (value / (RANKS * steps)).backward()
        optimizer.step()
        assert_equal_weights(engine.module, plain, 1e-6)
    assert engine.global_steps == 3


def test_a_second_backward_is_refused_after_grad_too(stage: int) -> None:
    engine, _, _ = twins(stage)
    engine.backward(after_grad(engine, RANK))
    with pytest.raises(meron.StateError, match="backward ran already"):
        engine.backward(loss_of(engine, RANK))


def test_a_backward_of_some_params_is_one_of_the_micro_batch(stage: int) -> None:
    engine, plain, optimizer = twins(stage)
    last = engine.module[4]
    loss_of(engine, RANK).backward(inputs=[last.weight, last.bias])
    engine.step()
    for rank in range(RANKS):
        last = plain[4]  # type: ignore[index]
        (loss_of(plain, rank) / RANKS).backward(inputs=[last.weight, last.bias])
    optimizer.step()
    assert_equal_weights(engine.module, plain, 1e-6)
