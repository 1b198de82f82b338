# SPDX-License-Identifier: Apache-2.0
"""Parts of one model under different plans and groups of ranks, in a mesh of 2 x 2 ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from mlp import RANK, RANKS, loss, mlp, same
from torch import nn

import meron
import meron.torch as mt

pytestmark = pytest.mark.ranks(4)
INF = math.inf


def group_of(ranks: list[list[int]]) -> dist.ProcessGroup:
    """Makes all groups, and returns the one that contains this rank."""
    made = {tuple(group): dist.new_group(group, backend="gloo") for group in ranks}
    return next(group for ranks_, group in made.items() if RANK in ranks_)


def init_process_group(folder: Path) -> None:
    """Makes the default group of all ranks, after a context of all ranks."""
    mt.context_for("zero3")
    method = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=method, rank=RANK, world_size=RANKS)
    dist.barrier()  # the group breaks if a rank ends before the others are connected


def row_and_column() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """This rank's row and column of the mesh."""
    return group_of([[0, 1], [2, 3]]), group_of([[0, 2], [1, 3]])


def across_groups() -> tuple[nn.Sequential, nn.Sequential]:
    """A model with one layer sharded over a row and one over a column, and its plain twin."""
    model, plain = mlp(), mlp()
    row, column = row_and_column()
    mt.shard(model[0], group=row)
    mt.shard(model[2], group=column)
    return model, plain


def across_plans() -> tuple[nn.Sequential, nn.Sequential]:
    """A model with one layer under zero1 and one under zero3, and its plain twin."""
    model, plain = mlp(), mlp()
    mt.shard(model[0], plan="zero1")
    mt.shard(model[2], plan="zero3", mp=mt.MixedPrecision(torch.float32))
    return model, plain


@pytest.mark.parametrize("norm_type", [2.0, 3.0, INF])
def test_norm_counts_each_element_once(norm_type: float, tmp_path: Path) -> None:
    init_process_group(tmp_path)
    model, plain = across_groups()
    for each in (model, plain):
        (100 * loss(each, 5)).backward()
    seen = [mt.full_grad(param) for param in model.parameters()]
    for grad, param in zip(seen, plain.parameters()):
        torch.testing.assert_close(grad, param.grad)
    expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.5, norm_type)
    for order in (1, -1):
        norm = mt.clip_grad_norm_([*model.parameters()][::order], INF, norm_type)
        torch.testing.assert_close(norm, expected)
    doubled = [*model.parameters(), *model.parameters()]
    torch.testing.assert_close(mt.clip_grad_norm_(doubled, 0.5, norm_type), expected)
    for param, plain_param in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_grad(param), plain_param.grad)


def test_ranks_agree_on_the_norm_of_different_groups(tmp_path: Path) -> None:
    """One layer is sharded over a row, as experts are, and one over all ranks."""
    init_process_group(tmp_path)
    model = mlp()
    mt.shard(model[0], group=row_and_column()[0])
    mt.shard(model)
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss(model, RANK // 2).backward()
    norms = [float(mt.clip_grad_norm_(params, INF)) for params in (model, model[0], model[2])]
    shared = [torch.zeros(3) for _ in range(RANKS)]
    dist.all_gather(shared, torch.tensor(norms))
    assert {float(norm[0]) for norm in shared} == {norms[0]}, shared
    assert {float(norm[2]) for norm in shared} == {norms[2]}, shared
    rows = [float(norm[1]) for norm in shared]
    assert rows[0] == rows[1] != rows[2] == rows[3], rows
    mean = sum(norm**2 for norm in rows) / 4 + norms[2] ** 2
    assert abs(norms[0] ** 2 - mean) < 1e-5 * mean, (norms, mean)
    if RANK == 0:  # all ranks see that it is infinite
        mt.local_grad(model[0].weight)[0] = INF
    with pytest.raises(meron.NonFiniteError):
        mt.clip_grad_norm_(model, 1.0, 2.0, True)
    assert math.isinf(mt.clip_grad_norm_(model, 1.0))
    optimizer.zero_grad()


def test_rejects_groups_that_overlap_in_part(tmp_path: Path) -> None:
    """Ranks 0 to 2, and ranks 2 and 3. Reduced over one and then the other, ranks would differ."""
    init_process_group(tmp_path)
    first = group_of([[0, 1, 2], [3]])
    second = group_of([[0], [1], [2, 3]])
    model = mlp()
    mt.shard(model[0], group=first)
    mt.shard(model[2], group=second)
    loss(model, RANK).backward()
    refusals = torch.zeros(1)
    try:
        mt.clip_grad_norm_(model, 1.0)
    except meron.StateError as error:
        assert "ranks do not agree on a norm" in str(error), error
        refusals += 1
    dist.all_reduce(refusals)
    assert refusals >= 2, refusals
    mt.clip_grad_norm_(model[0], 1.0)


@pytest.mark.parametrize("shard", [across_groups, across_plans])
def test_one_optimizer_steps_several_groups_or_plans(
    shard: Callable[[], tuple[nn.Sequential, nn.Sequential]], tmp_path: Path
) -> None:
    init_process_group(tmp_path)
    model, plain = shard()
    optimizer = mt.shard_optimizer(model, torch.optim.Adam(model.parameters(), lr=0.1))
    twin = torch.optim.Adam(plain.parameters(), lr=0.1)
    for step in range(3):
        for each, steps in ((model, optimizer), (plain, twin)):
            loss(each, step).backward()
            steps.step()
            steps.zero_grad()
        same(model, plain)
    with pytest.raises(meron.ArgumentError, match="another plan or group"):
        mt.AdamW(model.parameters())


def test_rejects_weights_tied_across_plans(tmp_path: Path) -> None:
    init_process_group(tmp_path)
    model = mlp()
    model[2].weight = model[0].weight
    mt.shard(model[0], plan="zero1")
    with pytest.raises(meron.StateError, match="another plan or group"):
        mt.shard(model[2], plan="zero3")
    mt.shard(model[2], plan="zero1")
    loss(model, RANK).backward()


def test_accumulation_control_reaches_all_plans(tmp_path: Path) -> None:
    init_process_group(tmp_path)
    model, plain = across_plans()
    reducers = [sharding.reducer for sharding in mt.api.shardings_below(model)]
    assert len(reducers) == 2
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin = torch.optim.SGD(plain.parameters(), lr=0.1)
    with mt.no_sync(model):
        assert not any(reducer.sync for reducer in reducers)
        loss(model, 1).backward()
    mt.set_is_last_backward(model, True)
    assert all(reducer.sync and reducer.last for reducer in reducers)
    mt.set_is_last_backward(model, False)
    mt.set_requires_gradient_sync(model, False)
    loss(model, 2).backward()
    mt.set_requires_gradient_sync(model, True)
    loss(model, 3).backward()
    optimizer.step()
    for seed in (1, 2, 3):
        loss(plain, seed).backward()
    twin.step()
    same(model, plain)
    state = model.state_dict()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(state[name], value)
    late = mt.shard(nn.Linear(2, 2), plan="zero2")
    with pytest.raises(meron.ArgumentError, match="another plan or group"):
        optimizer.add_param_group({"params": [late.weight]})
    assert len(optimizer.param_groups) == 1
