# SPDX-License-Identifier: Apache-2.0
"""Leaf modules and external params."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.torch.wrap import scope_of
from model import RANK, RANKS, Block, Model, assert_equal_weights, config, on_device, train

pytestmark = [pytest.mark.ranks(3), on_device(3)]


class Experts(nn.Module):
    """The data, which differ between ranks, choose the expert that runs."""

    def __init__(self, size: int = 12, count: int = 3) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = int(x.detach().abs().sum() * 1e3) % len(self.experts)
        return x + self.experts[chosen](x)


class Mixture(Model):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Experts(), Block(12)])


def mixtures(init: bool) -> tuple[Mixture, Mixture]:
    torch.manual_seed(0)
    with zero.Init(enabled=init):
        model = Mixture()
    torch.manual_seed(0)
    return model, Mixture()


def test_shards_each_leaf_as_one_unit() -> None:
    for init in (False, True):
        model, plain = mixtures(init)
        assert zero.set_z3_leaf_modules(model, [Experts]) == [model.blocks[0]]
        engine = zero.initialize(model=model, config=config())[0]
        scope = scope_of(model.blocks[0])
        assert scope is not None
        assert sum(len(unit.params) for unit in scope.units) == 6
        assert scope_of(model.blocks[0].experts[0]) is None
        assert zero.z3_leaf_module(model.blocks[0]) and not zero.z3_leaf_module(model.blocks[1])
        assert zero.z3_leaf_parameter(model.blocks[0].experts[1].bias)
        assert not zero.z3_leaf_parameter(model.shift)
        train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 4)
        assert_equal_weights(model, plain, 1e-6)
        with pytest.raises(meron.StateError, match="in use by an engine"):
            zero.set_z3_leaf_modules(model, [Block])


def test_chooses_leaves_by_class_name_and_suffix() -> None:
    class Wide(Block):
        pass

    def model() -> nn.Module:
        return nn.ModuleDict({"a": Block(4), "b": nn.Sequential(Wide(4), nn.Linear(4, 4))})

    first = model()
    assert len(zero.set_z3_leaf_modules(first, Block)) == 2
    assert zero.unset_z3_leaf_modules(first, ["Wide"]) == [first["b"][0]]
    assert zero.get_z3_leaf_modules(first) == [first["a"]]
    assert zero.set_z3_leaf_modules(model(), "model.Block") != []
    with pytest.raises(meron.ArgumentError, match="Conv2d"):
        zero.set_z3_leaf_modules(first, [nn.Conv2d])
    assert zero.set_z3_leaf_modules(first, [nn.Conv2d], raise_if_not_found=False) == []
    second = model()
    assert zero.set_z3_leaf_modules_by_name(second, ["b.0"]) == ([second["b"][0]], [])
    found, missing = zero.set_z3_leaf_modules_by_suffix(
        second, [".1", "zz"], raise_if_not_found=False
    )
    assert found == [second["b"][1]] and missing == ["zz"]

    third = nn.Sequential(Wide(4), Block(4))
    settings = {"stage": 3, "leaf_module": {"classes": ["Wide"], "name_suffixes": ["1"]}}
    zero.initialize(model=third, config=config(zero_optimization=settings))
    assert zero.get_z3_leaf_modules(third) == [third[0], third[1]]
    small = {"stage": 3, "stage3_module_granularity_threshold": 100}
    fourth = nn.Sequential(Block(4), nn.Linear(64, 64))
    zero.initialize(model=fourth, config=config(zero_optimization=small))
    assert zero.get_z3_leaf_modules(fourth) == [fourth[0]]


class Hidden(nn.Module):
    """Uses a param of another module without an attribute that holds it."""

    def __init__(self, get: Any) -> None:
        super().__init__()
        self.get = get
        self.own = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.own(x) @ self.get()


class Outer(nn.Module):
    def __init__(self, register: bool) -> None:
        super().__init__()
        self.weights = nn.Linear(4, 4)
        weight = [self.weights.weight]
        self.hidden = Hidden(lambda: weight[0])
        if register:
            zero.register_external_parameter(self.hidden, self.weights.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(x)


class Returns(nn.Module):
    """The parent uses a param that a part returns, and one that it finds by name."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self) -> torch.Tensor:
            return self.weight

    def __init__(self) -> None:
        super().__init__()
        self.inner = self.Inner()
        self.other = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.inner() @ self.other.weight


def test_gathers_external_params() -> None:
    for make in (lambda: Outer(True), Returns):
        for init in (False, True):
            torch.manual_seed(0)
            with zero.Init(enabled=init):
                model = make()
            torch.manual_seed(0)
            plain = make()
            engine = zero.initialize(model=model, config=config())[0]
            optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
            for step in range(3):
                x = torch.arange(RANKS * 8.0).view(RANKS, 2, 4) / 30 + step
                engine.backward(engine(x[RANK]).tanh().sum())
                engine.step()
                optimizer.zero_grad()
                for rank in range(RANKS):
                    (plain(x[rank]).tanh().sum() / RANKS).backward()
                optimizer.step()
            assert_equal_weights(model, plain, 1e-6)


def test_registers_and_unregisters_external_params() -> None:
    module, param = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    with pytest.raises(meron.ArgumentError, match=re.escape("torch.nn.Parameter")):
        zero.register_external_parameter(module, torch.ones(2))
    with pytest.raises(meron.ArgumentError, match="not registered"):
        zero.unregister_external_parameter(module, param)
    with zero.Init():
        first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    zero.register_external_parameter(first, second.weight)
    scope = scope_of(first)
    assert scope is not None and len(scope.units) == 2
    zero.unregister_external_parameter(first, second.weight)
    assert len(scope.units) == 1


def test_finds_leaves_by_any_base_class() -> None:
    class Expert:
        """A base class of a module that is no module itself."""

    class Both(nn.Linear, Expert):
        pass

    model = nn.Sequential(Both(2, 2), nn.Linear(2, 2))
    assert zero.set_z3_leaf_modules(model, "Expert") == [model[0]]
    for wrong in (model[0], [model[0]], [3]):
        with pytest.raises(meron.ArgumentError, match="class"):
            zero.set_z3_leaf_modules(model, wrong)
    with pytest.raises(meron.ArgumentError, match="Module"):
        zero.set_z3_leaf_modules(model, "Module")
    zero.set_z3_leaf_module(model, True)
    zero.set_z3_leaf_module(model[0], False)
    assert zero.z3_leaf_parameter(model[0].weight)  # its parent is a leaf


def test_known_mixtures_of_experts_are_leaves() -> None:
    class MixtralSparseMoeBlock(Experts):
        __module__ = "transformers.models.mixtral.modeling_mixtral"
        __qualname__ = "MixtralSparseMoeBlock"

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model without any of them causes no warning
        zero.initialize(model=nn.Linear(2, 2), config=config())
    model = nn.Sequential(MixtralSparseMoeBlock())
    zero.initialize(model=model, config=config())
    assert zero.get_z3_leaf_modules(model) == [model[0]]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        settings = {"stage": 3, "leaf_module": {"classes": ["Elsewhere"]}}
        zero.initialize(model=nn.Linear(2, 2), config=config(zero_optimization=settings))
    assert "Elsewhere" in str(caught[0].message)


def test_changes_leaves_after_an_engine_is_destroyed() -> None:
    model = nn.Sequential(Block(4))
    engine = zero.initialize(model=model, config=config())[0]
    with pytest.raises(meron.StateError, match="in use by an engine"):
        zero.set_z3_leaf_module(model[0], True)
    engine.destroy()
    zero.set_z3_leaf_module(model[0], True)
