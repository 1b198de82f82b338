# SPDX-License-Identifier: Apache-2.0
"""Models that are sharded over process groups of torch.distributed."""

from __future__ import annotations

import atexit
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
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
)

pytestmark = pytest.mark.ranks(3, 4)


def init_groups(folder: Path) -> None:
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=RANK, world_size=RANKS)
    dist.barrier()  # the group breaks if a rank ends before the others are connected
    atexit.register(dist.destroy_process_group)


class Topology:
    """An mpu of DeepSpeed."""

    def __init__(self, group: Any) -> None:
        self.group = group

    def get_data_parallel_group(self) -> Any:
        return self.group


def gradient_norm(model: nn.Module, group: Any) -> tuple[int, float | None]:
    engine = zero.initialize(model=model, mpu=Topology(group), config=config())[0]
    engine.backward(engine(torch.full((2, 3), float(RANK + 1))).sum())
    engine.step()
    return engine.world_size, engine.get_global_grad_norm()


def test_shards_over_a_group_of_ranks(tmp_path: Path) -> None:
    init_groups(tmp_path)
    pair = dist.new_group([0, 1])
    if RANK < 2:
        for keyword in ("data_parallel_group", "sequence_data_parallel_group"):
            with zero.Init(**{keyword: pair}):
                model = nn.Linear(3, 1, bias=False)
            world_size, norm = gradient_norm(model, pair)
            assert world_size == 2 and norm is not None
            assert abs(norm - 3 * 3**0.5) < 1e-5  # of the mean of 2 and 4, three times
    else:
        with pytest.raises(meron.ArgumentError, match="not in the group"):
            zero.Init(module=nn.Linear(3, 1), data_parallel_group=pair)


def test_collectives_run_within_a_group(tmp_path: Path) -> None:
    init_groups(tmp_path)
    last = [RANKS - 2, RANKS - 1]
    pair = dist.new_group(last)
    if RANK in last:
        assert comm.get_world_size(pair) == 2 and comm.get_rank(pair) == last.index(RANK)
        total = torch.tensor([float(RANK), 1.0])
        comm.all_reduce(total, group=pair)
        assert total.tolist() == [sum(last), 2.0]
        comm.broadcast(total.fill_(RANK), RANKS - 1, pair)  # ranks are those of the world
        assert total.tolist() == [RANKS - 1] * 2
        with pytest.raises(meron.ArgumentError, match="src"):
            comm.broadcast(total, 0, pair)
        comm.barrier(pair)
    assert comm.get_world_size() == RANKS


def test_shards_over_the_world_group(tmp_path: Path) -> None:
    init_groups(tmp_path)
    assert gradient_norm(nn.Linear(3, 1), dist.group.WORLD)[0] == RANKS


def own_pair() -> tuple[Any, list[int]]:
    pairs = [[first, first + 1] for first in range(0, RANKS - 1, 2)]
    groups = [dist.new_group(pair) for pair in pairs]
    return groups[RANK // 2], pairs[RANK // 2]


@pytest.mark.ranks(4)
def test_each_pair_of_ranks_trains_its_own_model(tmp_path: Path) -> None:
    init_groups(tmp_path)
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


@pytest.mark.ranks(4)
def test_takes_a_group_for_the_secondary_partition(tmp_path: Path) -> None:
    init_groups(tmp_path)
    group, _ = own_pair()
    model = nn.Linear(3, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "zero_hpz")
        zero.Init(module=model, zero_param_parallel_group=group)
    place = unit_of(model.weight)
    assert place is not None
    assert place[0].sharding.context.plan == meron.Plan.preset("hpz(2)")
    both = {"stage": 3, "zero_hpz_partition_size": 4}
    with pytest.raises(meron.ArgumentError, match="zero_hpz_partition_size is 4"):
        zero.Init(config=config(zero_optimization=both), zero_param_parallel_group=group)
    mics = {"stage": 3, "mics_shard_size": 2}
    with pytest.raises(meron.ArgumentError, match="mics_shard_size 2 and"):
        zero.Init(config=config(zero_optimization=mics), zero_param_parallel_group=group)
    across = [dist.new_group([0, 2]), dist.new_group([1, 3])][RANK % 2]
    with pytest.raises(meron.UnsupportedError, match="neighbours"):
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


@pytest.mark.ranks(4)
def test_hosts_become_nodes_of_the_mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts of two ranks without shared memory yield the bits of two groups on one host."""
    init_groups(tmp_path)
    keys = {"stage": 3, "zero_quantized_weights": True, "zero_quantized_gradients": True}
    table = json.loads(parse({"zero_optimization": keys}).plan().json())
    assert table["mesh"] == {"shard": "node"}
    expected = weights_after({**table, "mesh": {"shard": 2}})
    monkeypatch.setattr(world, "host_identity", lambda: f"host {RANK // 2}")
    torch.manual_seed(0)
    with zero.Init(config=config(zero_optimization=keys)):
        model = Model()
    engine = zero.initialize(model=model, config=config(zero_optimization=keys))[0]
    assert json.loads(engine.sharding.context.plan.json())["mesh"] == {"shard": 2}
    assert not engine.sharding.mapped
    for value, other in zip(weights_after(table), expected, strict=True):
        assert torch.equal(value, other)
