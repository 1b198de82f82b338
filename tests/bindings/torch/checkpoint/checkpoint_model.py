# SPDX-License-Identifier: Apache-2.0
"""The model that the checkpoints of this folder hold, and its training.

A job is a dictionary: "plan", "rule" ("engine AdamW" or "torch SGD"), "total" (micro-batches of a
step), and optionally "low" (computes in bf16), "units" (False: one unit) and "seed".
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions

import meron.torch as mt

RANK = int(os.environ.get("MERON_RANK", "0"))
RANKS = int(os.environ.get("MERON_WORLD_SIZE", "1"))
FULL = StateDictOptions(full_state_dict=True)
RANK0 = StateDictOptions(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=True)
LENIENT = StateDictOptions(strict=False)
Job = dict[str, Any]
JOB: Job = {"plan": "zero3", "rule": "torch AdamW", "total": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "AdamW": {"lr": 1e-2},
    "Adam": {"lr": 1e-2},
    "SGD": {"lr": 1e-2, "momentum": 0.9},
    "Adagrad": {"lr": 1e-2},
    "Lion": {"lr": 1e-3},
    "RMSprop": {"lr": 1e-3, "momentum": 0.5},
}
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer", "sum", "square_avg")
WIDTH = 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH + 1)
        self.down = nn.Linear(2 * WIDTH + 1, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Has a tied weight, a frozen one, buffers of both kinds, and a param in no unit."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight
        self.scale = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)
        self.plain = nn.Parameter(torch.linspace(1, 2, 5), requires_grad=False)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        self.register_buffer("table", torch.ones(WIDTH), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.head(self.blocks(self.embed(x) * self.scale[0] * self.table.to(x.dtype)))


def build(job: Job) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(job.get("seed", 0))
    model = Model()
    low = mt.MixedPrecision(torch.bfloat16) if job.get("low") else None
    options: dict[str, Any] = {"plan": job["plan"], "mp": low, "ignored_params": [model.plain]}
    if job.get("units", True):
        mt.shard(model, units=Block, **options)
    else:
        mt.shard(model.embed, **options)
        mt.shard(model, **options)
    home, rule = job["rule"].split()
    parts = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parts if p.dim() > 1]},
        {"params": [p for p in parts if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer: torch.optim.Optimizer
    if home == "engine":
        optimizer = getattr(mt, rule)(groups, **OPTIONS[rule])
    else:
        optimizer = getattr(torch.optim, rule)(groups, **OPTIONS[rule])
        mt.shard_optimizer(model, optimizer)
    return model, optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.5)


def train(
    job: Job, model: nn.Module, optimizer: Any, scheduler: Any, first: int, last: int
) -> list[str]:
    """Trains steps [first, last). Returns the digest after each.

    The micro-batches of a step are the same for each number of ranks.
    """
    turns = max(job["total"] // RANKS, 1)
    after = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(100 + step)
        data = torch.randn(RANKS * turns, 4, WIDTH, generator=generator)
        for turn in range(turns):
            x = data[turn * RANKS + RANK]
            loss = model(x.bfloat16() if job.get("low") else x).float().square().mean() / turns
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        after.append(digest(model, optimizer))
    return after


def trained(**more: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Builds JOB with these changes, and trains a step."""
    job = {**JOB, **more}
    model, optimizer, scheduler = build(job)
    train(job, model, optimizer, scheduler, 0, 1)
    return model, optimizer


def digest(model: nn.Module, optimizer: Any) -> str:
    """Hashes the bits of all params, and of the states of those that are trained."""
    found = hashlib.sha256()
    for name, param in model.named_parameters():
        found.update(name.encode())
        if not hasattr(param, "_meron"):
            found.update(param.detach().numpy().tobytes())
            continue
        found.update(mt.full_param(param).contiguous().view(torch.uint8).numpy().tobytes())
        for key in STATES:
            state = mt.full_optimizer_state(optimizer, param, key)
            if state is not None:
                found.update(key.encode() + state.numpy().tobytes())
    return found.hexdigest()[:16]


def values_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(value, values[name]), name


def wait_for_all() -> None:
    """Waits until each rank calls this."""
    mt.context_for("zero3").world.barrier()
