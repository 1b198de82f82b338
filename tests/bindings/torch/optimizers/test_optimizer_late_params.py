# SPDX-License-Identifier: Apache-2.0
"""Params whose first step is not the optimizer's get the same updates as those of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rules import Block, Model, assert_equal, backward_of_all, build, loss_of
from torch import nn

import meron.torch as mt
from meron import zero

pytestmark = pytest.mark.ranks(1, 2)

LATE = 20  # steps before the first one of the late params
RULES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "AdamW": (mt.AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "Adagrad": (mt.Adagrad, torch.optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1}),
    "SGD": (mt.SGD, torch.optim.SGD, {"lr": 0.01, "momentum": 0.9, "dampening": 0.5}),
}


def late_params(model: Model) -> list[nn.Parameter]:
    return [*model.blocks[0].up.parameters(), model.head.bias]


def freeze(model: Model, frozen: bool) -> None:
    for param in late_params(model):
        param.requires_grad_(not frozen)


def steps(model: Model, optimizer: Any, plain: Model, twin: Any, numbers: range) -> None:
    for number in numbers:
        loss_of(model, number).backward()
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        backward_of_all(plain, number)
        twin.step()


@pytest.mark.parametrize("plan", ["zero0", "zero1", "zero3"])
@pytest.mark.parametrize("rule", RULES)
def test_params_that_thaw_get_first_steps(rule: str, plan: str) -> None:
    own, torchs, options = RULES[rule]
    model, plain = mt.shard(build(), units=Block, plan=plan), build()
    for each in (model, plain):
        freeze(each, True)
    optimizer, twin = own(model, **options), torchs(plain.parameters(), **options)
    steps(model, optimizer, plain, twin, range(LATE))
    assert_equal(model, plain, 1e-4, 1e-5)
    for each in (model, plain):
        freeze(each, False)
    steps(model, optimizer, plain, twin, range(LATE, LATE + 3))
    assert_equal(model, plain, 1e-4, 1e-5)
    bias = mt.full_optimizer_state(optimizer, model.head.bias, "step")
    assert (optimizer.steps, bias) == (LATE + 3, 3)


def test_layers_that_a_checkpoint_lacks_get_first_steps(tmp_path: Path) -> None:
    """The plain twin keeps the states of the layers that the checkpoint has."""

    class Longer(Model):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(17, 17)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.extra(super().forward(x))

    def longer() -> Longer:
        torch.manual_seed(1)
        return Longer()

    model, plain = mt.shard(build(), units=Block), build()
    optimizer, twin = mt.AdamW(model, lr=0.01), torch.optim.AdamW(plain.parameters(), lr=0.01)
    steps(model, optimizer, plain, twin, range(LATE))
    mt.save(tmp_path, "short", model, optimizer)
    del model, optimizer
    model, other = longer(), longer()
    mt.shard(model, units=Block)
    optimizer = mt.AdamW(model, lr=0.01)
    mt.load(tmp_path, "short", model, optimizer, strict=False)
    own = dict(other.named_parameters())
    for name, param in plain.named_parameters():
        own[name].data.copy_(param.data)
    fresh = torch.optim.AdamW(other.parameters(), lr=0.01)
    for name, param in plain.named_parameters():
        fresh.state[own[name]] = twin.state[param]
    steps(model, optimizer, other, fresh, range(LATE, LATE + 3))
    assert_equal(model, other, 1e-4, 1e-5)


@pytest.mark.parametrize("stage", [1, 3])
def test_an_engine_thaws_params(stage: int) -> None:
    model, plain = build(), build()
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
        "zero_optimization": {"stage": stage},
    }
    engine = zero.initialize(model=model, config=config)[0]
    for each in (model, plain):
        freeze(each, True)
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    for number in range(LATE + 3):
        if number == LATE:
            for each in (model, plain):
                freeze(each, False)
        engine.backward(loss_of(engine, number))
        engine.step()
        twin.zero_grad()
        backward_of_all(plain, number)
        twin.step()
    for name, param in model.named_parameters():
        value = zero.safe_get_full_fp32_param(param)
        torch.testing.assert_close(value, dict(plain.named_parameters())[name].data, msg=name)
