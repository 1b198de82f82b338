# SPDX-License-Identifier: Apache-2.0
"""Who the ranks are and how they meet: launchers, groups, several contexts, failures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import launch
from twin import compare

import meron
import meron.torch as mt
from meron.torch import registry, world
from meron.torch.world import open_context

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))
ZERO1, ZERO3 = meron.Plan.preset("zero1"), meron.Plan.preset("zero3")
PLANS = ("zero0", "zero1", "zero2", "zero3")
LIMIT = 120


def join(folder: Path) -> None:
    """Makes a gloo group of all ranks, which meet at a file."""
    where = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=where, rank=RANK, world_size=RANKS)
    dist.barrier()  # the group breaks if a rank ends before the others are connected


# ---- Training over a group ----------------------------------------------------------------------

MODEL = """
import torch, torch.distributed as dist
from torch.utils.checkpoint import checkpoint
import meron.torch as mt

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 32)
        self.weight = torch.nn.Parameter(torch.randn(16, 32) / 8)
    def forward(self, x):
        return x + torch.relu(self.linear(self.norm(x))) @ self.weight.t()  # saves the transposed

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.head = torch.nn.Linear(16, 11, bias=False)
        self.head.weight = self.embedding.weight
    def forward(self, tokens):
        x = self.embedding(tokens)
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if i else block(x)
            check(block)
        return self.head(x)

def build():
    return Model()

def batch(generator):
    return torch.randint(0, 11, (2, 9), generator=generator)

def loss(model, tokens):
    check(model)
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                             tokens[:, 1:].flatten())

def check(module):
    # Out of use no storage of a full tensor holds memory, if the plan shards params; a recomputed
    # block is in use.
    if torch._C._current_graph_task_id() != -1:
        return
    for unit in {param._meron[0] for param in module.parameters() if hasattr(param, "_meron")}:
        assert not unit.sharding.mapped
        full = [whole.untyped_storage().nbytes() > 0 for whole in unit.memory.wholes]
        assert full == [unit.stays] * len(full), unit

def shard(model, plan):
    return mt.shard(model, units=Block, plan=plan, transport="group")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_training_over_a_group(ranks: int, tmp_path: Path) -> None:
    rendezvous = f"""
import os
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet",
                        rank=int(os.environ["MERON_RANK"]),
                        world_size=int(os.environ["MERON_WORLD_SIZE"]))
"""
    runs = compare(MODEL + rendezvous, ranks, PLANS, steps=4)
    for plan in PLANS:
        runs[plan, 1].check()


# ---- Launchers ----------------------------------------------------------------------------------

TORCHRUN = """
import os, sys
import torch, torch.distributed as dist
import meron, meron.torch as mt
from meron.torch.world import open_context

rank = int(os.environ["RANK"])
model = mt.shard(torch.nn.Linear(4, 2), plan="zero3")
context = mt.context_for(meron.Plan.preset("zero3"))
assert (context.rank, context.world_size, context.transport) == (rank, 2, "shm"), context
optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
model(torch.ones(1, 4) * rank).sum().backward()
optimizer.step()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 1:
        os._exit(1)
    try:
        context.world.barrier()
    except meron.PeerDeadError as error:
        assert error.peer == 1
    sys.exit(1)
# torch.distributed may be initialized later, and changes nothing.
dist.init_process_group("gloo")
assert mt.context_for(meron.Plan.preset("zero3")) is context
other = mt.shard(torch.nn.Linear(4, 2), plan="zero1")
second = mt.context_for(meron.Plan.preset("zero1"))
assert second is not context and second.transport == "shm"
over = open_context(meron.Plan.preset("zero1"), transport="group")
assert over.transport == "group"
over.world.barrier()
over.close()
os.write(1, f"done {rank}\\n".encode())  # at once: both ranks write here
"""


# Written for torchrun. Both ranks take rank and world size from its variables.
FOR_TORCHRUN = """
import os
import torch, torch.distributed as dist
import meron, meron.torch as mt
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
model = mt.shard(torch.nn.Linear(1, 1))
context = mt.context_for(meron.Plan.preset("zero3"))
assert (context.rank, context.world_size, context.transport) == (rank, world_size, "shm"), context
data = TensorDataset(torch.arange(8.0)[:, None])
sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=False)
examples = torch.cat([x.flatten() for (x,) in DataLoader(data, 2, sampler=sampler)])
dist.init_process_group("gloo")
found = [torch.empty(4) for _ in range(world_size)]
dist.all_gather(found, examples)
assert torch.cat(found).sort().values.tolist() == list(range(8)), found
assert int(os.environ["LOCAL_RANK"]) == dist.get_rank() == rank
dist.destroy_process_group()
"""


def test_a_script_for_torchrun_finds_its_rank_under_meron_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FOR_TORCHRUN)
    done = launch(2, script)
    assert done.returncode == 0, done.stderr


def test_torchrun_with_a_restart(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TORCHRUN)
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1"
    done = subprocess.run(
        [sys.executable, *launcher.split(), str(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "done", "done"]


# ---- Groups, contexts, disagreement -------------------------------------------------------------


@pytest.mark.ranks(4)
@pytest.mark.parametrize("transport", ["shm", "group"])
def test_groups_train_models_of_different_plans(tmp_path: Path, transport: str) -> None:
    join(tmp_path)
    groups = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    mine = RANK % 2
    place = [[0, 2], [1, 3]][mine].index(RANK)
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.fill_(mine)
    one = mt.shard(layer, plan=ZERO3, group=groups[mine], transport=transport)
    two = mt.shard(torch.nn.Linear(8, 2), plan=ZERO1, group=groups[mine], transport=transport)
    contexts = [mt.context_for(plan, groups[mine], transport) for plan in (ZERO3, ZERO1)]
    assert contexts[0] is not contexts[1]
    for context in contexts:
        assert (context.transport, context.world_size, context.rank) == (transport, 2, place)
    optimizer = mt.shard_optimizer(one, torch.optim.SGD(one.parameters(), lr=1.0))
    (one(torch.ones(1, 4) * place).sum() + two(torch.ones(1, 8)).sum()).backward()
    optimizer.step()
    assert torch.equal(mt.full_param(one.weight), torch.full((2, 4), mine - 0.5))
    for context in contexts:
        context.close()


@pytest.mark.ranks(4)
def test_rejects_a_group_without_this_rank(tmp_path: Path) -> None:
    join(tmp_path)
    groups = [dist.new_group([0, 2]), dist.new_group([3, 1])]
    with pytest.raises(meron.ArgumentError, match="not in the group"):
        open_context(ZERO3, groups[1 - RANK % 2])


@pytest.mark.ranks(4)
def test_ranks_that_disagree_on_the_transport_name_both(tmp_path: Path) -> None:
    join(tmp_path)
    with pytest.raises(meron.MismatchError, match="'group'") as caught:
        open_context(ZERO3, transport="group" if RANK == 2 else "shm")
    assert "'shm'" in str(caught.value)
    dist.barrier()


@pytest.mark.ranks(4)
def test_a_rank_that_does_not_open_is_named_and_others_try_again(tmp_path: Path) -> None:
    join(tmp_path)
    if RANK != 3:
        begin = time.monotonic()
        with pytest.raises(meron.DeadlineError, match="missing: 3") as caught:
            open_context(ZERO3, transport="group", timeout=1.0)
        assert caught.value.peer == 3 and time.monotonic() - begin < 10
    dist.barrier()
    # One rank fails to open after all have met. The others wait until the deadline.
    options = {"threads": -1} if RANK == 1 else {}
    with pytest.raises(meron.Error) as caught:
        open_context(ZERO3, transport="group", timeout=2.0, **options)
    assert isinstance(caught.value, meron.DeadlineError if RANK != 1 else meron.ArgumentError)
    dist.barrier()
    open_context(ZERO3, transport="group").close()
    dist.barrier()


@pytest.mark.ranks(4)
def test_a_rank_that_reduces_another_size_is_named(tmp_path: Path) -> None:
    join(tmp_path)
    context = open_context(ZERO3, transport="group")
    assert (context.rank, context.world_size) == (RANK, 4)
    dist.barrier()  # all have opened
    with pytest.raises(meron.MismatchError, match="rank 2"):
        context.world.all_reduce(np.ones(5 + (RANK == 2), np.float32))
    context.close()


@pytest.mark.ranks(4)
def test_a_mesh_of_one_dimension_is_a_group(tmp_path: Path) -> None:
    join(tmp_path)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    with pytest.raises(meron.ArgumentError, match="2 dimensions"):
        mt.shard(torch.nn.Linear(2, 2), mesh=mesh)
    mt.shard(torch.nn.Linear(2, 2), mesh=mesh["shard"])
    assert mt.context_for(ZERO3, mesh["shard"].get_group()).world_size == 2
    dist.barrier()


@pytest.mark.ranks(4)
def test_the_world_group_is_all_ranks_after_it_is_destroyed(tmp_path: Path) -> None:
    join(tmp_path)
    context = mt.context_for(ZERO3, dist.group.WORLD, "group")
    assert mt.context_for(ZERO3) is context
    dist.barrier()
    dist.destroy_process_group()
    values = np.ones(3, np.float32)
    context.world.all_reduce(values)
    assert values[0] == 4


KILLED = """
import os, signal, sys, time
import numpy as np, torch.distributed as dist
import meron
from meron.torch.world import open_context

rank = int(os.environ["MERON_RANK"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/meet", rank=rank, world_size=3)
context = open_context(meron.Plan.preset("zero3"), transport="group")
context.world.barrier()
if rank == 1:
    print("killed", time.time(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    context.world.all_reduce(np.ones(3, np.float32))
except meron.PeerDeadError as error:
    print("heard", time.time(), error.peer, flush=True)
    os._exit(0)
"""


def test_a_killed_rank_is_named(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            env={**os.environ, "MERON_RANK": str(rank), "MERON_WORLD_SIZE": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    outputs = [process.communicate(timeout=LIMIT) for process in processes]
    killed = float(outputs[1][0].split()[1])
    for out, err in (outputs[0], outputs[2]):
        assert out.startswith("heard"), out + err
        _, heard, peer = out.split()
        assert peer == "1"
        assert float(heard) - killed < 2
        assert "Exception" not in err, err


# ---- Wrong settings, in this process ------------------------------------------------------------


@pytest.fixture
def alone() -> Iterator[None]:
    """torch.distributed with a world of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "MERON_WORLD_SIZE"])
def test_fewer_ranks_than_the_launcher_promised(
    alone: None, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "4")
    monkeypatch.setenv("MERON_RANK", "0")
    if variable == "MERON_WORLD_SIZE":
        monkeypatch.setattr(world, "uses_torch", lambda: True)
    with pytest.raises(meron.ArgumentError, match="promised 4 ranks") as caught:
        open_context(ZERO3)
    assert "group=" in caught.value.advice


def test_a_world_of_one(alone: None) -> None:
    with open_context(ZERO3, transport="group") as context:
        assert context.transport == "self"


def test_a_group_of_other_ranks(alone: None) -> None:
    with pytest.raises(meron.ArgumentError, match="not in the group"):
        open_context(ZERO3, dist.GroupMember.NON_GROUP_MEMBER)


def test_an_unknown_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(meron.ArgumentError, match="no transport 'tcp'"):
        open_context(ZERO3, transport="tcp")
    monkeypatch.setenv("MERON_TORCH_TRANSPORT", "tcp")
    with pytest.raises(meron.ArgumentError, match="MERON_TORCH_TRANSPORT"):
        open_context(ZERO3)


def test_a_group_transport_without_a_group() -> None:
    with pytest.raises(meron.ArgumentError, match="needs a torch") as caught:
        open_context(ZERO3, transport="group")
    assert "init_process_group" in caught.value.advice
    with pytest.raises(meron.ArgumentError, match="not initialised"):
        open_context(ZERO3, object())


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [("4", "4", "RANK is 4"), ("one", "4", "RANK='one'"), ("0", "-2", "WORLD_SIZE='-2'")],
)
def test_wrong_variables(
    monkeypatch: pytest.MonkeyPatch, rank: str, world_size: str, message: str
) -> None:
    launcher(monkeypatch, rank, world_size)
    with pytest.raises(meron.ArgumentError, match=message):
        open_context(ZERO3)


def test_ranks_of_several_hosts_need_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher(monkeypatch, "0", "2")
    store = dist.HashStore()
    monkeypatch.setattr(world, "launcher_store", lambda *_: store)
    monkeypatch.setattr(registry, "meetings", type(registry.meetings)())
    name = world.Meeting(None, 0, 2, 1.0).name
    store.set(f"{name}/1", "auto\nanother host")
    with pytest.raises(meron.ArgumentError, match="2 hosts") as caught:
        open_context(ZERO3, timeout=5)
    assert "init_process_group" in caught.value.advice


def test_rank_0_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher(monkeypatch, "1", "2")
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(meron.DeadlineError, match="cannot reach rank 0") as caught:
        open_context(ZERO3, timeout=1)
    assert caught.value.peer == 0


def launcher(monkeypatch: pytest.MonkeyPatch, rank: str, world_size: str) -> None:
    for name, value in (("RANK", rank), ("WORLD_SIZE", world_size)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.delenv("MERON_WORLD_SIZE", raising=False)
    monkeypatch.delenv("MERON_TOKEN", raising=False)
