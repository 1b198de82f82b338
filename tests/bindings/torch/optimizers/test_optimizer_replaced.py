# SPDX-License-Identifier: Apache-2.0
"""A second optimizer of the same params replaces the first, as if a notebook's cell runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rules import RANK, RANKS, Model, assert_equal, backward_of_all, build, loss_of, sharded
from torch import nn

import meron
import meron.torch as mt
from meron.torch.optim.states import read_state

pytestmark = pytest.mark.ranks(1, 2)

Make = Callable[[nn.Module], Any]


def engine_rule(model: nn.Module) -> Any:
    return mt.AdamW(model, lr=0.01, weight_decay=0.1)


def torch_rule(model: nn.Module) -> Any:
    own = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    return mt.shard_optimizer(model, own)


def in_place(model: nn.Module) -> Any:
    own = torch.optim.AdamW(model.parameters(), lr=0.01)
    return mt.shard_optimizer(model, own, in_place=mt.InPlace())


def half_model(plan: str = "zero2") -> Model:
    return sharded(plan, mp=mt.MixedPrecision(torch.bfloat16))


def step(model: nn.Module, optimizer: Any, number: int = 0) -> None:
    loss_of(model, number).backward()
    optimizer.step()
    optimizer.zero_grad()


KINDS = ((engine_rule, engine_rule), (engine_rule, torch_rule), (torch_rule, engine_rule))


@pytest.mark.parametrize("plan", ["zero0", "zero2", "zero3"])
@pytest.mark.parametrize(("first", "second"), KINDS)
def test_takes_the_params_over(plan: str, first: Make, second: Make) -> None:
    model, plain = sharded(plan), build()
    old = first(model)
    step(model, old)
    new = second(model)
    step(model, new, 1)
    for number in range(2):
        twin = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
        backward_of_all(plain, number)
        twin.step()
    assert_equal(model, plain, 1e-4, 1e-5)
    calls: tuple[Callable[[], Any], ...] = (
        old.step,
        old.zero_grad,
        lambda: old.add_param_group({"params": list(model.head.parameters())}),
    )
    for call in calls:
        with pytest.raises(meron.StateError, match=r"this AdamW was replaced: a new AdamW"):
            call()
    assert len(old.param_groups) == 1
    step(model, new, 2)


@pytest.mark.parametrize(("first", "second"), [*KINDS, (torch_rule, in_place)])
def test_keeps_f32_values_of_16_bit_params(first: Make, second: Make) -> None:
    model = half_model()
    old = first(model)
    step(model, old)
    before = values_of(old, model)
    new = second(model)
    after = values_of(new, model)
    assert torch.equal(before.bfloat16() if second is in_place else before, after)
    with pytest.raises(meron.StateError, match="was replaced"):
        old.step()
    step(model, new, 1)
    assert not torch.equal(values_of(new, model), after)


def values_of(optimizer: Any, model: nn.Module) -> torch.Tensor:
    """A copy of the values that the optimizer updates of this rank's shards."""
    places = [param._meron for param in model.parameters()]
    if isinstance(optimizer, mt.EngineOptimizer):
        return torch.cat([read_state(optimizer, unit, i, "master") for unit, i in places])
    parts = optimizer._meron_shards.parts
    return torch.cat([parts[unit][i].detach() for unit, i in places])


def test_uses_the_gradients_that_wait() -> None:
    model, plain = sharded(), build()
    old = engine_rule(model)
    loss_of(model, 0).backward()
    new = mt.SGD(model, lr=0.1)
    new.step()
    backward_of_all(plain, 0)
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    assert_equal(model, plain, 1e-4, 1e-5)
    assert old.released and not new.released


def test_stays_if_the_new_one_is_refused() -> None:
    model = sharded()
    old = engine_rule(model)
    step(model, old)
    groups = [{"params": list(model.blocks.parameters())}, {"params": [model.head.weight]}]
    refused: tuple[Callable[[], Any], ...] = (
        lambda: mt.SGD(model, lr=-1.0),
        lambda: mt.AdamW([groups[0], {**groups[1], "lr": -1.0}], lr=0.1),
        lambda: mt.AdamW(model, amsgrad=True),
        lambda: mt.shard_optimizer(model, torch.optim.LBFGS(model.parameters())),
        lambda: mt.shard_optimizer(model, torch.optim.SGD(model.parameters()), in_place=3),  # type: ignore[arg-type]
    )
    for each in refused:
        for _ in range(2):
            with pytest.raises(meron.Error):
                each()
    step(model, old, 1)
    assert old.steps == 2


def test_one_rank_that_refuses_alone_can_try_again() -> None:
    model = sharded()
    old = engine_rule(model)
    step(model, old)
    if RANK == RANKS - 1:
        with pytest.raises(meron.ArgumentError):
            mt.SGD(model, lr=-1.0)
    new = mt.SGD(model, lr=0.1)
    step(model, new, 1)
    assert old.released and new.steps == 1


def test_replaces_no_optimizer_of_other_params() -> None:
    model = mt.shard(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))  # one unit
    first = mt.SGD(model[0].parameters(), lr=0.1)
    with pytest.raises(meron.DuplicateError, match="other params of it than this AdamW"):
        mt.AdamW(model[1].parameters())
    with pytest.raises(meron.DuplicateError, match="units of their own"):
        mt.shard_optimizer(model, torch.optim.SGD(model[1].parameters()))
    model(torch.ones(2, 4)).sum().backward()
    first.step()
    assert first.steps == 1
    units = mt.shard(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), units=nn.Linear)
    one, other = mt.SGD(units[0].parameters()), mt.SGD(units[1].parameters())
    assert not one.released and not other.released


def test_of_a_part_replaces_the_one_of_the_whole() -> None:
    model = sharded()
    old = engine_rule(model)
    step(model, old)
    new = mt.SGD(model.head.parameters(), lr=0.1)
    with pytest.raises(meron.StateError, match="a new SGD was made of its params"):
        old.step()
    before = mt.full_param(model.blocks[0].up.weight)
    loss_of(model, 1).backward()
    new.step()
    assert torch.equal(before, mt.full_param(model.blocks[0].up.weight))


def test_torchs_optimizers_share_params_as_without_sharding() -> None:
    model = sharded()
    both = [torch_rule(model), torch_rule(model)]
    for number in range(2):
        for each in both:
            step(model, each, number)


def test_a_replaced_optimizer_saves_nothing() -> None:
    model = sharded()
    old = engine_rule(model)
    step(model, old)
    engine_rule(model)
    for call in (old.state_dict, old.full_state_dict, lambda: old.steps, old.release):
        if call == old.release:
            call()  # has no effect
            continue
        with pytest.raises(meron.StateError, match="was replaced"):
            call()
