# SPDX-License-Identifier: Apache-2.0
"""A stack of layers that the tests of this folder train on the host and on the emulated device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

import meron.torch as mt

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))
STEPS = 3
# The emulated device delays copies by so many microseconds: a missing wait shows.
SLOW = {"MERON_EMULATED_DEVICE": "delay=200"}


def stack(**options: Any) -> torch.nn.Sequential:
    torch.manual_seed(5)
    layers = [torch.nn.Linear(16, 16, **options) for _ in range(4)]
    return torch.nn.Sequential(*layers, torch.nn.LayerNorm(16, **options))


def batch(step: int) -> torch.Tensor:
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(10 * step + RANK))


def sharding_of(model: torch.nn.Module) -> Any:
    return next(model.parameters())._meron[0].sharding  # type: ignore[attr-defined]


def equal_bits(train: Callable[[str], list[torch.Tensor]]) -> None:
    host, device = train("cpu"), train("emulated")
    assert len(host) == len(device) > 0
    for number, (one, other) in enumerate(zip(host, device)):
        assert one.dtype == other.dtype and torch.equal(one, other), (number, one, other)


def trained(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    forward: Callable[[torch.Tensor], torch.Tensor] | None = None,
    accumulate: int = 1,
    clip: float = 0.0,
) -> list[torch.Tensor]:
    """Returns losses, norms, and the values at the end."""
    found = []
    for step in range(STEPS):
        for turn in range(accumulate):
            loss = (forward or model)(batch(step * accumulate + turn)).float().square().mean()
            loss.backward()
            found.append(loss.detach())
        if clip:
            found.append(mt.clip_grad_norm_(model, clip))
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *model.state_dict().values()]
