# SPDX-License-Identifier: Apache-2.0
"""zero.Init, and copies of what it built."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.torch.sharding import unit_of
from meron.torch.wrap import scope_of
from model import RANK, Model, assert_equal_weights, config, on_device, train, twins, whole

pytestmark = [pytest.mark.ranks(1, 3), on_device(2)]


def sharded(param: torch.Tensor) -> bool:
    return unit_of(param) is not None


def test_shards_a_model_while_it_is_built() -> None:
    torch.manual_seed(RANK)  # rank 0's values count
    plain_init = nn.Linear.__dict__["__init__"]
    with zero.Init(config_dict_or_path=config()):
        model = Model()
    assert nn.Linear.__dict__["__init__"] is plain_init
    assert "__init_subclass__" not in nn.Module.__dict__
    assert all(sharded(param) for param in model.parameters())
    assert not sharded(nn.Linear(2, 2).weight)
    assert model.head.weight is model.embed.weight
    torch.manual_seed(0)
    plain = Model()
    assert_equal_weights(model, plain, 0.0)
    engine = zero.initialize(model=model, config=config())[0]
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 3)
    assert_equal_weights(model, plain, 1e-6)


def test_nests_and_disables_init_contexts() -> None:
    with zero.Init():
        with zero.Init():
            inner = nn.Linear(2, 3)
        after = nn.Linear(2, 3)
        with zero.Init(enabled=False):
            within = nn.Linear(2, 3)
    with zero.Init(enabled=False):
        outside = nn.Linear(2, 3)
    assert [sharded(m.weight) for m in (inner, after, within, outside)] == [True, True, True, False]


def test_an_exception_ends_init() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(2, 2)
            raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"), zero.Init():
        Broken()
    assert not sharded(nn.Linear(2, 2).weight)
    with zero.Init():
        assert sharded(nn.Linear(2, 2).weight)


def test_parents_see_full_params_of_their_parts() -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)
            nn.init.constant_(self.part.weight, 2.0 + RANK)
            with torch.no_grad():
                self.part.bias.copy_(self.part.weight.sum(0))
            self.own = nn.Parameter(torch.ones(2))
            self.seen: list[Any] = []
            self.apply(self.start)

        def start(self, module: nn.Module) -> None:
            self.seen.append(
                (type(module).__name__, float(next(module.parameters()).detach().sum()))
            )
            if isinstance(module, Parent):
                module.part.weight.data.mul_(2.0)  # of another module
                nn.init.zeros_(module.own)

    with zero.Init():
        parent = Parent()
    assert torch.equal(whole(parent.part.weight), torch.full((3, 3), 4.0))
    assert torch.equal(whole(parent.part.bias), torch.full((3,), 6.0))
    assert torch.equal(whole(parent.own), torch.zeros(2))
    if RANK == 0:
        assert parent.seen == [("Linear", 18.0), ("Parent", 2.0)]


def test_apply_initializes_params_after_the_build() -> None:
    with zero.Init():
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        model.apply(lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None)
    assert torch.equal(whole(model[0].weight), torch.ones(2, 2))


def test_initializes_meta_and_skip_init_params() -> None:
    with torch.device("meta"), zero.Init():
        model = Model()
    value = whole(model.embed.weight)
    assert torch.isfinite(value).all() and 0.5 < float(value.std()) < 1.5
    with zero.Init():
        skipped = nn.utils.skip_init(nn.Linear, 4, 4)
    assert sharded(skipped.weight) and torch.isfinite(whole(skipped.weight)).all()
    engine = zero.initialize(model=model, config=config())[0]
    plain = Model()
    plain.load_state_dict(zero.full_state_dict(engine))
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 2)
    assert_equal_weights(model, plain, 1e-6)


def test_shards_layers_that_are_copies() -> None:
    torch.manual_seed(0)
    with zero.Init():
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(layer, 2)
    assert all(sharded(param) for param in model.parameters())
    assert len(set(map(id, model.parameters()))) == 24
    plain = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2
    )
    plain.load_state_dict(zero.full_state_dict(model))
    x = torch.rand(2, 3, 8)
    assert torch.allclose(model(x), plain(x), atol=1e-6)


def test_shards_an_existing_model() -> None:
    model, _ = twins()
    zero.Init(module=model, dtype=torch.bfloat16)
    assert all(sharded(param) for param in model.parameters())
    assert model.shift.dtype == torch.bfloat16
    with pytest.raises(meron.StateError, match="zero3"):
        zero.initialize(model=model, config=config(2))


def test_rejects_wrong_arguments_of_init() -> None:
    group = object()
    with pytest.raises(meron.ArgumentError, match="both given"):
        zero.Init(data_parallel_group=group, sequence_data_parallel_group=group)
    with pytest.raises(meron.ArgumentError, match="both given"):
        zero.Init(config={}, config_dict_or_path={})
    with pytest.raises(meron.ArgumentError, match="dtype"):
        zero.Init(dtype=torch.float64)
    with pytest.raises(meron.ArgumentError, match="names no folder for params"):
        zero.Init(remote_device="nvme")
    with pytest.raises(meron.UnsupportedError, match="cuda"):
        zero.Init(remote_device="cuda")
    with pytest.raises(meron.UnsupportedError, match="param_swapper"):
        zero.Init(param_swapper=object())
    with pytest.raises(meron.ArgumentError, match="needs a config"):
        zero.MiCS_Init()
    with pytest.raises(meron.ArgumentError, match="mics_shard_size"):
        zero.MiCS_Init(config=config())
    zero.Init(remote_device="cpu", pin_memory=True, mem_efficient_linear=False)


def test_init_contexts_may_end_in_any_order() -> None:
    plain_init = nn.Linear.__dict__["__init__"]
    first, second = zero.Init(), zero.Init()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert nn.Linear.__dict__["__init__"] is plain_init
    assert "__init_subclass__" not in nn.Module.__dict__ and not sharded(nn.Linear(2, 2).weight)


def test_initializes_an_engine_within_init() -> None:
    torch.manual_seed(0)
    with zero.Init():
        model = Model()
        engine = zero.initialize(model=model, config=config())[0]
    assert scope_of(engine) is None  # it is no part of the model
    torch.manual_seed(0)
    plain = Model()
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 3)
    assert_equal_weights(model, plain, 1e-6)


def test_init_takes_leaf_modules_from_the_config() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(2, 2), nn.Linear(2, 2)

    leaf = {"stage": 3, "leaf_module": {"classes": ["Pair"], "names": []}}
    with zero.Init(config_dict_or_path=config(zero_optimization=leaf)):
        pair = Pair()
    assert zero.z3_leaf_module(pair) and scope_of(pair.one) is None
    scope = scope_of(pair)
    assert scope is not None and len(scope.units) == 2


def test_copies_keep_external_params() -> None:
    with zero.Init():
        table = nn.Embedding(3, 4)
        layer = nn.Linear(4, 4)
        zero.register_external_parameter(layer, table.weight)
        zero.register_external_parameter(layer, layer.bias)
        second = copy.deepcopy(layer)
        both = copy.deepcopy(nn.ModuleList([table, layer]))
    for copied, outside, own in (
        (second, table.weight, second.bias),
        (both[1], both[0].weight, both[1].bias),
    ):
        scope = scope_of(copied)
        assert scope is not None
        assert {unit for unit in scope.units} == {copied.weight._meron[0], outside._meron[0]}
        zero.unregister_external_parameter(copied, outside)
        zero.unregister_external_parameter(copied, own)
        assert scope.units == [copied.weight._meron[0]]


def test_keeps_classes_of_params() -> None:
    class Special(nn.Parameter):
        pass

    layer = nn.Linear(3, 4)
    layer.weight = Special(torch.ones(4, 3))
    zero.Init(module=layer)
    assert isinstance(layer.weight, Special) and isinstance(layer.weight, zero.ZeroParameter)
    assert layer.weight.ds_shape == (4, 3) and torch.equal(whole(layer.weight), torch.ones(4, 3))


def test_copies_a_param_unsharded() -> None:
    with zero.Init():
        layer = nn.Linear(3, 4)
    alone = copy.deepcopy(layer.weight)
    assert type(alone) is nn.Parameter and torch.equal(alone, whole(layer.weight))


def test_copies_a_module_unsharded_outside_of_init() -> None:
    with zero.Init():
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    model[0].weight.requires_grad = False
    alone = copy.deepcopy(model)
    assert [type(param) for param in alone.parameters()] == [nn.Parameter] * 4
    for param, source in zip(alone.parameters(), model.parameters()):
        assert torch.equal(param, whole(source)) and param.requires_grad == source.requires_grad
    assert torch.equal(alone(torch.ones(2, 3)), model(torch.ones(2, 3)))
    again = copy.deepcopy(alone)  # an ordinary module
    assert torch.equal(again[0].weight, alone[0].weight)


def test_copies_an_rnn_with_its_flat_weights() -> None:
    with zero.Init():
        model = nn.LSTM(3, 4)
    alone = copy.deepcopy(model)
    steps = torch.ones(2, 1, 3)
    assert torch.equal(alone(steps)[0], model(steps)[0])
    alone(steps)[0].sum().backward()
    assert all(param.grad is not None for param in alone.parameters())
