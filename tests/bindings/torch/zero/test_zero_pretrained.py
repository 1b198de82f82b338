# SPDX-License-Identifier: Apache-2.0
"""from_pretrained within zero.Init, by a class that loads as those of Hugging Face."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.torch.sharding import unit_of
from model import RANK, Block, config, data, loss_of

pytestmark = pytest.mark.ranks(1, 2)


class Scale(nn.Module):
    """Has a param and no reset_parameters, as norms of Hugging Face's models."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.register_buffer("steps", torch.arange(size).float(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.steps


class Base(nn.Module):
    """Loads as transformers does: built on meta, then a param at a time, then what is missing."""

    most = 0  # most params that were unsharded at a time

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Scale):
            with torch.no_grad():
                module.steps.copy_(torch.arange(len(module.steps)))
        if isinstance(module, nn.Linear) and not hasattr(module.weight, "_is_hf_initialized"):
            nn.init.normal_(module.weight)

    @classmethod
    def from_pretrained(cls, values: dict[str, torch.Tensor]) -> Any:
        with torch.device("meta"):
            model = cls()
        missing = dict(model.named_parameters())
        for name, value in sorted(values.items()):
            model.put(name, value.clone(), True)
            missing.pop(name, None)
            real = [p for p in model.parameters() if unit_of(p) is None and not p.is_meta]
            Base.most = max(Base.most, len(real))
        for name, param in missing.items():
            if name != "head.weight":
                model.put(name, torch.empty_like(param, device="cpu"), False)
        for part in model.modules():
            for name, buffer in list(part._buffers.items()):
                if buffer is not None and buffer.is_meta:
                    part._buffers[name] = torch.empty_like(buffer, device="cpu")
            model._init_weights(part)
        model.head.weight = model.embed.weight
        return model

    def put(self, name: str, value: torch.Tensor, loaded: bool) -> None:
        path, _, key = name.rpartition(".")
        param = nn.Parameter(value)
        if loaded:
            param._is_hf_initialized = True  # type: ignore[attr-defined]
        setattr(self.get_submodule(path), key, param)


class Pretrained(Base):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(19, 12)
        self.blocks = nn.ModuleList(Block(12) for _ in range(2))
        self.scale = Scale(12)
        self.new = nn.Linear(12, 12, bias=False)
        self.head = nn.Linear(12, 19, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.new(self.scale(x)))


def weights(seed: int = 5) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    state = Pretrained().state_dict()
    return {k: torch.randn(v.shape) for k, v in state.items() if k[:3] not in ("new", "hea")}


def test_shards_modules_when_their_values_arrive() -> None:
    wanted = weights()
    Base.most = 0
    for stage in (1, 3):
        torch.manual_seed(RANK)  # rank 0's values count for params that are not loaded
        with zero.Init(config_dict_or_path=config(stage=stage)):
            model = Pretrained.from_pretrained(wanted)
        assert Base.most <= 2, Base.most
        assert all(unit_of(param) is not None for param in model.parameters())
        assert type(model.embed._parameters).__name__ == "Parameters"
        state = zero.full_state_dict(model)
        for name, value in wanted.items():
            assert torch.equal(state[name], value), name
        torch.manual_seed(0)
        first = torch.randn(12, 12)
        assert torch.equal(state["new.weight"], first)
        assert model.head.weight is model.embed.weight
        assert torch.equal(model.scale.steps, torch.arange(12.0))
        plain = Pretrained()
        plain.load_state_dict(state)
        x, y = data(torch.Generator().manual_seed(1))
        engine = zero.initialize(model=model, config=config(stage=stage))[0]
        loss = loss_of(engine, x[RANK], y[RANK])
        assert torch.equal(loss, loss_of(plain, x[RANK], y[RANK]))
        engine.backward(loss)
        engine.step()
        engine.destroy()


def test_names_params_without_values() -> None:
    wanted = weights()
    del wanted["scale.weight"]

    class Forgets(Pretrained):
        def put(self, name: str, value: torch.Tensor, loaded: bool) -> None:
            if loaded:
                super().put(name, value, loaded)

    with pytest.raises(meron.ArgumentError, match="Scale"), zero.Init(config_dict_or_path=config()):
        Forgets.from_pretrained(wanted)
    with zero.Init(config_dict_or_path=config()):  # the next load succeeds
        model = Pretrained.from_pretrained(weights())
    assert torch.equal(zero.full_state_dict(model)["scale.weight"], weights()["scale.weight"])


def test_a_failed_load_leaves_an_unsharded_model() -> None:
    built: list[Pretrained] = []

    class Fails(Pretrained):
        def put(self, name: str, value: torch.Tensor, loaded: bool) -> None:
            built.append(self)
            if name.startswith("embed"):
                raise KeyError(name)
            super().put(name, value, loaded)

    with pytest.raises(KeyError, match="embed"), zero.Init(config_dict_or_path=config()):
        Fails.from_pretrained(weights())
    assert type(built[0].embed._parameters) is dict


@pytest.mark.ranks(2)
def test_names_ranks_that_read_different_weights() -> None:
    wanted = weights(5 + (RANK == 1))
    refused = pytest.raises(meron.StateError, match=re.escape("[1]"))
    with refused, zero.Init(config_dict_or_path=config()):
        Pretrained.from_pretrained(wanted)


def test_a_decorated_class_keeps_its_init() -> None:
    with zero.Init(config_dict_or_path=config()):

        class Part(nn.Linear):
            pass

        inner = Part.__init__

        def init(self: Any, *args: Any) -> None:
            inner(self, *args)
            self.config = 7

        Part.__init__ = init  # type: ignore[method-assign]
        assert Part(2, 2).config == 7  # type: ignore[comparison-overlap]
    assert Part(2, 2).config == 7  # type: ignore[comparison-overlap]
