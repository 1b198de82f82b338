# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel and shard of one model: refused in either order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from mlp import RANK, RANKS, mlp, sgd, step_both
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import meron
import meron.torch as mt
import meron.zero

pytestmark = pytest.mark.ranks(2)
PLANS = pytest.mark.parametrize("plan", ["zero0", "zero1", "zero3"])


@pytest.fixture
def meeting(tmp_path: Path) -> str:
    return f"file://{tmp_path}/meet"


def join(meeting: str) -> None:
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)


@pytest.fixture(autouse=True)
def leave() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@PLANS
def test_rejects_a_wrapper_around_a_sharded_model(plan: str, meeting: str) -> None:
    model = mt.shard(mlp(), plan=plan, units=nn.Linear)
    optimizer = mt.shard_optimizer(model, sgd(model))
    join(meeting)
    with pytest.raises(meron.StateError, match=r"DistributedDataParallel.*0\.weight"):
        DistributedDataParallel(model)
    with pytest.raises(meron.StateError, match=r"DistributedDataParallel.*0\.weight"):
        DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), model))
    plain = mlp()
    step_both(model, optimizer, plain, sgd(plain))


@PLANS
def test_rejects_a_model_that_is_wrapped(plan: str, meeting: str) -> None:
    join(meeting)
    inner = mlp()
    wrapper = DistributedDataParallel(inner)
    for given in (wrapper, nn.Sequential(wrapper), inner, inner[0]):
        with pytest.raises(meron.StateError, match="DistributedDataParallel"):
            mt.shard(given, plan=plan)
    with pytest.raises(meron.StateError, match="DistributedDataParallel"):
        meron.zero.initialize(
            model=wrapper, config={"train_batch_size": 2, "zero_optimization": {"stage": 3}}
        )
    del wrapper, given
    mt.shard(inner, plan=plan, units=nn.Linear)
    plain = mlp()
    step_both(inner, mt.shard_optimizer(inner, sgd(inner)), plain, sgd(plain))


def test_wraps_what_is_not_sharded(meeting: str) -> None:
    join(meeting)
    model = nn.Sequential(mt.shard(nn.Linear(4, 4)), nn.Linear(4, 4))
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        model, ["0.weight", "0.bias"]
    )
    wrapper = DistributedDataParallel(model)
    wrapper(torch.ones(2, 4)).sum().backward()
    assert model[1].weight.grad is not None
