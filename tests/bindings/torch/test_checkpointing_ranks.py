# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing on several ranks: partitioned activations, sharded params."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from checkpointed import Block, Model, equal, gradients, plain
from checkpointed import fresh as fresh
from conftest import run_ranks
from twin import compare

from meron import checkpointing

PARTITIONED = """
import os, sys
sys.path.insert(0, {here!r})
import torch, torch.distributed as dist
import meron, checkpointed as tests
from meron import checkpointing

rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
dist.init_process_group("gloo", init_method="file://{folder}/meet", rank=rank, world_size=ranks)

class Mpu:
    def get_model_parallel_group(self):
        return dist.group.WORLD
    def get_model_parallel_rank(self):
        return rank

model = tests.Model()
expected = tests.gradients(model, tests.plain)
part = -(-tests.X // 4 // ranks) * 4
for flags in tests.FLAGS[1], tests.FLAGS[3], tests.FLAGS[5]:
    flags = dict(flags, partition_activations=True)
    checkpointing.state.__init__()
    checkpointing.configure(Mpu(), **flags)
    for _ in range(2):
        assert tests.equal(expected, tests.gradients(model, checkpointing.checkpoint)), flags
    kept, _ = tests.kept_bytes(model, checkpointing.checkpoint)
    buffer = checkpointing.state.keeper.arenas.bytes
    assert kept + buffer == tests.BLOCKS * part, (flags, kept, buffer)

# Each rank draws its own numbers in a fork, and the same outside.
checkpointing.model_parallel_cuda_manual_seed(5)
with checkpointing.get_cuda_rng_tracker().fork():
    own = torch.rand(1)
found = [torch.zeros(2) for _ in range(ranks)]
dist.all_gather(found, torch.cat([own, torch.rand(1)]))
assert len({{float(each[0]) for each in found}}) == ranks
assert len({{float(each[1]) for each in found}}) == 1

# Params sharded over the ranks 0 and 1, which have parts of the same activations too.
pair = dist.new_group([0, 1])
if rank < 2:
    class Pair:
        def get_tensor_model_parallel_group(self):
            return pair
    import meron.torch as mt
    checkpointing.configure(Pair(), {{}}, partition_activations=True, contiguous_checkpointing=True)
    sharded = mt.shard(tests.Model(), units=tests.Block, plan="zero3", group=pair)
    optimizer = mt.shard_optimizer(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1))
    for _ in range(2):
        torch.manual_seed(1)
        sharded(checkpointing.checkpoint).square().sum().backward()
        found = [mt.full_grad(param) for param in sharded.parameters()]
        assert tests.equal(found, expected[:-1])
        optimizer.zero_grad()
dist.barrier()

# Activations that differ are no parts of one.
checkpointing.configure(Mpu())
with torch.no_grad():
    model.embedding.weight.add_(rank)
try:
    model(checkpointing.checkpoint)
except meron.MismatchError as error:
    assert "partition_activations" in str(error) and error.peer == 1
else:
    raise AssertionError("no error")
dist.barrier()
dist.destroy_process_group()
"""


def test_partitioned_activations(tmp_path: Path) -> None:
    source = PARTITIONED.format(here=str(Path(__file__).parent), folder=tmp_path)
    done = run_ranks(3, source=source)
    assert done.returncode == 0, done.stdout + done.stderr


ANEW = """
import os, sys
sys.path.insert(0, {here!r})
import torch, torch.distributed as dist
import meron, checkpointed as tests
from meron import checkpointing

rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])

class Mpu:
    def get_model_parallel_group(self):
        return dist.group.WORLD

checkpointing.configure(Mpu(), partition_activations=True)
model = tests.Model()
expected = tests.gradients(model, tests.plain)
for file in "first", "second":
    dist.init_process_group("gloo", init_method="file://{folder}/" + file, rank=rank,
                            world_size=ranks)
    assert tests.equal(expected, tests.gradients(model, checkpointing.checkpoint)), file
    output = model(checkpointing.checkpoint).square().sum()
    dist.barrier()
    dist.destroy_process_group()
try:
    output.backward()  # its parts can be gathered no more
except meron.StateError as error:
    assert "model-parallel group" in str(error) and "backward" in str(error), error
else:
    raise AssertionError("no error")
"""


def test_a_group_of_after_another(tmp_path: Path) -> None:
    source = ANEW.format(here=str(Path(__file__).parent), folder=tmp_path)
    done = run_ranks(2, source=source)
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_sharded_units_are_gathered_again() -> None:
    """Losses and weights are those of one process without sharding, bit by bit."""
    runs = compare(SHARDED, 2, ("zero1", "zero3"), steps=3)
    for run in runs.values():
        run.check()


def test_a_sharded_model_after_a_recomputation_that_failed() -> None:
    import meron.torch as mt

    model = mt.shard(Model(), units=Block, plan="zero3")
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    twin = Model()
    expected = gradients(twin, plain)
    fails = [0, 1]

    def failing(block: Any, x: torch.Tensor) -> torch.Tensor:
        x = block(x)
        if torch._C._current_graph_task_id() != -1 and fails and fails.pop(0):
            raise KeyError("late in a recomputation")
        return x  # (whose block has saved what is needed: early stop would not come here)

    def never_stopped(block: Any, x: torch.Tensor) -> torch.Tensor:
        return checkpointing.checkpoint(lambda y: failing(block, y).exp().log(), x)  # type: ignore[no-any-return]

    with pytest.raises(KeyError):
        model(never_stopped).sum().backward()
    torch.manual_seed(1)
    optimizer.zero_grad()  # also of blocks that came before the failure
    model(checkpointing.checkpoint).square().sum().backward()
    found = [mt.full_grad(param) for param in model.parameters()]
    assert equal(found, expected[:-1])  # type: ignore[arg-type]
