# SPDX-License-Identifier: Apache-2.0
"""clip_grad_norm_ of sharded params does to every gradient what PyTorch's does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp import RANK
from torch import nn

import meron
import meron.torch as mt
from meron.torch.values.state import grad_norm
from meron.zero.compat import helpers

pytestmark = pytest.mark.ranks(2)

SIZE = 1000
INF, NAN = math.inf, math.nan
NORM_TYPES = (2.0, 1.0, INF, 3.0, 0.5)
Clip = Callable[[list[nn.Parameter]], torch.Tensor]


class Sum(nn.Module):
    """The gradient of p is the input, that of q is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.ones(SIZE))
        self.q = nn.Parameter(torch.ones(3))

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        return (self.p * g).sum() + self.q.sum()


def gradient(ordinary: float, special: float | None = None) -> torch.Tensor:
    g = torch.full((SIZE,), ordinary)
    if special is not None:
        g[5] = special
    return g


def by_torch(ordinary: float, special: float | None, clip: Clip) -> list[torch.Tensor]:
    """The norm, and the gradients afterwards."""
    plain = Sum()
    plain(gradient(ordinary, special)).backward()
    norm = clip([*plain.parameters()])
    return [norm, *(param.grad for param in plain.parameters() if param.grad is not None)]


def by_meron(
    ordinary: float, special: float | None, clip: Clip, plan: str = "zero3"
) -> list[torch.Tensor]:
    """As by_torch; one rank alone has the special element."""
    model = mt.shard(Sum(), plan=plan)
    mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=1.0))
    model(gradient(ordinary, special if RANK == 0 else None)).backward()
    norm = clip([*model.parameters()])
    found = [mt.full_grad(param) for param in model.parameters()]
    mt.destroy(model)
    return [norm, *(grad for grad in found if grad is not None)]


def assert_alike(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected) == 3
    for own, its in zip(found, expected):
        torch.testing.assert_close(own, its, rtol=1e-5, atol=0.0, equal_nan=True)  # norms in f32


@pytest.mark.parametrize("plan", ["zero0", "zero3"])
def test_a_norm_that_is_not_finite_reaches_every_gradient(plan: str) -> None:
    for norm_type, special in itertools.product(NORM_TYPES, (NAN, INF, -INF)):

        def clip(params: list[nn.Parameter], kind: float = norm_type) -> torch.Tensor:
            return nn.utils.clip_grad_norm_(params, 1.0, kind)

        expected = by_torch(100.0, special, clip)
        assert_alike(by_meron(100.0, special, clip, plan), expected)
        if math.isnan(special):
            assert all(bool(each.isnan().all()) for each in expected)


def test_gradients_of_any_size_are_clipped_as_by_torch() -> None:
    options = ((2.0, 1.0), (1.0, 1e-3), (INF, 1.0), (2.0, 0.0), (2.0, INF))
    sizes = (0.0, 1e-42, 1e-30, 1e-3, 100.0, 1e30)
    for ordinary, (norm_type, most) in itertools.product(sizes, options):
        if ordinary == 1e30 and norm_type == 2.0:
            continue  # torch's norm is inf, as it squares in f32

        def clip(params: list[nn.Parameter], m: float = most, k: float = norm_type) -> torch.Tensor:
            return nn.utils.clip_grad_norm_(params, m, k)

        assert_alike(by_meron(ordinary, None, clip), by_torch(ordinary, None, clip))


def test_every_door_clips_alike() -> None:
    """meron.torch's, PyTorch's with foreach, and DeepSpeed's name."""
    doors: dict[str, Clip] = {
        "meron.torch": lambda params: mt.clip_grad_norm_(params, 1.0),
        "foreach": lambda params: nn.utils.clip_grad_norm_(params, 1.0, foreach=True),
        "one by one": lambda params: nn.utils.clip_grad_norm_(params, 1.0, foreach=False),
        "meron.zero": lambda params: helpers.clip_grad_norm_(params, 1.0),
    }
    for special in (None, NAN, INF):
        expected = by_torch(100.0, special, lambda p: nn.utils.clip_grad_norm_(p, 1.0))
        for clip in doors.values():
            assert_alike(by_meron(100.0, special, clip), expected)


def test_a_limit_that_is_not_a_number_is_torchs_too() -> None:
    for most in (NAN, INF):

        def clip(params: list[nn.Parameter], limit: float = most) -> torch.Tensor:
            return nn.utils.clip_grad_norm_(params, limit)

        assert_alike(by_meron(1.0, INF, clip), by_torch(1.0, INF, clip))
    assert_alike(
        by_meron(1.0, None, lambda p: nn.utils.clip_grad_norm_(p, NAN)),
        by_torch(1.0, None, lambda p: nn.utils.clip_grad_norm_(p, NAN)),
    )


def test_an_error_of_a_norm_that_is_not_finite_leaves_gradients_as_they_are() -> None:
    for special in (NAN, INF):

        def clip(params: list[nn.Parameter]) -> torch.Tensor:
            with pytest.raises(meron.NonFiniteError):
                mt.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
            return torch.zeros(())

        _, own, other = by_meron(100.0, special, clip)
        assert int(own.eq(100.0).sum()) == SIZE - 1 and bool(other.eq(1.0).all())


def test_measuring_a_norm_changes_no_gradient() -> None:
    for special in (None, NAN, INF):
        norm, own, other = by_meron(100.0, special, grad_norm)
        assert int(own.eq(100.0).sum()) == SIZE - (special is not None)
        assert bool(other.eq(1.0).all())
        expected = by_torch(100.0, special, lambda p: nn.utils.clip_grad_norm_(p, INF))[0]
        torch.testing.assert_close(norm, expected, equal_nan=True)


def test_refuses_what_is_no_norm_over_ranks() -> None:
    def clip(params: list[nn.Parameter]) -> torch.Tensor:
        doors = (mt.clip_grad_norm_, nn.utils.clip_grad_norm_)
        for door, norm_type in itertools.product(doors, (0.0, -1.0, -INF, NAN)):
            with pytest.raises(meron.ArgumentError, match=r"norm_type is .*: a power above 0"):
                door(params, 1.0, norm_type)
        return torch.zeros(())

    _, own, _ = by_meron(100.0, None, clip)
    assert bool(own.eq(100.0).all())


def test_a_power_next_to_0_gives_infinity_as_torch() -> None:
    def clip(params: list[nn.Parameter]) -> Any:
        return nn.utils.clip_grad_norm_(params, 1.0, 1e-3)

    assert_alike(by_meron(100.0, None, clip), by_torch(100.0, None, clip))
