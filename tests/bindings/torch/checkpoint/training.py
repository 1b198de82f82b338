# SPDX-License-Identifier: Apache-2.0
"""One rank: trains a model, saves it, goes on; or loads it and goes on. Writes what came out.

job: {"folder", "out", "action": "save" or "load", "plan", "rule": "engine AdamW" or "torch SGD",
"low": bf16 compute, "first", "last": steps to train, "total": micro-batches of a step}
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import meron.torch as mt

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
    """With a tied weight, a frozen one, buffers of both kinds, and a param in no unit."""

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


def build(job: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
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
    job: dict[str, Any], model: nn.Module, optimizer: Any, scheduler: Any, first: int, last: int
) -> list[str]:
    """Trains steps [first, last); digests after each. The same micro-batches at any number of
    ranks."""
    rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
    turns = max(job["total"] // ranks, 1)
    after = []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(100 + step)
        data = torch.randn(ranks * turns, 4, WIDTH, generator=generator)
        for turn in range(turns):
            x = data[turn * ranks + rank]
            loss = model(x.bfloat16() if job.get("low") else x).float().square().mean() / turns
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        after.append(digest(model, optimizer))
    return after


def digest(model: nn.Module, optimizer: Any) -> str:
    """Of the bits of all params, and of the states of those that are trained."""
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


def be_a_node(job: dict[str, Any], disk: int) -> None:
    """This rank says that it is a node of its own, with the disk of that number."""
    rank, ranks = int(os.environ["MERON_RANK"]), int(os.environ["MERON_WORLD_SIZE"])
    os.environ["MERON_NODE"] = str(rank)
    os.environ["MERON_TORCH_TRANSPORT"] = "group"
    meeting = f"file://{job['out']}/meeting"
    torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=ranks)
    job["folder"] += f"/disk{disk}"
    job["options"] = {"per_node": True}


def main() -> None:
    job = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    if "disks" in job:
        be_a_node(job, job["disks"][int(os.environ["MERON_RANK"])])
    model, optimizer, scheduler = build(job)
    out: dict[str, Any] = {}
    first, last = job["first"], job["last"]
    if job["action"] == "save":
        train(job, model, optimizer, scheduler, 0, first)
        handle = mt.save(
            job["folder"],
            "it",
            model,
            optimizer,
            step=first,
            scheduler=scheduler,
            extra={"position": 7},
            tensors={"mine": torch.arange(5)},
            background=job.get("background", False),
            **job.get("options", {}),
        )
        out["digest"] = digest(model, optimizer)
        out["random"] = torch.rand(1).item()
        out["after"] = train(job, model, optimizer, scheduler, first, last)
        handle.wait()
    else:
        loaded = mt.load(
            job["folder"], None, model, optimizer, scheduler=scheduler, **job.get("options", {})
        )
        assert (loaded.step, loaded.extra) == (first, {"position": 7})
        assert torch.equal(loaded.tensors["mine"], torch.arange(5))
        assert int(model.passes) > 0
        out["digest"] = digest(model, optimizer)
        out["random"] = torch.rand(1).item() if loaded.rng else None
        out["after"] = train(job, model, optimizer, scheduler, first, last)
    out["rates"] = [group["lr"] for group in optimizer.param_groups]
    Path(job["out"], os.environ["MERON_RANK"]).write_text(json.dumps(out))


if __name__ == "__main__":
    main()
