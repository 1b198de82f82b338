# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing on several ranks: partitioned activations and sharded params."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from checkpointed import BLOCKS, FLAGS, Block, Model, X, equal, gradients, kept_bytes, plain
from checkpointed import fresh as fresh
from twin import compare

import meron
import meron.torch as mt
from meron import checkpointing

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))


def join(folder: Path, name: str = "meet") -> None:
    """Makes a group of all ranks, which meet at a file."""
    where = f"file://{folder}/{name}"
    dist.init_process_group("gloo", init_method=where, rank=RANK, world_size=RANKS)
    dist.barrier()  # the group breaks if a rank ends before the others are connected


class Mpu:
    """All ranks are model-parallel."""

    def get_model_parallel_group(self) -> Any:
        return dist.group.WORLD

    def get_model_parallel_rank(self) -> int:
        return RANK


@pytest.mark.ranks(3)
@pytest.mark.parametrize(
    "flags", [FLAGS[1], FLAGS[3], FLAGS[5]], ids=["contiguous", "default", "all"]
)
def test_each_rank_keeps_its_part_of_activations(tmp_path: Path, flags: dict[str, Any]) -> None:
    join(tmp_path)
    model = Model()
    expected = gradients(model, plain)
    part = -(-X // 4 // RANKS) * 4
    checkpointing.configure(Mpu(), **{**flags, "partition_activations": True})
    for _ in range(2):
        assert equal(expected, gradients(model, checkpointing.checkpoint))
    kept, _ = kept_bytes(model, checkpointing.checkpoint)
    assert kept + checkpointing.state.keeper.arenas.bytes == BLOCKS * part
    dist.barrier()


@pytest.mark.ranks(3)
def test_each_rank_draws_its_own_numbers_in_a_fork(tmp_path: Path) -> None:
    join(tmp_path)
    checkpointing.configure(Mpu(), partition_activations=True)
    checkpointing.model_parallel_cuda_manual_seed(5)
    with checkpointing.get_cuda_rng_tracker().fork():
        own = torch.rand(1)
    found = [torch.zeros(2) for _ in range(RANKS)]
    dist.all_gather(found, torch.cat([own, torch.rand(1)]))
    assert len({float(each[0]) for each in found}) == RANKS
    assert len({float(each[1]) for each in found}) == 1


@pytest.mark.ranks(3)
def test_ranks_share_params_and_activations_in_one_group(tmp_path: Path) -> None:
    join(tmp_path)
    pair = dist.new_group([0, 1])

    class Pair:
        def get_tensor_model_parallel_group(self) -> Any:
            return pair

    if RANK < 2:
        expected = gradients(Model(), plain)
        flags = {"partition_activations": True, "contiguous_checkpointing": True}
        checkpointing.configure(Pair(), {}, **flags)
        sharded = mt.shard(Model(), units=Block, plan="zero3", group=pair)
        optimizer = mt.shard_optimizer(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1))
        for _ in range(2):
            torch.manual_seed(1)
            sharded(checkpointing.checkpoint).square().sum().backward()
            found = [mt.full_grad(param) for param in sharded.parameters()]
            assert equal(found, expected[:-1])
            optimizer.zero_grad()
    dist.barrier()


@pytest.mark.ranks(3)
def test_rejects_to_partition_activations_that_differ(tmp_path: Path) -> None:
    join(tmp_path)
    checkpointing.configure(Mpu(), partition_activations=True)
    model = Model()
    with torch.no_grad():
        model.embedding.weight.add_(RANK)
    with pytest.raises(meron.MismatchError, match="partition_activations") as caught:
        model(checkpointing.checkpoint)
    assert caught.value.peer == 1
    dist.barrier()


@pytest.mark.ranks(2)
def test_partitions_over_a_group_made_after_another_was_destroyed(tmp_path: Path) -> None:
    checkpointing.configure(Mpu(), partition_activations=True)
    model = Model()
    expected = gradients(model, plain)
    for name in ("first", "second"):
        join(tmp_path, name)
        assert equal(expected, gradients(model, checkpointing.checkpoint)), name
        output = model(checkpointing.checkpoint).square().sum()
        dist.barrier()
        dist.destroy_process_group()
    with pytest.raises(meron.StateError, match="model-parallel group") as caught:
        output.backward()  # its parts cannot be gathered any more
    assert "backward" in str(caught.value)


SHARDED = """
import torch
import meron.torch as mt
from meron import checkpointing

checkpointing.configure(None, contiguous_checkpointing=True, checkpoint_in_cpu=True)

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 32)
        self.weight = torch.nn.Parameter(torch.randn(16, 32) / 8)
    def forward(self, x, scale):
        x = x + torch.relu(self.linear(self.norm(x))) @ self.weight.t() * scale
        return x, None

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.head = torch.nn.Linear(16, 11, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, tokens):
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x, _ = checkpointing.checkpoint(block, x, scale=2) if i != 1 else block(x, 2)
            self.check(block)
        return self.head(x)
    def check(self, block):
        for param in block.parameters():
            if hasattr(param, "_meron"):
                assert param._meron[0].uses == 0

def build():
    return Model()

def batch(generator):
    return torch.randint(0, 11, (2, 9), generator=generator)

def loss(model, tokens):
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                             tokens[:, 1:].flatten())

def shard(model, plan):
    return mt.shard(model, units=Block, plan=plan)
"""


def test_recomputation_gathers_sharded_units_again() -> None:
    """Losses and weights have the bits of one process without sharding."""
    runs = compare(SHARDED, 2, ("zero1", "zero3"), steps=3)
    for run in runs.values():
        run.check()


def test_a_sharded_model_trains_after_a_failed_recomputation() -> None:
    model = mt.shard(Model(), units=Block, plan="zero3")
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin = Model()
    expected = gradients(twin, plain)
    fails = [0, 1]

    def failing(block: Any, x: torch.Tensor) -> torch.Tensor:
        x = block(x)
        if torch._C._current_graph_task_id() != -1 and fails and fails.pop(0):
            raise KeyError("late in a recomputation")
        return x  # early stop raises before this, if the block has saved all that backward needs

    def never_stopped(block: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpointing.checkpoint(lambda y: failing(block, y).exp().log(), x)  # type: ignore[no-any-return]

    with pytest.raises(KeyError):
        model(never_stopped).sum().backward()
    torch.manual_seed(1)
    optimizer.zero_grad()  # clears gradients of blocks before the failure too
    model(checkpointing.checkpoint).square().sum().backward()
    found = [mt.full_grad(param) for param in model.parameters()]
    assert equal(found, expected[:-1])  # type: ignore[arg-type]
