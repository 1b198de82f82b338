# SPDX-License-Identifier: Apache-2.0
"""The model that tests of meron.zero train, and its comparison with plain torch."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from meron import zero

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))


def on_device(*counts: int, **environment: str) -> pytest.MarkDecorator:
    """Marks tests to run on so many ranks with their params on the emulated device."""
    variables = {"MERON_TORCH_DEVICE": "emulated", **environment}
    return pytest.mark.ranks(*counts, name="emulated", environment=variables)


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(size)
        self.up = torch.nn.Linear(size, 2 * size)
        self.down = torch.nn.Linear(2 * size, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Has tied weights and a param outside of its parts."""

    def __init__(self, size: int = 12, words: int = 19, blocks: int = 2) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(words, size)
        self.blocks = torch.nn.ModuleList(Block(size) for _ in range(blocks))
        self.head = torch.nn.Linear(size, words, bias=False)
        self.head.weight = self.embed.weight
        self.shift = torch.nn.Parameter(torch.zeros(size))

    def reset_parameters(self) -> None:
        torch.nn.init.zeros_(self.shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x) + self.shift
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def data(generator: torch.Generator, words: int = 19) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs and targets of a micro-batch for each rank; the first index is the rank."""
    shape = (RANKS, 2, 5)
    x = torch.randint(0, words, shape, generator=generator)
    return x, torch.randint(0, words, shape, generator=generator)


def batches_of(count: int, seed: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns micro-batches, each as `data` makes it."""
    generator = torch.Generator().manual_seed(seed)
    return [data(generator) for _ in range(count)]


def whole(param: torch.Tensor) -> torch.Tensor:
    """Returns the full f32 values of a sharded param. Collective."""
    value = zero.safe_get_full_fp32_param(param)
    assert value is not None
    return value


def loss_of(model: Callable[[torch.Tensor], Any], x: torch.Tensor, y: torch.Tensor) -> Any:
    return F.cross_entropy(model(x).flatten(0, 1).float(), y.flatten())


def twins(**options: Any) -> tuple[Model, Model]:
    torch.manual_seed(0)
    model = Model(**options)
    return model, copy.deepcopy(model)


def plain_step(
    plain: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[tuple[torch.Tensor, torch.Tensor]],
    clip: float = 0.0,
) -> None:
    """Takes one step of plain torch over the micro-batches of all ranks."""
    optimizer.zero_grad()
    for x, y in batches:
        for rank in range(RANKS):
            (loss_of(plain, x[rank], y[rank]) / RANKS / len(batches)).backward()
    if clip:
        torch.nn.utils.clip_grad_norm_(plain.parameters(), clip)
    optimizer.step()


def engine_step(engine: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for x, y in batches:
        engine.backward(loss_of(engine, x[RANK], y[RANK]))
        engine.step()


def train(engine: Any, plain: torch.nn.Module, optimizer: Any, steps: int, **options: Any) -> None:
    """Takes the same steps with the engine and with plain torch."""
    generator = torch.Generator().manual_seed(1)
    accumulate = engine.gradient_accumulation_steps()
    for _ in range(steps):
        batches = [data(generator) for _ in range(accumulate)]
        engine_step(engine, batches)
        plain_step(plain, optimizer, batches, **options)


def assert_equal_weights(model: torch.nn.Module, plain: torch.nn.Module, tolerance: float) -> None:
    for (name, param), expected in zip(model.named_parameters(), plain.parameters(), strict=True):
        value = zero.safe_get_full_fp32_param(param)
        assert value is not None, name
        distance = float((value - expected.detach()).abs().max())
        assert distance <= tolerance, (name, distance)


def config(stage: int = 3, **others: Any) -> dict[str, Any]:
    """No param stays unsharded between uses at stage 3, small as the models are."""
    return {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {
            "stage": stage,
            **({"stage3_param_persistence_threshold": 0} if stage == 3 else {}),
        },
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        **others,
    }


def sgd(model: torch.nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Scale(torch.nn.Module):
    """Its loss is the sum of its weight, so each micro-batch has a gradient of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(5))

    def forward(self) -> torch.Tensor:
        return self.weight.sum()


def scale_engine(stage: int, **others: Any) -> tuple[Scale, Any]:
    model = Scale()
    block = {"type": "SGD", "params": {"lr": 1.0}}
    settings = config(stage, optimizer=block, **others)
    return model, zero.initialize(model=model, config=settings)[0]


def weight_of(model: Scale) -> float:
    values = whole(model.weight)
    assert bool((values == values[0]).all()), values
    return float(values[0])
