# SPDX-License-Identifier: Apache-2.0
"""Values of models that were built on the device meta: written by their class, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp import RANK
from torch import nn

import meron
import meron.torch as mt
import meron.zero
from meron.torch.values.unwritten import is_unwritten, unwritten

pytestmark = pytest.mark.ranks(1, 2)
STAGES = pytest.mark.parametrize("stage", [1, 3])
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


class Scaled(nn.Linear):
    """Its reset_parameters fills weight, bias, and the tensors that `extras` names."""

    def __init__(self, *extras: str) -> None:
        self.extras: tuple[str, ...] = ()
        super().__init__(4, 4)
        self.extras = extras
        self.gain = nn.Parameter(torch.ones(4))
        self.register_buffer("freq", torch.ones(4), persistent=False)
        self.register_buffer("count", torch.ones(4, dtype=torch.int64))

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for name in self.extras:
            getattr(self, name).fill_(RANK + 2)


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


def shard(model: nn.Module, stage: int, zero: bool) -> None:
    if zero:
        config = {"train_batch_size": 2, "zero_optimization": {"stage": stage}}
        meron.zero.initialize(model=model, config=config)
    else:
        mt.shard(model, plan=f"zero{stage}", units=Scaled)


@STAGES
@pytest.mark.parametrize("zero", [False, True], ids=["torch", "zero"])
def test_names_what_an_inherited_reset_does_not_fill(stage: int, zero: bool) -> None:
    model = on_meta(lambda: nn.Sequential(Scaled("freq"), Scaled("freq", "gain", "count")))
    with pytest.raises(meron.StateError, match=r"2 tensors.*0\.gain.*0\.count") as caught:
        shard(model, stage, zero)
    assert "freq" not in str(caught.value)


def test_names_a_param_that_is_filled_in_part() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def reset_parameters(self) -> None:
            with torch.no_grad():
                self.weight[:3].fill_(1)

    with pytest.raises(meron.StateError, match=r"weight"):
        mt.shard(on_meta(Partly))


def test_names_on_all_ranks_what_one_rank_does_not_fill() -> None:
    class OnOne(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.zeros_(self.weight)
            if RANK:
                nn.init.zeros_(self.bias)

    with pytest.raises(meron.StateError, match=r"bias"):
        mt.shard(on_meta(lambda: OnOne(2, 2)))


def test_names_buffers_of_a_module_without_params() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("freq", torch.ones(4), persistent=False)

        def reset_parameters(self) -> None:
            pass

    model = on_meta(lambda: nn.Sequential(nn.Linear(4, 4), Table()))
    with pytest.raises(meron.StateError, match=r"freq"):
        shard(model, 3, True)


@STAGES
@pytest.mark.parametrize("zero", [False, True], ids=["torch", "zero"])
def test_buffers_from_meta_have_the_values_of_rank_0(stage: int, zero: bool) -> None:
    model: Any = on_meta(lambda: nn.Sequential(Scaled("gain", "freq", "count")))
    shard(model, stage, zero)
    assert model[0].freq.tolist() == [2.0] * 4
    assert model[0].count.tolist() == [2] * 4
    model[0].freq.fill_(RANK)  # later writes stay each rank's own
    assert model[0].freq.tolist() == [float(RANK)] * 4
    assert all(torch.isfinite(mt.full_param(p)).all() for p in model.parameters())


@pytest.mark.parametrize("dtype", DTYPES + INTEGERS, ids=str)
def test_finds_memory_that_was_not_written(dtype: torch.dtype) -> None:
    for shape in ((), (3, 5)):
        tensor = unwritten(shape, dtype)
        assert is_unwritten(tensor)
        for value in (0, 1):
            assert not is_unwritten(torch.full_like(tensor, value))
    assert not is_unwritten(unwritten((0,), dtype))
    if dtype.is_floating_point:
        assert not is_unwritten(torch.full((3,), float("nan"), dtype=dtype))
    if dtype not in (torch.int8, torch.uint8, torch.int16):
        tensor[0] = 1
        assert is_unwritten(tensor)
