# SPDX-License-Identifier: Apache-2.0
"""Params of shape (), whose states and numbers have one shape; states of before the first step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions

import meron.torch as mt
import meron.zero
from meron.torch.checkpoint import dcp_load, dcp_save, get_state_dict, set_state_dict

pytestmark = pytest.mark.ranks(2)
RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))
PLANS = pytest.mark.parametrize("plan", ["zero1", "zero3"])
Optimizer = torch.optim.Optimizer
Make = Callable[[Any], Optimizer]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lin = nn.Linear(4, 4)
        self.one = nn.Linear(4, 1, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.lin(x), self.one(x)], -1) * self.scale


class Counted(torch.optim.Optimizer):
    """Has a number of its own, whose name is unknown, beside an elementwise state."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["calls"] = torch.zeros(())
                    state["sum"] = torch.zeros_like(param)
                state["calls"] += 1
                state["sum"] += param.grad
                param -= group["lr"] * state["sum"] / state["calls"]


def adam(params: Any) -> Optimizer:
    return torch.optim.AdamW(params, lr=0.1)


def dampened(params: Any) -> Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.5, weight_decay=0.3)


def nadam(params: Any) -> Optimizer:
    return torch.optim.NAdam(params, lr=0.01, weight_decay=0.3)


def asgd(params: Any) -> Optimizer:
    return torch.optim.ASGD(params, lr=0.01, lambd=0.5)


def batch(seed: int) -> torch.Tensor:
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))


def train(model: nn.Module, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        model(batch(RANKS * step + RANK)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def train_plain(make: Make, steps: int) -> nn.Module:
    model = Net()
    optimizer = make(model.parameters())
    for step in range(steps):
        for rank in range(RANKS):
            (model(batch(RANKS * step + rank)).square().mean() / RANKS).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def sharded(plan: str, make: Make) -> tuple[nn.Module, Optimizer]:
    model = mt.shard(Net(), units=nn.Linear, plan=plan)
    return model, mt.shard_optimizer(model, make(model.parameters()))


def same(model: nn.Module, plain: nn.Module) -> None:
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[key], value, rtol=1e-5, atol=2e-6)


def by_save(folder: Path, plan: str, make: Make, model: Any, optimizer: Any) -> tuple[Any, Any]:
    mt.save(str(folder), "s", model, optimizer, step=1)
    others = sharded(plan, make)
    mt.load(str(folder), "s", *others)
    return others


def by_dcp(folder: Path, plan: str, make: Make, model: Any, optimizer: Any) -> tuple[Any, Any]:
    values, states = get_state_dict(model, optimizer)
    dcp_save({"m": values, "o": states}, checkpoint_id=str(folder / "dcp"))
    others = sharded(plan, make)
    values, states = get_state_dict(*others)
    found = {"m": values, "o": states}
    dcp_load(found, checkpoint_id=str(folder / "dcp"))
    set_state_dict(*others, model_state_dict=found["m"], optim_state_dict=found["o"])
    return others


def by_full(_folder: Path, plan: str, make: Make, model: Any, optimizer: Any) -> tuple[Any, Any]:
    options = StateDictOptions(full_state_dict=True)
    values, states = get_state_dict(model, optimizer, options=options)
    others = sharded(plan, make)
    set_state_dict(*others, model_state_dict=values, optim_state_dict=states, options=options)
    return others


def from_rank_0(
    _folder: Path, plan: str, make: Make, model: Any, optimizer: Any
) -> tuple[Any, Any]:
    options = StateDictOptions(full_state_dict=True)
    values, states = get_state_dict(model, optimizer, options=options)
    others = sharded(plan, make)
    given = (values, states) if RANK == 0 else ({}, {})
    set_state_dict(
        *others,
        model_state_dict=given[0],
        optim_state_dict=given[1],
        options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True),
    )
    return others


def by_state_dict(
    _folder: Path, plan: str, make: Make, model: Any, optimizer: Any
) -> tuple[Any, Any]:
    states, values = optimizer.state_dict(), model.state_dict()
    others = sharded(plan, make)
    others[0].load_state_dict(values)
    others[1].load_state_dict(states)
    return others


DOORS = [by_save, by_dcp, by_full, from_rank_0, by_state_dict]


@PLANS
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("make", [adam, Counted, nadam])
def test_resumes_with_params_of_shape_0(plan: str, door: Any, make: Make, tmp_path: Path) -> None:
    model, optimizer = sharded(plan, make)
    train(model, optimizer, range(2))
    shapes = [{k: v.shape for k, v in state.items()} for state in optimizer.state.values()]
    model, optimizer = door(tmp_path, plan, make, model, optimizer)
    assert [{k: v.shape for k, v in s.items()} for s in optimizer.state.values()] == shapes
    train(model, optimizer, range(2, 4))
    same(model, train_plain(make, 4))


@PLANS
@pytest.mark.parametrize("make", [adam, Counted])
def test_shards_an_optimizer_that_has_stepped(plan: str, make: Make) -> None:
    model = Net()
    optimizer = make(model.parameters())
    for step in range(2):
        for rank in range(RANKS):
            (model(batch(RANKS * step + rank)).square().mean() / RANKS).backward()
        optimizer.step()
        optimizer.zero_grad()
    mt.shard_optimizer(mt.shard(model, units=nn.Linear, plan=plan), optimizer)
    train(model, optimizer, range(2, 4))
    same(model, train_plain(make, 4))


@pytest.mark.parametrize("stage", [1, 3])
def test_an_engine_resumes_with_params_of_shape_0(stage: int, tmp_path: Path) -> None:
    config = {"train_batch_size": RANKS, "zero_optimization": {"stage": stage}}

    def build() -> tuple[nn.Module, Any]:
        model = Net()
        optimizer = adam(model.parameters())
        return model, meron.zero.initialize(model=model, optimizer=optimizer, config=config)[0]

    def run(engine: Any, steps: range) -> None:
        for step in steps:
            engine.backward(engine(batch(RANKS * step + RANK)).square().mean())
            engine.step()

    model, engine = build()
    run(engine, range(2))
    engine.save_checkpoint(str(tmp_path), "s")
    engine.destroy()
    model, engine = build()
    engine.load_checkpoint(str(tmp_path), "s")
    run(engine, range(2, 4))
    same(model, train_plain(adam, 4))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("make", [adam, dampened, nadam, asgd, Counted])
def test_states_of_before_the_first_step_change_nothing(
    door: Any, make: Make, tmp_path: Path
) -> None:
    model, optimizer = sharded("zero3", make)
    model, optimizer = door(tmp_path, "zero3", make, model, optimizer)
    train(model, optimizer, range(3))
    same(model, train_plain(make, 3))
