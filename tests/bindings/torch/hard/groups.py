# SPDX-License-Identifier: Apache-2.0
"""One of four ranks: parts of one model are sharded by different plans and groups of ranks.

The ranks are a mesh of 2 x 2. Run and reported by promise_program.py; the folder is where they
meet.
"""

from __future__ import annotations

import math
import os
import sys

import torch
import torch.distributed as dist
from mlp import loss, mlp
from promise_program import RANK, RANKS, main, promises_of, raises
from torch import nn

import meron
import meron.torch as mt

Optimizer = torch.optim.Optimizer
INF = math.inf


def group_of(ranks: list[list[int]]) -> dist.ProcessGroup:
    """This rank's group of some that all ranks make."""
    made = {tuple(group): dist.new_group(group, backend="gloo") for group in ranks}
    return next(group for ranks_, group in made.items() if RANK in ranks_)


def across() -> tuple[nn.Sequential, nn.Sequential]:
    """The first layer sharded over a row of the mesh, the second over a column; and in plain."""
    model, plain = mlp(), mlp()
    mt.shard(model[0], group=ROW)
    mt.shard(model[2], group=COLUMN)
    return model, plain


def same(model: nn.Module, plain: nn.Module) -> None:
    for param, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_param(param), expected.detach())


def the_norm_counts_each_element_once() -> None:
    for norm_type in (2.0, 3.0, INF):
        model, plain = across()
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


def ranks_agree_where_groups_differ() -> None:
    """As those of experts; one plan for all ranks beside them."""
    model = mlp()
    mt.shard(model[0], group=ROW)
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
    if RANK == 0:  # infinite on one rank of one group: told on all ranks
        mt.local_grad(model[0].weight)[0] = INF
    raises(meron.NonFiniteError, "", lambda: mt.clip_grad_norm_(model, 1.0, 2.0, True))
    assert math.isinf(mt.clip_grad_norm_(model, 1.0))
    optimizer.zero_grad()


def groups_that_overlap_in_part_are_refused() -> None:
    """Ranks 0 to 2, and 2 and 3: no mean along one and then the other is equal everywhere."""
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


def one_optimizer_steps_over_groups_and_plans() -> None:
    for shard in (across, plans):
        model, plain = shard()
        optimizer = mt.shard_optimizer(model, torch.optim.Adam(model.parameters(), lr=0.1))
        twin = torch.optim.Adam(plain.parameters(), lr=0.1)
        for step in range(3):
            for each, steps in ((model, optimizer), (plain, twin)):
                loss(each, step).backward()
                steps.step()
                steps.zero_grad()
            same(model, plain)
        raises(
            meron.ArgumentError,
            "another plan or group",
            lambda: mt.AdamW(model.parameters()),  # noqa: B023
        )


def plans() -> tuple[nn.Sequential, nn.Sequential]:
    model, plain = mlp(), mlp()
    mt.shard(model[0], plan="zero1")
    mt.shard(model[2], plan="zero3", mp=mt.MixedPrecision(torch.float32))
    return model, plain


def weights_tied_over_plans_are_refused() -> None:
    model = mlp()
    model[2].weight = model[0].weight
    mt.shard(model[0], plan="zero1")
    raises(meron.StateError, "another plan or group", lambda: mt.shard(model[2], plan="zero3"))
    mt.shard(model[2], plan="zero1")
    loss(model, RANK).backward()


def control_reaches_all_plans() -> None:
    model, plain = plans()
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
    raises(
        meron.ArgumentError,
        "another plan or group",
        lambda: optimizer.add_param_group({"params": [late.weight]}),
    )
    assert len(optimizer.param_groups) == 1


dist.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=RANK, world_size=RANKS
)
ROW = group_of([[0, 1], [2, 3]])
COLUMN = group_of([[0, 2], [1, 3]])

if __name__ == "__main__":
    code = main(sys.argv[1], promises_of(dict(globals())))
    dist.barrier()
    os._exit(code)
