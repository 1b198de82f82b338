# SPDX-License-Identifier: Apache-2.0
"""FSDP2's methods on sharded modules and params: they work, or name what does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mlp import RANK, RANKS, data, loss, mlp, same, sgd
from torch import nn

import meron
import meron.torch as mt
from meron.torch.fsdp_names import REFUSED

pytestmark = [pytest.mark.ranks(2), pytest.mark.parametrize("plan", ["zero1", "zero3"])]


def sharded(plan: str) -> Any:
    return mt.shard(mlp(), plan=plan, units=nn.Linear)


def test_gradients_are_synced_at_the_last_backward(plan: str) -> None:
    model = sharded(plan)
    optimizer = mt.shard_optimizer(model, sgd(model))
    plain = mlp()
    twin = sgd(plain)
    for step in range(2):
        for batch in range(2):
            model.set_requires_gradient_sync(batch == 1)
            model.set_is_last_backward(batch == 1)
            loss(model, 10 * step + 2 * batch + RANK).backward()
        optimizer.step()
        twin.zero_grad()
        for seed in range(2 * RANKS):
            (loss(plain, 10 * step + seed) / RANKS).backward()
        twin.step()
        same(model, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("in_background", [False, True])
def test_unshards_and_reshards(plan: str, in_background: bool) -> None:
    layer = sharded(plan)[0]
    for _ in range(2):
        handle = layer.unshard(async_op=in_background)
        assert (handle is not None) == in_background
        if handle is not None:
            handle.wait()
            handle.wait()
        assert torch.equal(layer.weight.detach().clone(), mlp()[0].weight.detach())
        layer.reshard()
        layer.reshard()
    with pytest.raises(TypeError):
        layer.unshard(asynchronous=True)


def test_other_methods_say_what_to_do(plan: str) -> None:
    model = sharded(plan)
    for name in REFUSED:
        with pytest.raises(meron.UnsupportedError, match=name):
            getattr(model, name)(1)
    with pytest.raises(meron.UnsupportedError, match="recurse=False"):
        model.set_requires_gradient_sync(False, recurse=False)


def test_params_name_the_functions_of_dtensor(plan: str) -> None:
    weight = sharded(plan)[0].weight
    with pytest.raises(AttributeError, match=r"meron\.torch\.full_param"):
        weight.full_tensor()
    with pytest.raises(AttributeError, match=r"meron\.torch\.local_param"):
        weight.to_local()
    assert not hasattr(weight, "full_tensor")
    assert not hasattr(weight.detach(), "to_local")


def test_a_module_keeps_its_own_method(plan: str) -> None:
    class Own(nn.Linear):
        def unshard(self) -> str:
            return "mine"

    layer = mt.shard(Own(8, 8), plan=plan)
    assert layer.unshard() == "mine"
    layer(data(RANK)).sum().backward()
    mt.destroy(layer)
