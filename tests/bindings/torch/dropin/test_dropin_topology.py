# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.pipe.topology: ranks as points of a grid, and groups along its axes."""

from __future__ import annotations

import os

import pytest
import torch

import meron
import meron.zero.compat as deepspeed
from meron.zero.compat import topology
from meron.zero.compat.topology import (
    PipeDataParallelTopology,
    PipelineParallelGrid,
    PipeModelDataParallelTopology,
    ProcessTopology,
)

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))


def test_the_last_axis_varies_fastest() -> None:
    grid = ProcessTopology(axes=["row", "column"], dims=[2, 3])
    assert grid.world_size() == 6 and grid.get_axis_names() == ["row", "column"]
    assert (grid.get_dim("row"), grid.get_dim("column"), grid.get_dim("depth")) == (2, 3, 0)
    for rank in range(6):
        point = grid.get_coord(rank)
        assert (point.row, point.column) == divmod(rank, 3)
        assert grid.get_rank(row=point.row, column=point.column) == rank
    assert grid.get_axis_list("row", 1) == [3, 4, 5] and grid.get_axis_list("column", 2) == [2, 5]
    assert grid.filter_match(row=0, column=1) == [1] and grid.filter_match(column=9) == []
    assert "ProcessCoord(row=1, column=2): 5" in str(grid)


def test_lines_along_an_axis() -> None:
    grid = PipeModelDataParallelTopology(num_pp=2, num_mp=3, num_dp=2)
    assert grid.get_axis_names() == ["pipe", "data", "model"]
    assert grid.get_axis_comm_lists("pipe") == [[rank, rank + 6] for rank in range(6)]
    assert grid.get_axis_comm_lists("data") == [
        [first + model, first + model + 3] for first in (0, 6) for model in range(3)
    ]
    assert grid.get_axis_comm_lists("model") == [[3 * n, 3 * n + 1, 3 * n + 2] for n in range(4)]
    assert grid.get_axis_comm_lists("expert") == []


def test_ranks_as_text() -> None:
    grid = PipeModelDataParallelTopology(num_pp=1, num_mp=12, num_dp=2)
    assert grid.get_rank_repr(23) == "model_11"
    assert grid.get_rank_repr(23, omit_axes=[]) == "pipe_00-data_01-model_11"
    assert grid.get_rank_repr(2, ["pipe"], inner_sep="", outer_sep="/") == "data00/model02"
    assert PipeDataParallelTopology(2, 2).get_rank_repr(3) == ""


def test_points_that_do_not_exist() -> None:
    grid = PipeDataParallelTopology(num_pp=2, num_dp=2)
    for call, words in (
        (lambda: grid.get_rank(pipe=0), "filter_match"),
        (lambda: grid.get_rank(pipe=0, dta=0), "pipe, data, and got pipe, dta"),
        (lambda: grid.get_rank(pipe=0, data=2), r"sizes are \[2, 2\]"),
        (lambda: grid.get_coord(4), "has 4 ranks"),
        (lambda: grid.filter_match(model=0), "no axis 'model', but pipe, data"),
        (lambda: ProcessTopology(["pipe"], [1, 2]), "1 axes have 2 sizes"),
        (lambda: topology._prime_factors(0), "below 1"),
    ):
        with pytest.raises(meron.ArgumentError, match=words):
            call()
    with pytest.raises(AssertionError):  # as DeepSpeed raises
        grid.get_rank(pipe=0, data=2)


@pytest.mark.parametrize("number", [1, 2, 12, 97, 360])
def test_prime_factors(number: int) -> None:
    factors = topology._prime_factors(number)
    assert factors == sorted(factors) and int(torch.tensor(factors).prod()) == number
    assert topology.default_topology(number).world_size() == number


def test_a_grid_needs_a_process_group() -> None:
    with pytest.raises(meron.StateError, match="init_distributed"):
        PipelineParallelGrid()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("stages", [1, 2])
def test_groups_of_a_grid(stages: int) -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    grid = PipelineParallelGrid(PipeDataParallelTopology(stages, RANKS // stages))
    assert grid.get_stage_id() == RANK * (stages - 1)
    assert grid.get_data_parallel_id() == RANK * (2 - stages)
    assert grid.is_first_stage == (grid.get_stage_id() == 0)
    assert grid.is_last_stage == (grid.get_stage_id() == stages - 1)
    for group, ranks in (
        (grid.get_pipe_parallel_group(), grid.pp_group),
        (grid.get_data_parallel_group(), grid.get_data_parallel_group_ranks()),
        (grid.get_slice_parallel_group(), [RANK]),
    ):
        total = torch.tensor([RANK])
        deepspeed.comm.all_reduce(total, group=group)
        assert total.item() == sum(ranks)
    assert grid.get_model_parallel_world_size() == stages
    assert grid.get_tensor_model_parallel_world_size() == 1
    assert [grid.stage_to_global(stage) for stage in range(stages)] == grid.pp_group
    assert grid.p2p_groups[RANK] == [RANK, (RANK + stages - 1) % 2]
    deepspeed.comm.barrier()


@pytest.mark.ranks(2)
def test_a_grid_is_an_mpu() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    grid = PipelineParallelGrid(PipeDataParallelTopology(1, RANKS))
    model = torch.nn.Linear(4, 4)
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config, mpu=grid)
    assert engine.world_size == RANKS
    engine.destroy()
    deepspeed.comm.barrier()


@pytest.mark.ranks(2)
def test_a_grid_has_as_many_ranks_as_there_are() -> None:
    deepspeed.init_distributed("gloo", verbose=False)
    for wrong in (PipeDataParallelTopology(2, 2), ProcessTopology(["data"], [2])):
        with pytest.raises(meron.ArgumentError, match=r"Invalid Grid|no axis 'pipe'"):
            PipelineParallelGrid(wrong)
    deepspeed.comm.barrier()
