# SPDX-License-Identifier: Apache-2.0
"""An MLP, sharded and in plain torch, for the tests of this folder."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn

import meron
import meron.torch as mt

Optimizer = torch.optim.Optimizer
RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))


def mlp() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))


def data(seed: int) -> torch.Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def sharded(plan: str = "zero3", **options: Any) -> tuple[nn.Sequential, Optimizer]:
    model = mt.shard(mlp(), plan=plan, **options)
    return model, mt.shard_optimizer(model, sgd(model))


def loss(model: nn.Module, seed: int) -> torch.Tensor:
    return model(data(seed)).float().square().mean()


def backward_all(model: nn.Module, seed: int) -> None:
    """Computes the mean gradient of all ranks, whose data has the seed `seed + rank`."""
    for rank in range(RANKS):
        (loss(model, seed + rank) / RANKS).backward()


def same(model: nn.Module, plain: nn.Module, **tolerance: float) -> None:
    for param, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_param(param).float(), expected.detach(), **tolerance)


def step_both(
    model: nn.Module, optimizer: Optimizer, plain: nn.Module, twin: Optimizer, seed: int = 0
) -> None:
    """Steps both models, and checks that they have equal params."""
    loss(model, seed + RANK).backward()
    optimizer.step()
    twin.zero_grad()
    backward_all(plain, seed)
    twin.step()
    same(model, plain)


def is_sharded(param: torch.Tensor) -> bool:
    try:
        param.sum()
    except meron.StateError:
        return True
    return False
