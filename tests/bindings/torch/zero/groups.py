# SPDX-License-Identifier: Apache-2.0
"""Models that are sharded over some of the ranks: groups of torch.distributed."""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch import world
from meron.torch.sharding import unit_of
from meron.zero import comm
from meron.zero.config import parse
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    raises,
    run_cases,
)


class Topology:
    """What DeepSpeed takes as mpu."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def get_data_parallel_group(self) -> Any:
        return self.group


def gradient_norm(model: nn.Module, group: Any) -> tuple[int, float | None]:
    engine = zero.initialize(model=model, mpu=Topology(group), config=config())[0]
    engine.backward(engine(torch.full((2, 3), float(RANK + 1))).sum())
    engine.step()
    return engine.world_size, engine.get_global_grad_norm()


def case_some_ranks() -> None:
    pair = dist.new_group([0, 1])
    if RANK < 2:
        for keyword in ("data_parallel_group", "sequence_data_parallel_group"):
            with zero.Init(**{keyword: pair}):
                model = nn.Linear(3, 1, bias=False)
            world_size, norm = gradient_norm(model, pair)
            assert world_size == 2 and norm is not None
            assert abs(norm - 3 * 3**0.5) < 1e-5  # of the mean of 2 and 4, three times
    else:
        with raises(meron.ArgumentError, "not in the group"):
            zero.Init(module=nn.Linear(3, 1), data_parallel_group=pair)


def case_collectives_of_some_ranks() -> None:
    last = [RANKS - 2, RANKS - 1]
    pair = dist.new_group(last)
    if RANK in last:
        assert comm.get_world_size(pair) == 2 and comm.get_rank(pair) == last.index(RANK)
        total = torch.tensor([float(RANK), 1.0])
        comm.all_reduce(total, group=pair)
        assert total.tolist() == [sum(last), 2.0]
        comm.broadcast(total.fill_(RANK), RANKS - 1, pair)  # ranks are those of all
        assert total.tolist() == [RANKS - 1] * 2
        with raises(meron.ArgumentError, "src"):
            comm.broadcast(total, 0, pair)
        comm.barrier(pair)
    assert comm.get_world_size() == RANKS


def case_all_ranks() -> None:
    assert gradient_norm(nn.Linear(3, 1), dist.group.WORLD)[0] == RANKS


def own_pair() -> tuple[Any, list[int]]:
    pairs = [[first, first + 1] for first in range(0, RANKS - 1, 2)]
    groups = [dist.new_group(pair) for pair in pairs]
    return groups[RANK // 2], pairs[RANK // 2]


def case_each_pair_trains_its_own() -> None:
    if RANKS != 4:
        return
    group, pair = own_pair()
    for keyword in ("data_parallel_group", "sequence_data_parallel_group"):
        for keys in ({}, {"mics_shard_size": 1}, {"zero_hpz_partition_size": 1}):
            zero_block = {"stage": 3, **keys}
            torch.manual_seed(pair[0])
            plain = Model()
            torch.manual_seed(pair[0])
            with zero.Init(config=config(zero_optimization=zero_block), **{keyword: group}):
                model = Model()
            engine = zero.initialize(
                model=model, mpu=Topology(group), config=config(zero_optimization=zero_block)
            )[0]
            optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
            generator = torch.Generator().manual_seed(pair[0])
            for _ in range(3):
                x, y = data(generator)
                engine_step(engine, [(x, y)])
                optimizer.zero_grad()
                for rank in pair:
                    (loss_of(plain, x[rank], y[rank]) / 2).backward()
                optimizer.step()
            assert_equal_weights(model, plain, 1e-6)
            engine.destroy()


def case_a_group_for_copies() -> None:
    if RANKS != 4:
        return
    group, _ = own_pair()
    model = nn.Linear(3, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "zero_hpz")
        zero.Init(module=model, zero_param_parallel_group=group)
    place = unit_of(model.weight)
    assert place is not None
    assert place[0].sharding.context.plan == meron.Plan.preset("hpz(2)")
    both = {"stage": 3, "zero_hpz_partition_size": 4}
    with raises(meron.ArgumentError, "zero_hpz_partition_size is 4"):
        zero.Init(config=config(zero_optimization=both), zero_param_parallel_group=group)
    mics = {"stage": 3, "mics_shard_size": 2}
    with raises(meron.ArgumentError, "mics_shard_size 2 and"):
        zero.Init(config=config(zero_optimization=mics), zero_param_parallel_group=group)
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][RANK % 2]
    with raises(meron.UnsupportedError, "neighbours"):
        zero.Init(zero_param_parallel_group=across)


def weights_after(plan: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = mt.shard(Model(), plan=plan)
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = data(torch.Generator().manual_seed(1))
    for _ in range(5):
        loss_of(model, x[RANK], y[RANK]).backward()
        optimizer.step()
    return [mt.full_param(param) for param in model.parameters()]


def case_hosts_are_nodes() -> None:
    """Two hosts of two ranks that share no memory: the same bits as groups of two on one host."""
    if RANKS != 4:
        return
    keys = {"stage": 3, "zero_quantized_weights": True, "zero_quantized_gradients": True}
    table = json.loads(parse({"zero_optimization": keys}).plan().json())
    assert table["mesh"] == {"shard": "node"}
    expected = weights_after({**table, "mesh": {"shard": 2}})
    host, world.host_identity = world.host_identity, lambda: f"host {RANK // 2}"
    try:
        torch.manual_seed(0)
        with zero.Init(config=config(zero_optimization=keys)):
            model = Model()
        engine = zero.initialize(model=model, config=config(zero_optimization=keys))[0]
        assert json.loads(engine.sharding.context.plan.json())["mesh"] == {"shard": 2}
        assert not engine.sharding.mapped
        for value, other in zip(weights_after(table), expected, strict=True):
            assert torch.equal(value, other)
    finally:
        world.host_identity = host


if __name__ == "__main__":
    dist.init_process_group("gloo", f"file://{os.environ['MEETING']}", rank=RANK, world_size=RANKS)
    run_cases(sys.modules[__name__])
    dist.destroy_process_group()
