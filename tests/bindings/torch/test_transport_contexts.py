# SPDX-License-Identifier: Apache-2.0
"""Meron's contexts over torch.distributed groups."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from process_groups import (
    MakeTransports,
    in_threads,
    open_over,
    settle,
    transports_over,
)

import meron
from meron.torch import transport


@pytest.fixture(params=["gloo", "asked"])
def make(request: pytest.FixtureRequest) -> MakeTransports:
    return transports_over(request.param)


def train(context: meron.Context, elements: int) -> list[float]:
    """Three steps on one param; the values that matter, equal on all ranks."""
    param = context.param("w", (elements,))
    unit = context.unit("u", [param])
    optimizer = context.adamw([unit], lr=0.1)
    values = []
    for _ in range(3):
        with unit.gather() as gather:
            values.append(float(gather[param].sum(dtype=np.float64)))
        gradient = np.full(elements, context.rank + 1, np.float32)
        unit.reduce({param: gradient})
        optimizer.step()
    total = np.ones(elements, np.float32)
    context.world.all_reduce(total)
    return [*values, float(total[-1])]


@pytest.mark.parametrize("ranks", [2, 3])
def test_contexts(make: MakeTransports, ranks: int) -> None:
    ends = make(ranks)
    for end in ends:
        end.max_message = 64 << 10  # so that parts are several messages

    def body(rank: int) -> list[float]:
        with open_over(ends[rank], ranks) as context:
            assert context.transport == "group"
            return train(context, 200_001)

    results = in_threads(ranks, body)
    assert all(result == results[0] for result in results), results
    assert results[0][-1] == ranks
    settle(*ends)


def test_contexts_share_a_group(make: MakeTransports) -> None:
    first = make(2)
    groups = [end._group for end in first]
    second = make(2, 1, groups)

    def body(rank: int) -> tuple[list[float], list[float]]:
        with open_over(first[rank], 2) as one, open_over(second[rank], 2, plan="zero1") as two:
            return train(one, 1000), train(two, 2000)

    results = in_threads(2, body)
    assert results[0] == results[1]
    settle(*first, *second)
    third = make(2, 2, groups)

    def later(rank: int) -> list[float]:
        with open_over(third[rank], 2) as context:
            return train(context, 1000)

    assert in_threads(2, later) == [results[0][0]] * 2
    settle(*third)


def test_diverging_calls_are_named(make: MakeTransports) -> None:
    ends = make(2)

    def body(rank: int) -> None:
        with open_over(ends[rank], 2) as context:
            context.world.all_reduce(np.ones(10 + rank, np.float32))

    for error in in_threads(2, body):
        assert isinstance(error, meron.MismatchError), error
        assert "44 bytes" in str(error)
        assert "40 bytes" in str(error)
    settle(*ends)


def test_a_rank_that_does_not_come(make: MakeTransports) -> None:
    ends = make(3)
    begun = time.monotonic()
    errors = in_threads(2, lambda rank: open_over(ends[rank], 3, timeout=0.5))
    assert time.monotonic() - begun < 5
    for error in errors:
        assert isinstance(error, meron.DeadlineError), error
        assert error.peer == 2
    ends[2].closed()
    settle(*ends)


def test_a_rank_that_left_is_named(make: MakeTransports) -> None:
    ends = make(3)

    def body(rank: int) -> Any:
        with open_over(ends[rank], 3) as context:
            context.world.barrier()
            if rank != 2:
                context.world.all_reduce(np.ones(4, np.float32))

    errors = in_threads(3, body)
    assert errors[2] is None
    for error in errors[:2]:
        assert isinstance(error, meron.PeerClosedError), error
        assert error.peer == 2
    settle(*ends)


def test_a_group_is_needed() -> None:
    with pytest.raises(meron.ArgumentError, match="not initialised"):
        transport.group_transport(None)
