# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint between worlds, from FSDP2, and to plain torch."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checkpoint_model import FULL, OPTIONS, RANK, RANKS, WIDTH, Job, Model, build, train
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_state_dict,
)

import meron
import meron.torch as mt
from meron.torch.checkpoint import FlatShard, dcp_load, dcp_save


@contextlib.contextmanager
def gloo(folder: Path, action: str) -> Iterator[None]:
    """Initialises torch.distributed through a file of this world."""
    meeting = f"file://{folder}/gloo-{action}-{RANKS}"
    dist.init_process_group("gloo", init_method=meeting, rank=RANK, world_size=RANKS)
    yield
    dist.barrier()  # gloo's threads end with the group
    dist.destroy_process_group()


States = tuple[dict[str, Any], dict[str, Any]]  # of the model and of its optimizer


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


def write(model: Any, optimizer: Any, path: Path, background: bool) -> States:
    """Saves, through torch's function if there is a process group. Returns the full states."""
    values, states = get_state_dict(model, optimizer)
    state = {"model": values, "optim": states}
    assert all(type(v) is FlatShard or not is_sharded(k) for k, v in values.items())
    if not dist.is_initialized():
        saved = dcp_save(state, checkpoint_id=path, background=background)
        if background:
            saved.wait()
    elif background:
        dcp.async_save(state, checkpoint_id=path).result()
    else:
        dcp.save(state, checkpoint_id=path)
    return get_state_dict(model, optimizer, options=FULL)


def is_sharded(name: str) -> bool:
    return name not in ("plain", "passes")


def save(job: Job, path: Path, background: bool = False, over: str = "meron") -> States:
    """Trains and saves. Returns the full states."""
    with gloo(path.parent, "save") if over == "gloo" else contextlib.nullcontext():
        model, optimizer, scheduler = build(job)
        train(job, model, optimizer, scheduler, 0, 2)
        full = write(model, optimizer, path, background)
        if RANK == 0:
            each_value_is_saved_once(path)
    return full


def each_value_is_saved_once(path: Path) -> None:
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


def load(
    job: Job,
    path: Path,
    expected: States,
    to: Path | None = None,
    background: bool = False,
    over: str = "meron",
    from_fsdp2: bool = False,
) -> States | None:
    """Loads into another model and compares. With `to`, saves that, and returns its full states."""
    with gloo(path.parent, "load") if over == "gloo" else contextlib.nullcontext():
        model, optimizer, _ = build({**job, "seed": 5})
        values, states = get_state_dict(model, optimizer)
        if from_fsdp2:
            for state in states["state"].values():
                state.pop("master", None)
        state = {"model": values, "optim": states}
        (dcp.load if over == "gloo" else dcp_load)(state, checkpoint_id=path)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        found = get_state_dict(model, optimizer, options=FULL)
        for group in found[1]["param_groups"] + expected[1]["param_groups"]:
            group.pop("initial_lr", None)
        same(found[0], expected[0])
        same(found[1]["state"], expected[1]["state"])
        same(found[1]["param_groups"], expected[1]["param_groups"])
        full = None if to is None else write(model, optimizer, to, background)
        x = torch.zeros(2, WIDTH)
        model(x.bfloat16() if job.get("low") else x).float().sum().backward()
        optimizer.step()
    return full


def plain_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    parts = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parts if p.dim() > 1]},
        {"params": [p for p in parts if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **OPTIONS["AdamW"])


def load_into_plain_torch(path: Path, expected: States) -> None:
    torch.manual_seed(11)
    model = Model()
    optimizer = plain_optimizer(model)
    state = {
        "model": get_model_state_dict(model),
        "optim": get_optimizer_state_dict(model, optimizer),
    }
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    same(dict(model.state_dict()), expected[0])
    same(get_optimizer_state_dict(model, optimizer)["state"], expected[1]["state"])


def save_by_fsdp2(path: Path) -> States:
    """Trains and saves a model of fully_shard. Returns the full states."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with gloo(path.parent, "fsdp2"):
        mesh = init_device_mesh("cpu", (RANKS,))
        torch.manual_seed(1)
        model = Model()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = plain_optimizer(model)
        torch.optim.lr_scheduler.MultiStepLR(optimizer, [9])  # adds "initial_lr", as build() does
        for step in range(2):
            x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(step))
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        values, states = get_state_dict(model, optimizer)
        dcp.save({"model": values, "optim": states}, checkpoint_id=path)
        return get_state_dict(model, optimizer, options=FULL)


ZERO3: Job = {"plan": "zero3", "total": 2}


@pytest.mark.parametrize(
    ("saved", "loaded", "options"),
    [
        ({"rule": "torch AdamW"}, {"plan": "zero2"}, {}),
        ({"rule": "engine AdamW", "low": True}, {"plan": "zero1"}, {"background": True}),
        (
            {"rule": "torch AdamW", "low": True, "plan": "mics(1)"},
            {"units": False},
            {"over": "gloo", "background": True},
        ),
    ],
    ids=["torch", "engine_bf16_in_background", "replicated_bf16_by_async_save_over_gloo"],
)
def test_bits_stay_from_two_ranks_to_three_to_one(
    tmp_path: Path, saved: Job, loaded: Job, options: dict[str, Any]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    job = {**ZERO3, **saved}
    full = ranks.call(2, save, job, first, **options)[0]
    full = ranks.call(3, load, {**job, **loaded}, first, full, to=second, **options)[0]
    ranks.call(1, load, job, second, full)
    if not job.get("low"):
        ranks.call(1, load_into_plain_torch, second, full)


def test_loads_checkpoints_of_fsdp2(tmp_path: Path) -> None:
    path = tmp_path / "saved"
    full = ranks.call(2, save_by_fsdp2, path)[0]
    ranks.call(3, load, {**ZERO3, "rule": "torch AdamW"}, path, full, from_fsdp2=True)
    engine = {**ZERO3, "rule": "engine AdamW"}
    ranks.call(2, load, engine, path, full, over="gloo", from_fsdp2=True)


@pytest.mark.ranks(2)
def test_rank_that_calls_alone_reaches_the_deadline(tmp_path: Path) -> None:
    mt.context_for("zero3", timeout=15)
    model, _, _ = build({**ZERO3, "rule": "torch AdamW"})
    if RANK == 0:
        with pytest.raises(meron.DeadlineError, match="rank"):
            mt.checkpoint.get_model_state_dict(model)
    (tmp_path / f"done{RANK}").touch()
    while not all((tmp_path / f"done{rank}").exists() for rank in range(RANKS)):
        time.sleep(0.05)
