# SPDX-License-Identifier: Apache-2.0
"""One rank of an arm of PyTorch: saves and loads a state of some size.

Each rank has its part of each tensor, as after FSDP2; `torch.save` by one rank has all of them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import late_threads  # noqa: F401 - at the end
import torch
import torch.distributed as dist
from rank_memory import evict, measured
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

ELEMENTS = 4 << 20  # of a unit, as meron_rank.py has them
BYTES = 14
Call = Callable[[], Any]


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def make_state(size: int, ranks: int) -> dict[str, torch.Tensor]:
    elements = min(ELEMENTS, max(4096, size // BYTES // 4 // 4096 * 4096))
    count = max(1, round(size / BYTES / elements))
    generator = torch.Generator().manual_seed(dist.get_rank())
    block = torch.randn(elements // ranks, generator=generator)
    state = {}
    for number in range(count):
        state[f"h.{number}.w"] = block.roll(number).bfloat16()
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            state[f"{kind}.{number}"] = block.roll(1000 + number)
    return state


def torch_calls(state: dict[str, torch.Tensor], folder: Path, whole: bool) -> tuple[Call, Call]:
    rank = dist.get_rank()
    file = folder / ("all.pt" if whole else f"{rank}.pt")

    def save() -> None:
        if whole and rank != 0:
            return
        torch.save(state, file)
        sync(file)

    def load() -> None:
        # With one file for all, each rank reads it and takes its part.
        for name, tensor in torch.load(file, weights_only=True).items():
            state[name].copy_(tensor[: state[name].numel()])

    return save, load


def dcp_calls(state: dict[str, torch.Tensor], folder: Path) -> tuple[Call, Call]:
    import torch.distributed.checkpoint as dcp

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = {n: DTensor.from_local(t, mesh, [Shard(0)]) for n, t in state.items()}
    return (
        lambda: dcp.save(sharded, checkpoint_id=folder / "dcp"),
        lambda: dcp.load(sharded, checkpoint_id=folder / "dcp"),
    )


def snapshot_calls(state: dict[str, torch.Tensor], folder: Path) -> tuple[Call, Call]:
    import torchsnapshot

    app = {"state": torchsnapshot.StateDict(**state)}
    path = str(folder / "snapshot")
    return (
        lambda: torchsnapshot.Snapshot.take(path, app),
        lambda: torchsnapshot.Snapshot(path).restore(app),
    )


def timed(call: Call) -> tuple[float, int]:
    dist.barrier()
    with measured() as result:
        call()
    both = torch.tensor([result.seconds, float(result.extra_bytes)], dtype=torch.float64)
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return float(both[0]), int(both[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "arm", choices=("torch.save", "torch.save per rank", "dcp", "torchsnapshot")
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--size", type=int, required=True, help="bytes of the state")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = arguments.arm == "torch.save"
    state = make_state(arguments.size, 1 if whole and rank == 0 else ranks)
    if arguments.arm.startswith("torch.save"):
        save, load = torch_calls(state, arguments.folder, whole)
    elif arguments.arm == "dcp":
        save, load = dcp_calls(state, arguments.folder)
    else:
        save, load = snapshot_calls(state, arguments.folder)
    save_seconds, save_extra = timed(save)
    before = {name: tensor.clone() for name, tensor in list(state.items())[:4]}
    for tensor in state.values():
        tensor.zero_()
    if rank == 0:
        evict(arguments.folder)
    load_seconds, load_extra = timed(load)
    if not all(torch.equal(state[name], tensor) for name, tensor in before.items() if rank == 0):
        raise SystemExit("other bytes were loaded than saved")
    total = torch.tensor([sum(t.nbytes for t in state.values())], dtype=torch.int64)
    if whole:
        total *= int(rank == 0)
    dist.all_reduce(total)
    result = {
        "bytes": int(total),
        "ranks": ranks,
        "save_seconds": save_seconds,
        "save_extra_bytes": save_extra,
        "load_seconds": load_seconds,
        "load_extra_bytes": load_extra,
    }
    if rank == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
