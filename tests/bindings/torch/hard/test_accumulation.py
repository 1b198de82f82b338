# SPDX-License-Identifier: Apache-2.0
"""Sums of several micro-batches per rank: f32 under every plan, in the order of plan.md."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp import RANK, RANKS
from torch import nn

import meron.torch as mt

PLANS = ("zero0", "zero1", "zero2", "zero3")
COUNT = 3000
Gradient = Callable[[int], torch.Tensor]

pytestmark = [pytest.mark.ranks(1), pytest.mark.ranks(2), pytest.mark.ranks(3)]


class Values(nn.Module):
    """The gradient of its param is the argument."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.zeros(COUNT, dtype=dtype))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.p * gradient).sum()


def low_noise(number: int) -> torch.Tensor:
    """Equal signs and similar sizes: in 16 bits the sum of many stalls."""
    generator = torch.Generator().manual_seed(number)
    return 1e-2 + 1e-3 * torch.randn(COUNT, generator=generator)


def noise(number: int) -> torch.Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(number))


def mean_of(
    plan: Any, gradients: Gradient, micro_batches: int, dtype: torch.dtype, **shard: Any
) -> torch.Tensor:
    """The mean over ranks of the sums of `micro_batches` each, numbered across ranks."""
    model = Values(dtype)
    mt.shard(model, plan=plan, **shard)
    asked = shard.get("mp")
    given = asked.param_dtype if asked else dtype
    for turn in range(micro_batches):
        model(gradients(turn * RANKS + RANK).to(given)).backward()
    mean = mt.full_grad(model.p)
    assert mean is not None
    mt.destroy(model)
    return mean


def error_of(mean: torch.Tensor, gradients: Gradient, count: int, dtype: torch.dtype) -> float:
    exact = sum(gradients(i).to(dtype).double() for i in range(count)) / RANKS
    assert isinstance(exact, torch.Tensor)
    return float((mean.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("gradients", [low_noise, noise])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("plan", PLANS)
def test_adds_micro_batches_of_16_bits_in_f32(
    plan: str, dtype: torch.dtype, gradients: Gradient
) -> None:
    for micro_batches in (1, 2, 64):
        mean = mean_of(plan, gradients, micro_batches, dtype)
        assert error_of(mean, gradients, micro_batches * RANKS, dtype) <= 1e-7, micro_batches


@pytest.mark.parametrize("reduce_dtype", [None, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("plan", PLANS)
def test_adds_micro_batches_of_mixed_precision_in_f32(
    plan: str, reduce_dtype: torch.dtype | None
) -> None:
    mp = mt.MixedPrecision(torch.bfloat16, reduce_dtype)
    mean = mean_of(plan, low_noise, 64, torch.float32, mp=mp)
    assert error_of(mean, low_noise, 64 * RANKS, torch.bfloat16) <= 1e-7


@pytest.mark.parametrize("plan", ["zero0", "zero1"])
def test_adds_in_16_bits_if_the_plan_asks_for_it(plan: str) -> None:
    table = {"preset": plan, "gradient": {"dtype": "param"}}
    mean = mean_of(table, low_noise, 512, torch.bfloat16)
    assert error_of(mean, low_noise, 512 * RANKS, torch.bfloat16) > 0.1


def test_f16_does_not_overflow_as_micro_batches_are_added() -> None:
    for plan in PLANS:
        mean = mean_of(plan, lambda _: torch.full((COUNT,), 40_000.0), 4, torch.float16)
        assert torch.equal(mean, torch.full((COUNT,), 160_000.0)), plan


def added(gradients: list[torch.Tensor]) -> torch.Tensor:
    return functools.reduce(torch.add, gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("plan", [*PLANS, "mics(1)"])
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_sums_are_in_the_order_of_the_plan(
    plan: str, micro_batches: int, dtype: torch.dtype
) -> None:
    numbers = [[turn * RANKS + rank for rank in range(RANKS)] for turn in range(micro_batches)]
    given = {i: noise(i).to(dtype).float() for turn in numbers for i in turn}
    if plan in ("zero2", "zero3"):  # as one process does that runs them in this order
        expected = added([given[i] for turn in numbers for i in turn])
    else:  # each rank adds its own first
        expected = added([added([given[turn[rank]] for turn in numbers]) for rank in range(RANKS)])
    mean = mean_of(plan, noise, micro_batches, dtype)
    assert torch.equal(mean, expected * torch.tensor(1 / RANKS, dtype=torch.float32))


@pytest.mark.parametrize("dtype", ["auto", "param", "f32"])
@pytest.mark.parametrize("plan", PLANS)
def test_memory_and_bytes_of_an_accumulation_are_predicted(plan: str, dtype: str) -> None:
    context = mt.context_for({"preset": plan, "gradient": {"dtype": dtype}})
    model = Values(torch.bfloat16)
    mt.shard(model, context=context)
    for micro_batches, most in ((1, 1), (3, 3), (1, 3)):
        before = context.stats().reduce_bytes
        for turn in range(micro_batches):
            model(noise(turn).bfloat16()).backward()
        mt.full_grad(model.p)
        moved = context.stats().reduce_bytes - before
        assert moved == context.predict(micro_batches=micro_batches).reduce_bytes
        held = context.stats().gradient_bytes
        assert held == context.predict(micro_batches=most).gradient_bytes
        model.zero_grad()
    mt.destroy(model)
