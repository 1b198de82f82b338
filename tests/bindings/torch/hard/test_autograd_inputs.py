# SPDX-License-Identifier: Apache-2.0
"""Params as inputs of autograd: torch.autograd.grad, backward(inputs=...), graphs of a backward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from mlp import RANK, RANKS, data, loss, mlp, same, sgd
from torch import nn
from torch.autograd import grad
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

import meron
import meron.torch as mt

PLANS = ["zero0", "zero1", "zero2", "zero3"]
pytestmark = [pytest.mark.ranks(2), pytest.mark.parametrize("plan", PLANS)]
Optimizer = torch.optim.Optimizer


def sharded(plan: str, **options: Any) -> tuple[nn.Sequential, Optimizer]:
    model = mt.shard(mlp(), plan=plan, units=nn.Linear, **options)
    return model, mt.shard_optimizer(model, sgd(model))


def join(folder: Path) -> None:
    """Makes a gloo group of all ranks, which meet at a file."""
    where = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=where, rank=RANK, world_size=RANKS)
    dist.barrier()  # the group breaks if a rank ends before the others are connected


def trains(model: nn.Module, optimizer: Optimizer, plain: nn.Module, seed: int = 40) -> None:
    """Takes a step of both, and checks that they stay equal."""
    twin = sgd(plain)
    loss(model, seed + RANK).backward()
    optimizer.step()
    optimizer.zero_grad()
    twin.zero_grad()
    for rank in range(RANKS):
        (loss(plain, seed + rank) / RANKS).backward()
    twin.step()
    same(model, plain)


def first(model: nn.Module, value: torch.Tensor) -> Any:
    return grad(value, list(model.parameters()))


def of_one(model: Any, value: torch.Tensor) -> Any:
    return grad(value, model[2].weight)


def by_name(model: nn.Module, value: torch.Tensor) -> Any:
    found = grad(value, dict(model.named_parameters()))
    return [found[name] for name, _ in model.named_parameters()]


def twice(model: nn.Module, value: torch.Tensor) -> Any:
    grad(value, list(model.parameters()), retain_graph=True)
    return grad(value, list(model.parameters()))


def of_an_unused_one(model: Any, _value: torch.Tensor) -> Any:
    return grad(model[0](data(3)).sum(), list(model.parameters()), materialize_grads=True)


def batched(model: Any, _value: torch.Tensor) -> Any:
    output = model(data(3 + RANK)).sum(0)
    return grad(output, list(model.parameters()), torch.eye(8), is_grads_batched=True)


def of_edges(model: nn.Module, value: torch.Tensor) -> Any:
    return grad(value, [get_gradient_edge(param) for param in model.parameters()])


WAYS = [first, of_one, by_name, twice, of_an_unused_one, batched, of_edges]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_grad_returns_the_gradients_of_this_rank(plan: str, way: Callable[..., Any]) -> None:
    model, optimizer = sharded(plan)
    plain = mlp()
    found = way(model, loss(model, RANK))
    torch.testing.assert_close(found, way(plain, loss(plain, RANK)))
    assert all(type(each) is torch.Tensor for each in found)
    assert all(param.grad is None for param in model.parameters())
    trains(model, optimizer, plain)


def test_a_backward_follows_grad_in_the_same_graph(plan: str) -> None:
    model, optimizer = sharded(plan)
    plain = mlp()
    twin = sgd(plain)
    value = loss(model, RANK)
    before = grad(value, list(model.parameters()), retain_graph=True)
    value.backward()
    optimizer.step()
    for rank in range(RANKS):
        (loss(plain, rank) / RANKS).backward()
    torch.testing.assert_close(before, grad(loss(plain, RANK), list(plain.parameters())))
    twin.step()
    same(model, plain)


def test_an_unused_param_has_no_gradient(plan: str) -> None:
    model, optimizer = sharded(plan)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        grad(model[0](data(3)).sum(), list(model.parameters()))
    found = grad(model[0](data(3)).sum(), list(model.parameters()), allow_unused=True)
    assert [each is None for each in found] == [False, False, True, True]
    trains(model, optimizer, mlp())


def test_a_frozen_param_is_refused_as_by_torch(plan: str) -> None:
    plain = mlp()
    plain[0].weight.requires_grad_(False)
    model = mlp()
    model[0].weight.requires_grad_(False)
    mt.shard(model, plan=plan, units=nn.Linear)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(loss(model, RANK), list(model.parameters()))
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        loss(model, RANK).backward(inputs=list(model.parameters()))
    free = [param for param in model.parameters() if param.requires_grad]
    wanted = [param for param in plain.parameters() if param.requires_grad]
    torch.testing.assert_close(grad(loss(model, RANK), free), grad(loss(plain, RANK), wanted))


@pytest.mark.parametrize("function", [False, True], ids=["method", "function"])
def test_backward_reduces_its_inputs_alone(plan: str, function: bool) -> None:
    model, optimizer = sharded(plan)
    plain = mlp()
    twin = sgd(plain)
    for step in range(2):
        value, inputs = loss(model, step + RANK), [model[0].bias, model[2].weight]
        if function:
            torch.autograd.backward(value, inputs=inputs)
        else:
            value.backward(inputs=inputs)
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        for rank in range(RANKS):
            value = loss(plain, step + rank) / RANKS
            value.backward(inputs=[plain[0].bias, plain[2].weight])
        twin.step()
        same(model, plain)
    trains(model, optimizer, plain)


def test_hooks_see_guarded_params_in_grad(plan: str) -> None:
    model, _ = sharded(plan)
    other = mt.shard(mlp(), plan=plan)[0].weight
    refused = []

    def hook(_gradient: torch.Tensor) -> None:
        try:
            other.sum()
        except meron.StateError:
            refused.append(True)

    features = data(RANK).requires_grad_()
    features.register_hook(hook)
    grad(model(features).sum(), [features, model[0].weight])
    assert bool(refused) == (plan == "zero3")


def test_a_multi_grad_hook_takes_params_out_of_use(plan: str) -> None:
    model, optimizer = sharded(plan)
    seen: list[Any] = []
    handle = register_multi_grad_hook(list(model.parameters()), seen.append)
    loss(model, RANK).backward()
    optimizer.step()
    plain = mlp()
    (wanted,) = (grad(loss(plain, RANK), list(plain.parameters())),)
    torch.testing.assert_close(seen, [list(wanted)])
    handle.remove()


def test_training_continues_after_an_exception_in_grad(plan: str) -> None:
    model, optimizer = sharded(plan)

    def fail(_gradient: torch.Tensor) -> None:
        raise ValueError("no")

    for _ in range(2):
        features = data(RANK).requires_grad_()
        hidden = model[0](features)
        hidden.register_hook(fail)
        with pytest.raises(ValueError, match="no"):
            grad(model[2](hidden).sum(), list(model.parameters()), create_graph=True)
    trains(model, optimizer, mlp())


# ---- Graphs of a backward -----------------------------------------------------------------------


def penalty(model: nn.Module, seed: int) -> torch.Tensor:
    """Of the norm of the gradient of the input, as of a critic."""
    features = data(seed).requires_grad_()
    (found,) = grad(model(features).tanh().sum(), features, create_graph=True)
    return (found.norm(dim=1) - 1).square().mean()


def penalty_before_a_loss(model: nn.Module, seed: int) -> torch.Tensor:
    return penalty(model, seed) + loss(model, seed + 9)


def norm_of_gradients(model: nn.Module, seed: int) -> torch.Tensor:
    found = grad(loss(model, seed), list(model.parameters()), create_graph=True)
    return torch.stack([each.square().sum() for each in found]).sum()


PENALTIES = [penalty, penalty_before_a_loss, norm_of_gradients]


@pytest.mark.parametrize("objective", PENALTIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("transport", ["shm", "group"])
def test_trains_on_gradients_of_gradients(
    plan: str, objective: Callable[..., Any], transport: str, tmp_path: Path
) -> None:
    if transport == "group":
        join(tmp_path)
    model, optimizer = sharded(plan, transport=transport)
    plain = mlp()
    twin = sgd(plain)
    for step in range(3):
        objective(model, step + RANK).backward()
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        for rank in range(RANKS):
            (objective(plain, step + rank) / RANKS).backward()
        twin.step()
        same(model, plain)
    trains(model, optimizer, plain)
    assert all(unit.uses == 0 for unit in units_of(model))


@pytest.mark.parametrize("transport", ["shm", "group"])
def test_multiplies_vectors_by_the_hessian(plan: str, transport: str, tmp_path: Path) -> None:
    if transport == "group":
        join(tmp_path)
    model, optimizer = sharded(plan, transport=transport)
    products = []
    plain = mlp()
    for each in (model, plain):
        params = list(each.parameters())
        found = grad(loss(each, RANK), params, create_graph=True)
        vectors = [torch.full(param.shape, 0.5) for param in params]
        for _ in range(2):
            vectors = list(grad(found, params, vectors, retain_graph=True))
        products.append(vectors)
    torch.testing.assert_close(*products)
    trains(model, optimizer, plain)


def units_of(model: nn.Module) -> list[Any]:
    return [param._meron[0] for param in model.parameters()]
