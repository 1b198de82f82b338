# SPDX-License-Identifier: Apache-2.0
"""Parents that gather params of their parts while a model is built."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

import meron
from meron import zero
from model import RANK, RANKS, on_device, whole

pytestmark = [pytest.mark.ranks(1, 3), on_device(2)]


class Gathers(nn.Module):
    """Gathers params of its parts itself, as scripts of DeepSpeed do, and uses others plainly."""

    def __init__(self, stay: contextlib.ExitStack) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)
        nn.init.constant_(self.part.weight, 2.0)
        nn.init.constant_(self.part.bias, 5.0)
        with zero.GatheredParameters(self.part.weight, modifier_rank=RANKS - 1):
            assert float(self.part.weight.detach().sum()) == 18.0
            with torch.no_grad():
                self.part.weight.fill_(7.0 + RANK)
                self.part.bias.add_(1.0)
            with pytest.raises(meron.StateError, match="gathered already"):
                zero.GatheredParameters(self.part.weight).__enter__()
        with torch.no_grad():
            self.part.weight.mul_(2.0)
        with zero.GatheredParameters(self.part.weight), torch.no_grad():
            self.part.weight.zero_()  # dropped
        self.other = nn.Linear(2, 2, bias=False)
        self.other.weight.all_gather()
        with torch.no_grad():
            self.other.weight.fill_(3.0)
        self.other.weight.partition(has_been_updated=True)
        self.other.weight.data.add_(1.0)
        self.late = nn.Linear(2, 2)
        stay.enter_context(zero.GatheredParameters(self.late.weight, modifier_rank=0))
        nn.init.constant_(self.late.bias, 8.0)
        self.apply(self.start)

    def start(self, module: nn.Module) -> None:
        if module is self.other:
            with zero.GatheredParameters(module.weight, modifier_rank=0), torch.no_grad():
                module.weight.add_(1.0)
            with torch.no_grad():
                module.weight.mul_(10.0)


def test_parents_gather_params_of_their_parts() -> None:
    with contextlib.ExitStack() as stay:
        with zero.Init():
            model = Gathers(stay)
        with torch.no_grad():
            model.late.weight.fill_(1.0)
    for param, value in (
        (model.part.weight, 2.0 * (7 + RANKS - 1)),
        (model.part.bias, 6.0),
        (model.other.weight, 50.0),
        (model.late.weight, 1.0),
        (model.late.bias, 8.0),
    ):
        assert torch.equal(whole(param), torch.full(param.shape, value)), value
    with zero.GatheredParameters(model.parameters()):
        pass  # all gathers have ended


def test_releases_a_gather_of_a_parent_that_fails() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)
            parts.append(self.part)
            nn.init.constant_(self.part.bias, 5.0)
            with zero.GatheredParameters(self.part.weight, modifier_rank=0):
                raise KeyError("broken")

    parts: list[nn.Linear] = []
    with pytest.raises(KeyError, match="broken"), zero.Init():
        Fails()
    with zero.GatheredParameters(parts[0].parameters(), modifier_rank=0), torch.no_grad():
        parts[0].weight.fill_(4.0)
    assert torch.equal(whole(parts[0].weight), torch.full((3, 3), 4.0))
