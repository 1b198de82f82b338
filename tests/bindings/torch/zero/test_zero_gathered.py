# SPDX-License-Identifier: Apache-2.0
"""zero.GatheredParameters, and params that are gathered one by one."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.torch.sharding import unit_of
from model import RANK, RANKS, assert_equal_weights, config, on_device, train, twins, whole

pytestmark = [pytest.mark.ranks(1, 3), on_device(2)]


def test_gathers_full_values_and_keeps_those_of_the_modifier_rank() -> None:
    for stage in (1, 3):
        model, plain = twins()
        zero.initialize(model=model, config=config(stage))
        with zero.GatheredParameters(model.parameters()):
            for param, expected in zip(model.parameters(), plain.parameters(), strict=True):
                assert torch.equal(param, expected)
        weight = model.blocks[0].up.weight
        with zero.GatheredParameters(weight):
            with torch.no_grad():
                weight.fill_(9.0)
            assert float(weight.detach().sum()) == 9.0 * weight.numel()
        assert torch.equal(whole(weight), plain.blocks[0].up.weight)  # dropped
        gathered = zero.GatheredParameters([weight, model.shift], modifier_rank=RANKS - 1)
        with gathered, torch.no_grad():
            weight.fill_(float(RANK))
            model.shift.fill_(float(RANK + 1))
            model.blocks[0].up.bias.fill_(5.0)  # not in the list: dropped
        assert torch.equal(whole(weight), torch.full_like(plain.blocks[0].up.weight, RANKS - 1))
        assert torch.equal(whole(model.shift), torch.full((12,), float(RANKS)))
        assert torch.equal(whole(model.blocks[0].up.bias), plain.blocks[0].up.bias)
        with zero.GatheredParameters(weight, enabled=False):
            if weight.ds_persist:  # small, at stage 1
                assert torch.equal(weight, whole(weight))
            else:
                with pytest.raises(meron.StateError, match="full_param"):
                    weight.sum()
        with zero.GatheredParameters([nn.Parameter(torch.ones(2))], modifier_rank=0):
            pass  # not sharded
        with pytest.raises(meron.ArgumentError, match="modifier_rank"):
            zero.GatheredParameters(weight, modifier_rank=RANKS).__enter__()


def test_nests_gathers() -> None:
    model = zero.initialize(model=twins()[0], config=config())[0].module
    layer = model.blocks[0].up
    with zero.GatheredParameters(layer.weight, modifier_rank=0):
        with torch.no_grad():
            layer.weight.fill_(1.0)
        with zero.GatheredParameters(layer.bias, modifier_rank=0), torch.no_grad():
            layer.bias.fill_(2.0)
        assert float(layer.weight.detach().min()) == 1.0
        with pytest.raises(meron.StateError, match="gathered already"):
            zero.GatheredParameters(layer.weight).__enter__()
    assert float(whole(layer.weight).min()) == 1.0 and float(whole(layer.bias).min()) == 2.0


def test_forward_runs_within_a_gather() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    x = torch.arange(10).view(2, 5)
    with torch.no_grad(), zero.GatheredParameters(model.parameters()):
        assert torch.equal(engine(x), plain(x))
        model.shift.add_(1.0)
        plain.shift.add_(1.0)
        assert torch.equal(engine(x), plain(x))
        assert torch.equal(model.shift, plain.shift)
        plain.shift.sub_(1.0)
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 2)
    assert_equal_weights(model, plain, 1e-6)


def test_sanity_checks_detect_changes() -> None:
    settings = config(zero_optimization={"stage": 3, "enable_sanity_checks": True})
    model = zero.initialize(model=nn.Linear(3, 5), config=settings)[0].module
    refused = pytest.raises(meron.StateError, match="changed in a GatheredParameters")
    with refused, zero.GatheredParameters(model.weight), torch.no_grad():
        if RANK == RANKS - 1:
            model.weight.add_(1.0)


def test_warns_of_a_change_that_no_modifier_rank_keeps() -> None:
    for stage in (1, 3):
        model = zero.initialize(model=nn.Linear(3, 5), config=config(stage))[0].module
        before = whole(model.weight)
        dropped = r"'Linear(#\d+)?.weight' changed on rank \d+ within GatheredParameters.*dropped"
        for change in (
            lambda weight: weight.data.mul_(0.5),  # as moving averages do
            lambda weight: setattr(weight, "data", weight.data + 1),
        ):
            with pytest.warns(UserWarning, match=dropped), zero.GatheredParameters([model.weight]):
                change(model.weight)
            assert torch.equal(whole(model.weight), before)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with zero.GatheredParameters(model.parameters()):
                assert torch.equal(model.weight, before)
            with zero.GatheredParameters(model.weight, modifier_rank=0), torch.no_grad():
                model.weight.add_(1.0)
            with (
                pytest.raises(KeyError, match="mine"),
                zero.GatheredParameters(model.weight),
            ):
                model.weight.data.zero_()
                raise KeyError("mine")
        assert torch.equal(whole(model.weight), before + 1)


def test_params_have_deepspeeds_attributes() -> None:
    with zero.Init():
        model = nn.Linear(5, 7)
    weight = model.weight
    assert weight.ds_shape == (7, 5) and weight.ds_numel == 35
    assert weight.ds_id != model.bias.ds_id and not hasattr(nn.Linear(1, 1).weight, "ds_id")
    assert weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE
    unit, i = weight._meron
    assert weight.ds_tensor.numel() == len(unit.shard_range(i))
    expected = whole(weight)
    assert weight.ds_summary()["ds_shape"] == (7, 5)
    weight.all_gather()
    assert weight.ds_status is zero.ZeroParamStatus.AVAILABLE
    assert torch.equal(weight, expected)
    with torch.no_grad():
        weight.add_(1.0)
    weight.partition(has_been_updated=True)
    assert torch.equal(whole(weight), expected + 1)
    weight.all_gather([weight, model.bias])
    with torch.no_grad():
        weight.zero_()
    with pytest.warns(UserWarning, match="weight' changed.*has_been_updated=True"):
        weight.partition([weight, model.bias])
    assert torch.equal(whole(weight), expected + 1)
    with pytest.raises(meron.StateError, match="not gathered"):
        weight.partition()
    assert copy.copy(weight.ds_summary())["status"] == "NOT_AVAILABLE"


def test_an_exception_discards_changes_within_a_gather() -> None:
    with zero.Init():
        layer = nn.Linear(3, 4)
    before = whole(layer.weight)
    with (
        pytest.raises(KeyError, match="mine"),
        zero.GatheredParameters(layer.weight, modifier_rank=0),
    ):
        layer.weight.data.zero_()
        raise KeyError("mine")
    assert layer.weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE
    assert torch.equal(whole(layer.weight), before)
    with zero.GatheredParameters(layer.weight):
        assert torch.equal(layer.weight, before)


def test_rejects_gathers_of_other_objects() -> None:
    with zero.Init():
        layer = nn.Linear(3, 4)
    for wrong in (layer.named_parameters(), ["weight"]):
        with pytest.raises(meron.ArgumentError, match="list of params"):
            zero.GatheredParameters(wrong).__enter__()
    mixed = [None, layer.weight, torch.ones(2), 3]  # the others are left alone, as in DeepSpeed
    with zero.GatheredParameters(mixed, modifier_rank=0), torch.no_grad():
        layer.weight.fill_(3.0 + RANK)
    assert torch.equal(whole(layer.weight), torch.full((4, 3), 3.0))
    for nothing in (None, [], [None]):
        with zero.GatheredParameters(nothing, modifier_rank=0):
            pass
    for rank in ("0", 0.5):
        with pytest.raises(meron.ArgumentError, match="modifier_rank"):
            zero.GatheredParameters(layer.weight, modifier_rank=rank).__enter__()
    with pytest.raises(meron.ArgumentError, match="Linear"):
        zero.GatheredParameters(layer)
    with pytest.raises(meron.ArgumentError, match="Linear"):
        zero.GatheredParameters(layer, enabled=False)


def test_accepts_replaced_data_of_the_same_shape() -> None:
    with zero.Init():
        layer = nn.Linear(3, 4)
    with zero.GatheredParameters(layer.weight, modifier_rank=0):
        if RANK == 0:
            layer.weight.data = torch.full((4, 3), 2.0, dtype=torch.float64)
    assert torch.equal(whole(layer.weight), torch.full((4, 3), 2.0))
    try:
        with zero.GatheredParameters(layer.weight, modifier_rank=0):
            if RANK == 0:
                layer.weight.data = torch.zeros(5)
    except meron.ArgumentError as error:
        assert RANK == 0 and "Linear" in str(error) and "weight" in str(error)
    else:
        assert RANK != 0
    assert torch.equal(whole(layer.weight), torch.full((4, 3), 2.0))


def test_a_failed_gather_restores_the_shards() -> None:
    with zero.Init():
        layers = [nn.Linear(3, 4), nn.Linear(4, 3)]
    weights = [layer.weight for layer in layers]
    before = [whole(weight) for weight in weights]
    sharding = unit_of(weights[0])[0].sharding
    units = [unit_of(weight)[0] for weight in weights]

    def fail(*_arguments: Any) -> None:
        raise OSError("on purpose")

    units[1].pin = fail
    with pytest.raises(OSError, match="on purpose"):
        zero.GatheredParameters(weights).__enter__()
    del units[1].pin
    sharding.write = fail
    with (
        pytest.raises(OSError, match="on purpose"),
        zero.GatheredParameters(weights, modifier_rank=0),
    ):
        weights[1].data.zero_()
    del sharding.write
    for weight, values in zip(weights, before):
        assert weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE
        with zero.GatheredParameters(weight):
            assert torch.equal(weight, values)

    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)
            for part in (self.one, self.two):
                parts.append(part)
                part.weight.data.zero_()
            sharding.write = fail

    parts: list[nn.Linear] = []
    with zero.Init():
        with pytest.raises(OSError, match="on purpose"):
            Parent()
        del sharding.write
    for part in parts:
        assert part.weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE


def test_all_gather_rejects_unsupported_arguments() -> None:
    with zero.Init():
        layer = nn.Linear(3, 4)
    with pytest.raises(meron.UnsupportedError, match="async_op"):
        layer.weight.all_gather(async_op=True)
    with pytest.raises(TypeError, match="asinc"):
        layer.weight.all_gather(asinc=True)
    assert layer.weight.ds_status is zero.ZeroParamStatus.NOT_AVAILABLE
