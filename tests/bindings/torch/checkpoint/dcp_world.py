# SPDX-License-Identifier: Apache-2.0
"""One rank: trains and saves by torch.distributed.checkpoint, or loads, saves again and compares.

job: {"folder", "action", "plan", "rule": "engine AdamW" or "torch AdamW", "low": bf16 compute,
"gloo": whether torch.distributed is initialised beside Meron}

Each action is a program of its own: "save" and "load" of Meron, "fsdp2" (fully_shard over gloo
saves DTensors) and "alone" (rank 0 calls, the others do not). With "and plain" one rank also loads
into a model that is not Meron's.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)
from training import OPTIONS, WIDTH, Model, build, train

import meron
import meron.torch as mt
from meron.torch.checkpoint import FlatShard, dcp_load, dcp_save

FULL = StateDictOptions(full_state_dict=True)
RANK, RANKS = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])


def start_gloo(folder: Path) -> None:
    """By a file that no other program of the test has."""
    marker = sorted(folder.glob("saved*"))
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/gloo{len(marker)}-{RANKS}",
        rank=RANK,
        world_size=RANKS,
    )


def same(found: Any, expected: Any, where: str = "") -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), (where, found.keys() ^ expected.keys())
        for key, value in expected.items():
            same(found[key], value, f"{where} {key}")
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for number, value in enumerate(expected):
            same(found[number], value, f"{where} {number}")
    elif isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype and torch.equal(found, expected), where
    else:
        assert found == expected, (where, found, expected)


def write(job: dict[str, Any], folder: Path, model: Any, optimizer: Any) -> None:
    """As checkpoint `saved`, and what it is to hold beside it."""
    values, states = get_state_dict(model, optimizer)
    state = {"model": values, "optim": states}
    assert all(type(v) is FlatShard or not is_sharded(model, k) for k, v in values.items())
    path = folder / job["to"]
    if not job.get("gloo"):
        saved = dcp_save(state, checkpoint_id=path, background=job.get("background", False))
        if job.get("background"):
            saved.wait()
    elif job.get("background"):
        dcp.async_save(state, checkpoint_id=path).result()
    else:
        dcp.save(state, checkpoint_id=path)
    full = get_state_dict(model, optimizer, options=FULL)
    if RANK == 0:
        torch.save(full, f"{path}.pt")


def is_sharded(model: Any, name: str) -> bool:
    return name not in ("plain", "passes")


def save(job: dict[str, Any], folder: Path) -> None:
    model, optimizer, scheduler = build(job)
    train(job, model, optimizer, scheduler, 0, 2)
    write(job, folder, model, optimizer)
    if RANK == 0:
        each_value_is_there_once(folder / job["to"])


def each_value_is_there_once(path: Path) -> None:
    metadata = dcp.FileSystemReader(path).read_metadata()
    chunks = 0
    for name, tensor in metadata.state_dict_metadata.items():
        if isinstance(tensor, dcp.metadata.TensorStorageMetadata):
            chunks += len(tensor.chunks)
            elements = sum(math.prod(chunk.sizes) for chunk in tensor.chunks)
            assert elements == math.prod(tensor.size), name
        else:
            chunks += 1
    assert len(metadata.storage_data) == chunks
    files = {info.relative_path for info in metadata.storage_data.values()}
    assert len(files) == RANKS, files


def load(job: dict[str, Any], folder: Path) -> None:
    """Into another model; then saves that."""
    model, optimizer, _ = build({**job, "seed": 5})
    values, states = get_state_dict(model, optimizer)
    if job.get("from fsdp2"):
        for state in states["state"].values():
            state.pop("master", None)
    state = {"model": values, "optim": states}
    (dcp.load if job.get("gloo") else dcp_load)(state, checkpoint_id=folder / job["from"])
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    found = get_state_dict(model, optimizer, options=FULL)
    expected = torch.load(folder / f"{job['from']}.pt")
    for group in found[1]["param_groups"] + expected[1]["param_groups"]:
        group.pop("initial_lr", None)
    same(found[0], expected[0])
    same(found[1]["state"], expected[1]["state"])
    same(found[1]["param_groups"], expected[1]["param_groups"])
    if "to" in job:
        write(job, folder, model, optimizer)
    x = torch.zeros(2, WIDTH)
    model(x.bfloat16() if job.get("low") else x).float().sum().backward()
    optimizer.step()
    if job.get("and plain"):
        plain(job, folder)


def plain_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(11)
    model = Model()
    return model, plain_optimizer(model)


def plain_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    parts = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parts if p.dim() > 1]},
        {"params": [p for p in parts if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **OPTIONS["AdamW"])


def plain(job: dict[str, Any], folder: Path) -> None:
    """Into a model that is not Meron's, by torch alone."""
    model, optimizer = plain_model()
    state = {
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(model, optimizer),
    }
    dcp.load(state, checkpoint_id=folder / job["from"])
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    expected = torch.load(folder / f"{job['from']}.pt")
    same(dict(model.state_dict()), expected[0])
    same(get_optimizer_state_dict(model, optimizer)["state"], expected[1]["state"])


def fsdp2(job: dict[str, Any], folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    start_gloo(folder)
    mesh = init_device_mesh("cpu", (RANKS,))
    torch.manual_seed(1)
    model = Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = plain_optimizer(model)
    torch.optim.lr_scheduler.MultiStepLR(optimizer, [9])  # as `build` has one: "initial_lr"
    for step in range(2):
        x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    values, states = get_state_dict(model, optimizer)
    dcp.save({"model": values, "optim": states}, checkpoint_id=folder / job["to"])
    full = get_state_dict(model, optimizer, options=FULL)
    if RANK == 0:
        torch.save(full, folder / f"{job['to']}.pt")


def alone(job: dict[str, Any], folder: Path) -> None:
    """A rank that calls by itself is told so when the deadline is over."""
    mt.context_for(job["plan"], timeout=15)
    model, _, _ = build(job)
    if RANK == 0:
        try:
            mt.checkpoint.get_model_state_dict(model)
        except meron.DeadlineError as error:
            assert "rank" in str(error), error
        else:
            raise AssertionError("it went on")
    (folder / f"done{RANK}").touch()
    while not all((folder / f"done{rank}").exists() for rank in range(RANKS)):
        time.sleep(0.05)


def main() -> None:
    job = json.loads(sys.argv[1])
    folder = Path(job["folder"])
    torch.set_num_threads(1)
    tempfile.tempdir = str(folder)
    if job.get("gloo"):
        start_gloo(folder)
    globals()[job["action"]](job, folder)
    if dist.is_initialized():  # while all ranks are there: gloo's threads end with it
        dist.barrier()
        dist.destroy_process_group()
    if job["action"] == "fsdp2":  # PyTorch's alone, whose threads may abort the process at its exit
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
