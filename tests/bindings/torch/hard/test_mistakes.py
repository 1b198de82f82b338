# SPDX-License-Identifier: Apache-2.0
"""Exceptions in a pass, and mistakes of the caller."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any, NoReturn

import pytest
import torch
from mlp import RANK, backward_all, data, is_sharded, loss, mlp, same, sgd, sharded
from torch import nn

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2)


def test_trains_after_exceptions_in_a_pass() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor, broken: bool = False) -> torch.Tensor:
            hidden = self.a(x)
            if broken:
                raise ValueError("in the forward")
            return self.b(hidden)

    class InBackward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> NoReturn:  # type: ignore[override]
            raise ValueError("in the backward")

    def hook(*_: object) -> NoReturn:
        raise ValueError("in a hook")

    plain, model = Breaks(), Breaks()
    mt.shard(model, units=nn.Linear)
    optimizer = mt.shard_optimizer(model, sgd(model))
    with pytest.raises(ValueError, match="in the forward"):
        model(data(RANK), broken=True)
    out = model(data(RANK))
    out.register_hook(hook)
    with pytest.raises(ValueError, match="in a hook"):
        out.sum().backward()
    handle = model.b.register_forward_hook(hook)
    with pytest.raises(ValueError, match="in a hook"):
        model(data(RANK))
    handle.remove()
    optimizer.zero_grad()
    value = model.b(InBackward.apply(model.a(data(RANK)))).sum()
    with pytest.raises(ValueError, match="in the backward"):
        value.backward()
    optimizer.zero_grad()
    assert all(map(is_sharded, model.parameters()))
    loss(model, RANK).backward()
    optimizer.step()
    backward_all(plain, 0)
    sgd(plain).step()
    same(model, plain)


def test_rejects_modules_that_it_cannot_shard() -> None:
    model = mt.shard(mlp())
    with pytest.raises(meron.StateError, match="sharded already"):
        mt.shard(model)
    with pytest.raises(meron.StateError, match="cannot be a leaf"):
        mt.shard(nn.Sequential(model), leaf=True)
    with pytest.raises(meron.ArgumentError, match="float64"):
        mt.shard(nn.Linear(3, 3).double())
    with pytest.raises(meron.ArgumentError, match="fits no submodule"):
        mt.shard(mlp(), units=nn.Conv1d)


def test_rejects_moves_and_casts_of_a_model() -> None:
    model = mt.shard(mlp())
    for move in (lambda: model.to(torch.float64), model.half, lambda: model.to("meta")):
        with pytest.raises(meron.StateError, match="cannot be moved"):
            move()
    assert model.to("cpu").float() is model  # changes nothing


def test_rejects_values_that_do_not_fit_a_param() -> None:
    model = mt.shard(mlp())
    weight = model[0].weight
    with pytest.raises(meron.ArgumentError, match="no sharded param"):
        mt.full_param(torch.ones(3))
    with pytest.raises(meron.ArgumentError, match="has shape"):
        mt.set_full_param(weight, torch.ones(3))


def test_rejects_optimizers_that_it_cannot_shard() -> None:
    model = mt.shard(mlp())
    with pytest.raises(meron.StateError, match="is not sharded"):
        mt.AdamW(mlp())
    plain = sgd(model)
    loss(model, RANK).backward()
    with pytest.raises(meron.StateError, match=r"0\.weight, which is sharded"):
        plain.step()
    whole = torch.optim.LBFGS(model.parameters())
    with pytest.raises(meron.ArgumentError, match="not elementwise"):
        mt.shard_optimizer(model, whole)
    other = sgd(mlp())
    with pytest.raises(meron.ArgumentError, match="does not have"):
        mt.shard_optimizer(model, other)
    optimizer = mt.shard_optimizer(model, plain)
    with pytest.raises(meron.StateError, match="already"):
        mt.shard_optimizer(model, plain)
    mt.clip_grad_norm_(model, 1.0)
    with pytest.raises(meron.StateError, match="were finished"):
        loss(model, RANK).backward()
    optimizer.zero_grad()
    optimizer.step()  # without a gradient, it has no effect


def test_rejects_an_optimizer_with_unsharded_params() -> None:
    half = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    mt.shard(half[0])
    with pytest.raises(meron.ArgumentError, match=r"1\.weight"):
        mt.shard_optimizer(half, sgd(half))


def test_rejects_copies_of_a_model() -> None:
    model, _ = sharded()
    outer = nn.Sequential(model)
    with pytest.raises(meron.StateError, match="state_dict"):
        copy.deepcopy(outer)
    with pytest.raises(meron.StateError, match="state_dict"):
        pickle.dumps(model)


def test_rejects_unfreezing_after_shard() -> None:
    model = mlp()
    model[0].weight.requires_grad_(False)
    mt.shard(model)
    model[0].weight.requires_grad_(True)
    with pytest.raises(meron.StateError, match="was frozen"):
        model(data(RANK))


def test_second_backward_raises_the_error_of_torch() -> None:
    model, optimizer = sharded()
    value = loss(model, RANK)
    value.backward()
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()
    optimizer.zero_grad()
    loss(model, RANK).backward()
    optimizer.step()


class SkipsALayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x: torch.Tensor, skip: int | None = None) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            if i != skip:
                x = layer(x)
        return x


@pytest.mark.ranks(2)
@pytest.mark.parametrize("ahead", [0, 10**6])
def test_ranks_that_run_different_layers_see_both_names(ahead: int) -> None:
    model = mt.shard(SkipsALayer(), units=nn.Linear, persist_elements=0, prefetch_elements=ahead)
    optimizer = mt.shard_optimizer(model, sgd(model))
    for _ in range(3):
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
    begun = time.monotonic()
    with pytest.raises(meron.MismatchError, match=r"layers\.3") as caught:
        model(torch.ones(2, 8), 3 if RANK == 1 else None).sum().backward()
        optimizer.step()
    assert str(caught.value).count("layers.") == 2
    assert time.monotonic() - begun < 1
