# SPDX-License-Identifier: Apache-2.0
"""Models that are sharded over some of the ranks: groups of torch.distributed."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import meron
from meron import zero
from meron.zero import comm
from model import RANK, RANKS, config, raises, run_cases


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


if __name__ == "__main__":
    dist.init_process_group("gloo", f"file://{os.environ['MEETING']}", rank=RANK, world_size=RANKS)
    run_cases(sys.modules[__name__])
    dist.destroy_process_group()
