# SPDX-License-Identifier: Apache-2.0
"""deepspeed.comm beside torch.distributed."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist

import meron
import meron.zero.compat as deepspeed
from meron import zero
from meron.zero.compat import comm, groups, partitions, zero_utils

pytestmark = pytest.mark.ranks(2)
RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))


def own(offset: float = 0.0) -> torch.Tensor:
    return torch.arange(4.0) + 10 * RANK + offset


def all_ranks() -> list[torch.Tensor]:
    return [torch.arange(4.0) + 10 * rank for rank in range(RANKS)]


def test_reduces_over_all_ranks_without_a_process_group() -> None:
    assert not comm.is_initialized()
    assert (comm.get_rank(), comm.get_world_size()) == (RANK, RANKS)
    total = own()
    comm.all_reduce(total)
    assert torch.equal(total, sum(all_ranks(), torch.zeros(4)))
    with pytest.raises(meron.StateError, match="init_distributed"):
        comm.all_gather([own()], own())
    deepspeed.init_distributed(dist_init_required=False)
    assert not comm.is_initialized()


def test_init_distributed_makes_the_process_group_of_torch() -> None:
    deepspeed.init_distributed("gloo", timeout=None, verbose=False)
    assert comm.is_initialized() and dist.is_initialized()
    assert (dist.get_rank(), dist.get_world_size()) == (RANK, RANKS)
    assert comm.get_backend() == "gloo"
    deepspeed.init_distributed()  # has no effect
    assert comm.get_world_group() is dist.group.WORLD
    assert comm.get_all_ranks_from_group() == list(range(RANKS))
    comm.barrier()


def test_gathers_reduces_and_broadcasts_as_torch() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    gathered = [torch.empty(4) for _ in range(RANKS)]
    comm.all_gather(gathered, own(), log_name="a log of DeepSpeed")
    assert all(map(torch.equal, gathered, all_ranks()))
    flat = torch.empty(4 * RANKS)
    comm.all_gather_into_tensor(flat, own())
    assert torch.equal(flat, torch.cat(all_ranks()))
    comm.allgather_fn(flat.zero_(), own())
    assert torch.equal(flat, torch.cat(all_ranks()))
    objects: list[Any] = [None] * RANKS
    comm.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": rank} for rank in range(RANKS)]
    total = own()
    comm.all_reduce(total, op=comm.ReduceOp.MAX)
    assert torch.equal(total, all_ranks()[-1])
    total = own()
    comm.reduce(total, 0)
    assert RANK != 0 or torch.equal(total, sum(all_ranks(), torch.zeros(4)))
    value = own()
    comm.broadcast(value, src=RANKS - 1)
    assert torch.equal(value, all_ranks()[-1])
    words = [f"from {RANK}"]
    comm.broadcast_object_list(words, src=0)
    assert words == ["from 0"]
    comm.barrier()


def test_scatters_and_gathers_as_torch() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    parts = [torch.empty(4) for _ in range(RANKS)] if RANK == 0 else None
    comm.gather(own(), parts, dst=0)
    assert parts is None or all(map(torch.equal, parts, all_ranks()))
    received = torch.empty(4)
    comm.scatter(received, all_ranks() if RANK == 0 else None, src=0)
    assert torch.equal(received, all_ranks()[RANK])
    comm.reduce_scatter_fn(received, torch.cat(all_ranks()))
    assert torch.equal(received, all_ranks()[RANK] * RANKS)
    swapped = torch.empty(RANKS)
    comm.all_to_all_single(swapped, torch.arange(float(RANKS)) + 10 * RANK)
    assert torch.equal(swapped, torch.arange(float(RANKS)) * 10 + RANK)


def test_sends_and_receives() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    if RANK == 0:
        comm.send(own(), dst=1)
        comm.isend(own(1), dst=1).wait()
    elif RANK == 1:
        first, second = torch.empty(4), torch.empty(4)
        comm.recv(first, src=0)
        comm.irecv(second, src=0).wait()
        assert torch.equal(second, first + 1) and torch.equal(first, all_ranks()[0])


def test_coalesces_collectives() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    outputs = [torch.empty(4 * RANKS), torch.empty(4 * RANKS)]
    handles = comm.all_gather_coalesced(outputs, [own(), own(1)], async_op=True)
    assert handles is not None
    handles.wait()
    assert handles.is_completed() and torch.equal(outputs[1], outputs[0] + 1)
    with pytest.raises(meron.ArgumentError, match="2 output tensors for 1"):
        comm.all_gather_coalesced(outputs, [own()])
    tensors = [own(), own(1)]
    comm.all_reduce_coalesced(tensors)
    assert torch.equal(tensors[1], tensors[0] + RANKS)


def test_groups_have_their_own_ranks() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    last = comm.new_group([RANKS - 1])
    if RANK == RANKS - 1:
        assert (comm.get_rank(last), comm.get_world_size(last)) == (0, 1)
        assert comm.get_global_rank(last, 0) == RANKS - 1
        assert comm.get_all_ranks_from_group(last) == [RANKS - 1]
    assert comm.get_global_rank(None, 1) == 1
    assert groups._get_data_parallel_world_size() == RANKS
    assert groups._get_data_parallel_rank() == RANK
    assert groups._get_sequence_parallel_world_size() == 1
    with pytest.raises(meron.UnsupportedError, match="context parallelism"):
        groups._get_sequence_parallel_group()
    comm.barrier()  # the store that new_group uses ends with rank 0


def test_rejects_unknown_arguments() -> None:
    with pytest.raises(TypeError, match="asinc_op"):
        comm.barrier(asinc_op=True)


def test_an_empty_summary_of_collectives() -> None:
    comm.configure(enabled=True)
    assert comm.log_summary() is None
    summary = comm.log_summary(return_dict=True)
    assert summary["metadata"] == {"world_size": RANKS, "rank": RANK}


def test_ranks_that_have_other_numbers() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    zero_utils.assert_ints_same_as_other_ranks([1, 2])
    if RANK == 0:
        zero_utils.assert_ints_same_as_other_ranks([0])
    else:
        with pytest.raises(RuntimeError, match=r"rank 1 has \[1\], and rank 0 \[0\]"):
            zero_utils.assert_ints_same_as_other_ranks([RANK])
    comm.barrier()


@pytest.mark.parametrize("size", [1, 5, 8])
def test_a_tensor_in_parts(size: int) -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    whole = torch.arange(3.0 * size).reshape(3, size)
    part = partitions.PartitionedTensor(whole, comm.get_world_group())
    assert abs(part.data().numel() - whole.numel() / RANKS) < 1
    again = partitions.PartitionedTensor.from_meta(part.to_meta(), part.data(), part.group)
    for one in (part, again):
        assert torch.equal(one.full(), whole) and one.full_size() == [3, size]
    with pytest.raises(meron.ArgumentError, match=f"this is rank {RANK} of"):
        wrong = part.to_meta()
        wrong[4] += 1
        partitions.PartitionedTensor.from_meta(wrong, part.data(), part.group)
    comm.barrier()


def test_an_engine_trains_beside_the_process_group() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    model = torch.nn.Linear(4, 4)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": 3},
        "gradient_accumulation_steps": "auto",
    }
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config_params=config)
    engine.backward(engine(own()).sum())
    engine.step()
    assert isinstance(optimizer, deepspeed.runtime.base_optimizer.DeepSpeedOptimizer)
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert optimizer.overflow is False and optimizer.optimizer is optimizer
    # config is the caller's dict, with the attributes of the parsed config
    assert engine.config["zero_optimization"]["stage"] == engine.config.stage == 3
    assert engine.config.get("gradient_accumulation_steps") == "auto"
    assert model.weight.ds_active_sub_modules == set()
    elements = torch.tensor([float(model.weight.partition_numel())])
    comm.all_reduce(elements)
    assert elements.item() == model.weight.ds_numel == 16
    hooks = optimizer.parameter_offload
    hooks._register_deepspeed_module(hooks.module)
    assert hooks.forward_hooks == [] and list(hooks.module.ds_external_parameters()) == []
    before = engine.global_steps
    engine.backward(engine(own()).sum())
    optimizer.step()  # alone, as Fabric does
    assert engine.global_steps == before + 1
    engine.backward(engine(own()).sum())  # another micro-batch may begin
    engine.step()
    offload = deepspeed.runtime.zero.offload_config
    optimizer.offload_states([offload.OffloadStateTypeEnum.optim_states], "cpu")
    optimizer.reload_states()
    state = engine._consolidated_16bit_state_dict()
    assert (state is None) == (RANK != 0)
    engine.destroy()
    with pytest.raises(meron.StateError, match="destroyed"):
        optimizer.offload_states()


class Saved(torch.nn.Module):
    """Reads the keys of a state dict when rank 0 saves, as ModulesToSaveWrapper of PEFT does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)

    def adapter_state_dict(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {key: state[f"inner.{key}"] for key in self.inner.state_dict()}


def test_rank_0_saves_adapters_from_the_consolidated_state_dict() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    model = Saved()
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    state = engine._zero3_consolidated_16bit_state_dict()
    if RANK == 0:
        assert state is not None
        saved = model.adapter_state_dict(state)
        assert {key: value.shape for key, value in saved.items()} == {
            "weight": (4, 4),
            "bias": (4,),
        }
    whole = zero.full_state_dict(model)  # as on all ranks
    assert RANK != 0 or torch.equal(whole["inner.weight"], state["inner.weight"])
    engine.destroy()


def test_destroys_the_process_group() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    comm.barrier()  # gloo connects ranks one after the other, and needs both until the end
    comm.destroy_process_group()
    assert not comm.is_initialized()
