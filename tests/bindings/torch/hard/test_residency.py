# SPDX-License-Identifier: Apache-2.0
"""When params are gathered and sharded, and what hooks see."""

from __future__ import annotations

import pytest
import torch
from mlp import RANK, data, is_sharded, loss, mlp, sgd, sharded
from torch import nn

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(1, 2)


def test_sharded_params_hold_no_memory() -> None:
    model, _ = sharded()
    for param in model.parameters():
        assert param.untyped_storage().nbytes() <= 8
        assert is_sharded(param)
    assert [param.shape for param in model.parameters()] == [p.shape for p in mlp().parameters()]


def test_user_hooks_see_full_params() -> None:
    plain = mlp()
    seen: list[torch.Tensor] = []
    model = mlp()
    model[0].register_forward_pre_hook(lambda module, _: seen.append(module.weight.clone()))
    mt.shard(model, units=nn.Linear)
    model[0].register_forward_hook(lambda module, *_: seen.append(module.weight.clone()))
    doubled = model[2].register_forward_hook(lambda module, _, output: output * 2)
    assert torch.equal(model(data(1)), plain(data(1)) * 2)
    doubled.remove()
    assert len(seen) == 2 and all(torch.equal(value, plain[0].weight) for value in seen)
    inputs: list[torch.Tensor] = []
    model[2].register_full_backward_hook(lambda module, given, _: inputs.extend(given))
    loss(model, 1).backward()
    assert len(inputs) == 1


def test_forward_uses_a_swapped_or_tied_param() -> None:
    model = mt.shard(mlp(), units=nn.Linear)
    other = torch.zeros(8, 8)
    swapped = torch.func.functional_call(model[0], {"weight": other}, data(1))
    assert torch.equal(swapped, mlp()[0].bias.expand(4, 8))
    assert "weight" not in model[0].__dict__
    tied = mt.shard(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), units=nn.Linear)
    tied[1].weight = tied[0].weight  # another unit's param
    value = mt.full_param(tied[0].weight)
    with torch.no_grad():
        expected = data(1) @ value.T + mt.full_param(tied[0].bias)
        expected = expected @ value.T + mt.full_param(tied[1].bias)
        torch.testing.assert_close(tied(data(1)), expected)


def test_outputs_keep_their_hooks() -> None:
    plain, (model, _) = mlp(), sharded()
    gradients: list[torch.Tensor] = []
    for each in (plain, model):
        each[0].register_forward_hook(
            lambda _module, _args, output: output.register_hook(gradients.append) and None
        )
        output = each(data(1))
        handle = output.register_hook(lambda gradient: gradient * 3)
        output.sum().backward(retain_graph=True)
        handle.remove()
        output.sum().backward()
    assert len(gradients) == 4
    for mine, torchs in zip(gradients[2:], gradients[:2]):
        torch.testing.assert_close(mine, torchs)


def test_unshard_gathers_until_reshard() -> None:
    model, _ = sharded()
    mt.unshard(model)
    assert model[0].weight.isfinite().all()
    loss(model, RANK).backward()
    assert model[0].weight.isfinite().all()
    mt.reshard(model)
    assert is_sharded(model[0].weight)
    mt.prefetch(model)
    assert loss(model, RANK).isfinite()


def test_keeps_params_from_forward_to_backward() -> None:
    model, _ = sharded(reshard_after_forward=False)
    value = loss(model, RANK)
    assert model[0].weight.isfinite().all()
    value.backward()
    assert is_sharded(model[0].weight)


def test_steps_after_an_unused_prefetch() -> None:
    model, optimizer = sharded()
    loss(model, RANK).backward()
    mt.prefetch(model)
    optimizer.step()


def test_initializes_params_on_meta() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.BatchNorm1d(8))
    mt.shard(model, units=nn.Linear, seed=5)
    weight = mt.full_param(model[0].weight)
    assert weight.abs().max() <= 8**-0.5 and weight.std() > 0.1
    everywhere = weight.clone()
    mt.context_for("zero3").world.broadcast(everywhere.numpy())
    assert torch.equal(weight, everywhere), "ranks have different values"
    assert torch.equal(mt.full_param(model[1].weight), torch.ones(8))
    assert torch.equal(model[2].running_var, torch.ones(8))
    optimizer = mt.shard_optimizer(model, sgd(model))
    loss(model, RANK).backward()
    optimizer.step()


def test_rejects_params_on_meta_that_nothing_initializes() -> None:
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(8, 8), nn.Module())
        empty[1].weight = nn.Parameter(torch.empty(3))
    with pytest.raises(meron.ArgumentError, match="has no reset_parameters"):
        mt.shard(empty)
    partly = nn.Linear(8, 8, device="meta")
    partly.bias = nn.Parameter(torch.zeros(8))
    with pytest.raises(meron.ArgumentError, match="meta in part"):
        mt.shard(partly)


def test_keeps_real_params_beside_params_on_meta() -> None:
    mixed = nn.Sequential(nn.Linear(8, 8, device="meta"), mlp()[0])
    expected = mixed[1].weight.detach().clone()
    mt.shard(mixed, seed=5)
    assert torch.equal(mt.full_param(mixed[1].weight), expected)
    assert mt.full_param(mixed[0].weight).std() > 0.1
