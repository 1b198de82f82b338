# SPDX-License-Identifier: Apache-2.0
"""Tiled linear layers: equal to the undivided one; stage 3 gathers a tile at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.zero.tiling import bounds
from model import RANK, RANKS, config

pytestmark = pytest.mark.ranks(2)

# Nothing stays gathered, and nothing is gathered ahead.
ONE_AT_A_TIME = {
    "stage": 3,
    "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 0,
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
}


def whole_numbers(linear: Any) -> Any:
    """Sets params whose products have exact sums in any order."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for param in linear.parameters():
            param.copy_(torch.randint(-4, 5, param.shape, generator=generator))
    return linear


def test_equals_the_undivided_layer() -> None:
    x = torch.randint(-4, 5, (3, 2, 10)).float()
    for bias in (True, False):
        linear = whole_numbers(nn.Linear(10, 7, bias=bias))
        expected = linear(x)
        expected.square().sum().backward()
        for in_splits in (1, 3, 10):
            for out_splits in (1, 2, 7):
                options = {"in_splits": in_splits, "out_splits": out_splits, "bias": bias}
                tiled = zero.TiledLinear(10, 7, init_linear=linear, **options)  # type: ignore
                own = x.clone().requires_grad_()
                assert torch.equal(tiled(own), expected)
                tiled(own).square().sum().backward()
                theirs = x.clone().requires_grad_()
                linear(theirs).square().sum().backward()
                assert torch.equal(own.grad, theirs.grad)  # type: ignore[arg-type]
                split = zero.TiledLinear(
                    10,
                    7,
                    init_linear=linear,
                    input_is_already_split=True,
                    combine_out_splits=False,
                    **options,  # type: ignore
                )
                outs = split(
                    x.split([b - a for a, b in zip(split.in_parts, split.in_parts[1:])], -1)
                )
                assert len(outs) == out_splits and torch.equal(torch.cat(outs, -1), expected)
    assert bounds(10, 3) == [0, 4, 7, 10]


def test_approximates_the_undivided_layer_with_any_values() -> None:
    torch.manual_seed(1)
    linear, x = nn.Linear(40, 30), torch.randn(5, 40)
    tiled = zero.TiledLinear(40, 30, in_splits=4, out_splits=3, init_linear=linear)
    torch.testing.assert_close(tiled(x), linear(x))
    assert "in_splits=4" in repr(tiled)
    assert [len(row) for row in tiled.linears] == [4, 4, 4]  # type: ignore[arg-type]


class ReturnsBias(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return nn.functional.linear(x, self.weight), self.bias


def test_tiles_layers_that_return_their_bias() -> None:
    x = torch.randint(-4, 5, (3, 10)).float()
    for bias in (True, False):
        linear = whole_numbers(nn.Linear(10, 6, bias=bias))
        options: dict[str, Any] = {"linear_cls": ReturnsBias, "init_linear": linear, "bias": bias}
        tiled = zero.TiledLinearReturnBias(10, 6, in_splits=2, out_splits=3, **options)
        output, own_bias = tiled(x)
        assert (own_bias is None) is not bias
        assert torch.equal(output if own_bias is None else output + own_bias, linear(x))
        options["combine_out_splits"] = False
        pairs = zero.TiledLinearReturnBias(10, 6, out_splits=3, **options)(x)
        assert [tuple(output.shape) for output, _ in pairs] == [(3, 2)] * 3


def test_rejects_misuse_of_tiles() -> None:
    for splits in ({"in_splits": 0}, {"in_splits": 5}, {"out_splits": 4}, {"out_splits": True}):
        with pytest.raises(RuntimeError, match="must be in the range 1 to"):
            zero.TiledLinear(4, 3, **splits)  # type: ignore[arg-type]
    with pytest.raises(meron.ArgumentError, match="_splits"):
        zero.TiledLinear(4, 3, in_splits=-1)
    with pytest.raises(TypeError, match="in_split"):
        zero.TiledLinear(4, 3, in_split=2)
    tiled = zero.TiledLinear(4, 3, in_splits=2)
    before = [param.clone() for param in tiled.parameters()]
    with pytest.raises(meron.ArgumentError, match=re.escape("(3, 5)")):
        tiled.copy_params_from(nn.Linear(5, 3))
    with pytest.raises(meron.ArgumentError, match="no bias"):
        tiled.copy_params_from(nn.Linear(4, 3, bias=False))
    assert all(map(torch.equal, before, tiled.parameters()))
    with pytest.raises(meron.ArgumentError, match="5 features"):
        tiled(torch.ones(1, 5))
    split = zero.TiledLinear(4, 3, in_splits=2, input_is_already_split=True)
    with pytest.raises(meron.ArgumentError, match=re.escape("[1, 3] features")):
        split([torch.ones(1, 1), torch.ones(1, 3)])


def test_trains_as_the_undivided_layer_at_each_stage() -> None:
    for stage in range(4):
        linear = whole_numbers(nn.Linear(8, 6))
        tiled = zero.TiledLinear(8, 6, in_splits=2, out_splits=3, init_linear=linear)
        engine, *_ = zero.initialize(model=tiled, config=config(stage))
        plain = torch.optim.SGD(linear.parameters(), lr=0.1)
        for step in range(2):
            x = torch.arange(16.0).view(2, 8) + step
            engine.backward(engine(x).square().mean() / 64)
            engine.step()
            plain.zero_grad()
            (linear(x).square().mean() / 64).backward()
            plain.step()
        with zero.GatheredParameters(list(tiled.parameters())):
            weight = torch.cat(
                [torch.cat([tile.weight for tile in row], 1) for row in tiled.linears]  # type: ignore
            )
            torch.testing.assert_close(weight.detach(), linear.weight.detach())
        engine.destroy()


def gathered_at_a_time(model: nn.Module) -> int:
    """Returns the most bytes of params that are in use at a time in a step at stage 3."""
    engine, *_ = zero.initialize(
        model=model,
        config=config(zero_optimization=ONE_AT_A_TIME, train_micro_batch_size_per_gpu=1),
    )
    most = 0

    def look(*_: Any) -> None:
        nonlocal most
        inside = {id(u): u for p in model.parameters() for u in [p._meron[0]] if u.uses}  # type: ignore
        sizes = [sum(h.size * 4 for h in unit.handles) for unit in inside.values()]
        most = max(most, sum(sizes))

    for part in model.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_hook(look)
            part.register_full_backward_hook(look)
    for _ in range(2):
        engine.backward(engine(torch.ones(1, 64, requires_grad=True)).sum())
        engine.step()
    engine.destroy()
    return most


def test_gathers_one_tile_at_a_time() -> None:
    with zero.Init(config_dict_or_path=config(zero_optimization=ONE_AT_A_TIME)):
        whole = nn.Sequential(nn.Linear(64, 128, bias=False))
        tiled = nn.Sequential(zero.TiledLinear(64, 128, bias=False, in_splits=2, out_splits=4))
    size = 64 * 128 * 4
    assert gathered_at_a_time(whole) == size
    # In the backward a tile may be in use until the next one begins.
    assert gathered_at_a_time(tiled) <= 2 * size // 8


def test_copies_values_of_a_sharded_layer_into_sharded_tiles() -> None:
    torch.manual_seed(RANK)  # rank 0's values count
    with zero.Init(config_dict_or_path=config()):
        linear = nn.Linear(12, 10)
        tiled = zero.TiledLinear(12, 10, in_splits=3, out_splits=2, init_linear=linear)
    x = torch.ones(2, 12)
    torch.testing.assert_close(tiled(x), linear(x))
    assert RANKS == 1 or tiled.linears[0][0].weight.ds_shape == (5, 4)  # type: ignore
    with zero.GatheredParameters(list(linear.parameters())):
        tiled.copy_params_from(linear)
    torch.testing.assert_close(tiled(x), linear(x))
