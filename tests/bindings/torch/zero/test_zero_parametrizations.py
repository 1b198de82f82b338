# SPDX-License-Identifier: Apache-2.0
"""Parametrized modules that a parent builds within zero.Init."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from meron import zero
from model import RANK, RANKS, assert_equal_weights, config, on_device, sgd

pytestmark = [pytest.mark.ranks(1, 2), on_device(2)]


def new_parameter(conv: Any) -> Any:
    """Replaces the weight by a Parameter of its values."""
    conv.weight = nn.Parameter(conv.weight)
    with torch.no_grad():
        conv.weight.mul_(2.0)
    return conv


KINDS: dict[str, Any] = {
    "weight_norm": lambda conv: parametrizations.weight_norm(conv, dim=2),
    "old_weight_norm": lambda conv: nn.utils.weight_norm(conv, dim=2),
    "spectral_norm": parametrizations.spectral_norm,
    "parameter": new_parameter,
}


class Net(nn.Module):
    """As the convolution of positions of Wav2Vec2."""

    def __init__(self, kind: str, gathers: str) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3)
        around: Any = contextlib.nullcontext()
        if gathers:
            rank = None if gathers == "to read" else 0
            around = zero.GatheredParameters(self.conv.weight, modifier_rank=rank)
        with around:
            self.conv = KINDS[kind](self.conv)
        self.line = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.line(self.conv(x).mean(-1))


def data(seed: int) -> torch.Tensor:
    return torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(seed))


def plain_net(kind: str) -> Net:
    torch.manual_seed(4)
    return Net(kind, "")


def trains(model: Any, plain: nn.Module) -> None:
    """Trains both, with equal buffers of all ranks in each step."""
    engine = zero.initialize(model=model, config=config())[0]
    optimizer = sgd(plain)
    for step in range(3):
        engine.backward(engine(data(10 * step + RANK)).square().mean())
        engine.step()
        optimizer.zero_grad()
        start = copy.deepcopy(dict(plain.named_buffers()))
        for rank in range(RANKS):
            for name, buffer in plain.named_buffers():
                buffer.copy_(start[name])
            (plain(data(10 * step + rank)).square().mean() / RANKS).backward()
        optimizer.step()
    assert_equal_weights(model, plain, 2e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gathers", ["", "to write"])
def test_a_parametrized_part_trains_as_in_plain_torch(kind: str, gathers: str) -> None:
    plain = plain_net(kind)
    with zero.Init(config_dict_or_path=config()):
        torch.manual_seed(4)
        model = Net(kind, gathers)
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in plain.named_parameters()]
    trains(model, plain)


def test_a_model_on_meta_is_parametrized_and_then_loaded() -> None:
    plain = plain_net("weight_norm")
    with zero.Init(config_dict_or_path=config()), torch.device("meta"):
        model = Net("weight_norm", "to write")
    engine = zero.initialize(model=model, config=config())[0]
    model.load_state_dict(plain.state_dict())
    assert_equal_weights(model, plain, 0)
    engine.destroy()
    trains(model, plain)


def test_a_parameter_of_a_gathered_one_has_its_own_memory() -> None:
    engine = zero.initialize(model=nn.Linear(3, 2), config=config())[0]
    weight = engine.module.weight
    with zero.GatheredParameters(weight):
        expected = weight.detach().clone()
        own = nn.Parameter(weight, requires_grad=False)
        with torch.no_grad():
            own.add_(1.0)
        assert torch.equal(weight.detach(), expected)
    assert torch.equal(own, expected + 1)
    assert not own.requires_grad
    assert not any(hasattr(own, name) for name in ("ds_id", "ds_status", "ds_tensor"))
    twin = copy.deepcopy(own)
    assert torch.equal(twin, own)
    assert twin.data_ptr() != own.data_ptr()
