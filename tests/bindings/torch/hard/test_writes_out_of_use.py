# SPDX-License-Identifier: Apache-2.0
"""In-place writes to params between steps, under plans whose params are readable then."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from mlp import RANK, RANKS, backward_all, data, loss, mlp, same, sgd
from torch import nn

import meron
import meron.torch as mt
from meron.torch.optim.states import read_state

pytestmark = [
    pytest.mark.ranks(1, 2, 3),
    pytest.mark.ranks(1, 2, name="emulated", environment={"MERON_TORCH_DEVICE": "emulated"}),
]

PLANS = ["zero0", "zero1", "zero2"]


def clip(model: nn.Module) -> None:
    """The critic of a Wasserstein GAN."""
    for param in model.parameters():
        param.data.clamp_(-0.1, 0.1)


def scale(model: nn.Module) -> None:
    with torch.no_grad():
        for param in model.parameters():
            param.mul_(0.9).add_(param.sign(), alpha=0.01)


def assign(model: nn.Module) -> None:
    for param in model.parameters():
        param.data = param.data * 0.5
        param.data += 0.25


def in_items(model: nn.Module) -> None:
    with torch.no_grad():
        model[0].weight[1] = 0.5  # type: ignore[index]
        model[0].bias[2:4].zero_()  # type: ignore[index]
        model[2].weight.t()[0].fill_(0.125)  # type: ignore[index]


def together(model: nn.Module) -> None:
    params = [param.data for param in model.parameters()]
    torch._foreach_mul_(params, 0.75)
    torch.add(params[0], 1.0, out=params[0])


def by_vector(model: nn.Module) -> None:
    vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    torch.nn.utils.vector_to_parameters(vector * 0.5, model.parameters())


def filled(model: nn.Module) -> None:
    nn.init.ones_(model[0].weight)  # type: ignore[index,arg-type]
    nn.init.constant_(tensor=model[2].bias, val=0.5)  # type: ignore[index,arg-type]


WRITES = [clip, scale, assign, in_items, together, by_vector, filled]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_between_steps_count(plan: str, write: Callable[[nn.Module], None]) -> None:
    model, plain = mt.shard(mlp(), plan=plan, units=nn.Linear), mlp()
    rule = plan != "zero1"
    optimizer: Any = mt.SGD(model, lr=0.1) if rule else mt.shard_optimizer(model, sgd(model))
    twin = sgd(plain)
    for step in range(3):
        loss(model, step + RANK).backward()
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        backward_all(plain, step)
        twin.step()
        write(model)
        write(plain)
        same(model, plain, rtol=1e-5, atol=1e-6)
        for param, expected in zip(model.parameters(), plain.parameters()):
            torch.testing.assert_close(param.detach().cpu(), expected.detach())


@pytest.mark.parametrize("plan", PLANS)
def test_averages_of_weights_follow_a_model(plan: str) -> None:
    plain = mlp()
    average = mt.shard(mlp(), plan=plan)
    model = mt.shard(mlp(), plan="zero3")
    optimizer, twin = mt.SGD(model, lr=0.1), sgd(plain)
    expected = copy.deepcopy(plain)
    for step in range(3):
        loss(model, step + RANK).backward()
        optimizer.step()
        twin.zero_grad()
        backward_all(plain, step)
        twin.step()
        for mean, param in zip(average.parameters(), model.parameters()):
            mean.data.mul_(0.9).add_(mt.full_param(param).to(mean.device), alpha=0.1)
        for mean, param in zip(expected.parameters(), plain.parameters()):
            mean.data.mul_(0.9).add_(param.data, alpha=0.1)
    same(average, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(loss(average, 5).cpu(), loss(expected, 5))


@pytest.mark.parametrize("plan", PLANS)
def test_gradients_that_wait_stay(plan: str) -> None:
    model, plain = mt.shard(mlp(), plan=plan), mlp()
    optimizer, twin = mt.SGD(model, lr=0.1), sgd(plain)
    for number in range(2):
        loss(model, number + RANK).backward()
        backward_all(plain, number)
        clip(model)
        clip(plain)
    optimizer.step()
    twin.step()
    same(model, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("rule", [True, False])
def test_elements_that_do_not_change_keep_their_f32_values(plan: str, rule: bool) -> None:
    model = mt.shard(mlp(), plan=plan, mp=mt.MixedPrecision(torch.bfloat16))
    optimizer: Any = mt.SGD(model, lr=1e-3)
    if not rule:
        own = torch.optim.SGD(model.parameters(), lr=1e-3)
        optimizer = mt.shard_optimizer(model, own)
    for step in range(2):
        loss(model, step + RANK).backward()
        optimizer.step()
    before = masters_of(optimizer, model)
    assert any((each != each.bfloat16()).any() for each in before) or RANK > 0
    for _ in range(2):
        model[0].weight.data.clamp_(-0.1, 0.1)
        model[2].bias.data.clamp_(-9, 9)  # changes nothing
    after = masters_of(optimizer, model)
    for index, (old, new) in enumerate(zip(before, after)):
        limit = torch.tensor(0.1).bfloat16().float()
        cut = old.bfloat16().float().clamp(-0.1, 0.1).bfloat16().float().abs() == limit
        outside = cut & (old.bfloat16().float().abs() > limit)
        expected = torch.where(outside, old.sign() * limit, old) if index == 0 else old
        assert torch.equal(new, expected), index
    loss(model, RANK).backward()
    optimizer.step()


def masters_of(optimizer: Any, model: nn.Module) -> list[torch.Tensor]:
    """Copies of the f32 values of this rank's shards."""
    found = []
    for unit, i in (param._meron for param in model.parameters()):
        if isinstance(optimizer, mt.EngineOptimizer):
            found.append(read_state(optimizer, unit, i, "master"))
        else:
            found.append(optimizer._meron_shards.parts[unit][i].detach().clone())
    return found


@pytest.mark.parametrize("plan", PLANS)
def test_ranks_end_with_equal_values(plan: str) -> None:
    """If they write different ones, the shard of each rank counts."""
    model = mt.shard(mlp(), plan=plan)
    model[0].weight.data.fill_(float(RANK))
    value = mt.full_param(model[0].weight)
    assert torch.equal(value, model[0].weight.detach().cpu())
    everyone = model[0].weight._meron[0].sharding.context.world
    total = value.numpy().copy()
    if RANKS > 1:
        everyone.all_reduce(total)
    assert (total == value.numpy() * RANKS).all()
    if plan != "zero0":
        assert set(value.flatten().tolist()) <= {float(rank) for rank in range(RANKS)}
    else:
        assert not value.any()


@pytest.mark.parametrize("plan", PLANS)
def test_a_failed_write_changes_nothing(plan: str) -> None:
    model = mt.shard(mlp(), plan=plan)
    plain = mlp()
    weight: Any = model[0].weight
    failing: list[tuple[Any, Callable[[], Any]]] = [
        (RuntimeError, lambda: weight.data.add_(torch.ones(3))),
        (RuntimeError, lambda: weight.add_(1.0)),  # without no_grad
        (TypeError, lambda: weight.data.clamp_(mni=0.0)),
        (meron.StateError, lambda: setattr(weight, "data", torch.ones(3))),
        (meron.StateError, lambda: setattr(weight, "data", weight.data.double())),
        (meron.StateError, lambda: weight.data.t_()),
        (meron.StateError, lambda: weight.data.resize_(4)),
    ]
    for _ in range(2):
        for kind, write in failing:
            with pytest.raises(kind):
                write()
            assert torch.equal(weight.detach().cpu(), plain[0].weight)
    same(model, plain, rtol=0, atol=0)
    with torch.no_grad():
        weight.add_(1.0)
    assert torch.equal(weight.detach().cpu(), plain[0].weight + 1)


@pytest.mark.parametrize("plan", PLANS)
def test_aliases_that_were_made_before_see_and_write_the_values(plan: str) -> None:
    model, plain = mt.shard(mlp(), plan=plan), mlp()
    optimizer, twin = mt.SGD(model, lr=0.1), sgd(plain)
    kept = [param.data for param in model.parameters()]
    others = [param.data for param in plain.parameters()]
    for step in range(2):
        loss(model, step + RANK).backward()
        optimizer.step()
        twin.zero_grad()
        backward_all(plain, step)
        twin.step()
        for alias, other, param in zip(kept, others, model.parameters()):
            assert alias.mul_(0.5) is alias
            other.mul_(0.5)
            torch.testing.assert_close(alias.cpu(), other, rtol=1e-5, atol=1e-6)
            assert torch.equal(alias.cpu(), param.detach().cpu())
    same(model, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("plan", PLANS)
def test_frozen_params_can_be_written(plan: str) -> None:
    """As an adapter is merged into a frozen weight."""
    model = mlp()
    model[0].requires_grad_(False)
    expected = model[0].weight.detach() + 1
    mt.shard(model, plan=plan)
    model[0].weight.data += torch.ones(8, 8)
    assert torch.equal(mt.full_param(model[0].weight), expected)
    model[0].weight.data -= torch.ones(8, 8)
    loss(model, 0).backward()


def test_sharded_params_are_not_written() -> None:
    model, plain = mt.shard(mlp()), mlp()
    for write in (clip, scale, assign):
        with pytest.raises(meron.StateError, match="sharded"):
            write(model)
    same(model, plain, rtol=0, atol=0)


@pytest.mark.parametrize("plan", PLANS)
def test_params_are_not_written_in_a_forward_or_backward(plan: str) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.shift = nn.Parameter(torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if kept:
                kept[0].zero_()
            return self.second(self.first(x) + self.shift)

    kept: list[torch.Tensor] = []
    model = mt.shard(Writes(), plan=plan, units=nn.Linear)
    before = mt.full_param(model.second.weight)
    alias = model.second.weight.data
    for _ in range(2):
        kept.append(alias)
        with pytest.raises(meron.StateError, match=r"second\.weight' is sharded"):
            model(data(0))
        kept.clear()
        output = model(data(0))
        output.register_hook(lambda _gradient: alias.zero_() and None)
        with pytest.raises(meron.StateError, match=r"second\.weight' is sharded"):
            output.sum().backward()
        assert torch.equal(before, mt.full_param(model.second.weight))
    model(data(0)).sum().backward()


def test_writes_count_over_a_process_group(tmp_path: Path) -> None:
    """Ranks share no memory: unsharded values are copies."""
    if RANKS == 1:
        return
    mt.context_for("zero3")
    meeting = f"file://{tmp_path}/rendezvous"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)
    dist.barrier()
    for plan in PLANS:
        model, plain = mt.shard(mlp(), plan=plan, units=nn.Linear, transport="group"), mlp()
        optimizer, twin = mt.SGD(model, lr=0.1), sgd(plain)
        for step, write in enumerate(WRITES):
            loss(model, step + RANK).backward()
            optimizer.step()
            twin.zero_grad()
            backward_all(plain, step)
            twin.step()
            write(model)
            write(plain)
            same(model, plain, rtol=1e-4, atol=1e-5)
            for param, expected in zip(model.parameters(), plain.parameters()):
                close = torch.testing.assert_close
                close(param.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_write_of_one_rank_alone_is_named_on_all() -> None:
    if RANKS == 1:
        return
    model = mt.shard(mlp(), plan="zero2")
    if RANK == 0:
        with pytest.raises(meron.MismatchError, match=r"'Sequential\.0\.weight' was written"):
            model[0].weight.data.zero_()
    else:
        with pytest.raises(meron.MismatchError, match="update"):
            loss(model, RANK).backward()
