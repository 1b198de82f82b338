# SPDX-License-Identifier: Apache-2.0
"""The same training in one process of plain PyTorch, without Meron: what --compare runs.

It sees the micro-batches of all ranks. Where gradients are whole on every rank, a rank adds up its
own micro-batches before the ranks add up theirs; over a mesh, the ranks of a shard axis do before
the replicas; else they are added one after the other. A sum of floats depends on its order: this
process adds in the same one.
"""

from __future__ import annotations

import math
from argparse import Namespace
from typing import Any

import torch
from torch import Tensor, nn

from common.progress import Progress

from .examples import Examples
from .model import loss_of
from .recipe import Losses, build, learning_rate, torch_device

Part = list[tuple[int, int]]  # turn and rank of micro-batches that are added first


def parts_of(plan: dict[str, Any], ranks: int, accumulate: int) -> list[Part]:
    turns = [[(turn, rank) for rank in range(ranks)] for turn in range(accumulate)]
    sharding, shards = plan["gradient"]["sharding"], plan["mesh"]["shard"]
    if sharding == "none":
        return [[turn[rank] for turn in turns] for rank in range(ranks)]
    if not isinstance(shards, int) or shards >= ranks:  # this machine is one node
        return [[place for turn in turns for place in turn]]
    rows = [slice(first, first + shards) for first in range(0, ranks, shards)]
    if sharding == "shard":
        return [[place for turn in turns for place in turn[row]] for row in rows]
    return [turn[row] for turn in turns for row in rows]


def train(
    options: Namespace,
    examples: Examples,
    ranks: int,
    plan: dict[str, Any],
    progress: Progress,
) -> Losses:
    accumulate = options.accumulate
    losses, device = Losses.of(options, ranks), torch_device(options)
    model = build(options).to(device)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=options.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(options.steps))
    parts = parts_of(plan, ranks, accumulate)

    with progress:
        for step in range(options.steps):
            sums: list[Tensor] = []
            for part in parts:
                for turn, rank in part:
                    number = (step * accumulate + turn) * ranks + rank
                    loss = loss_of(model, examples[number].to(device))
                    (loss / accumulate).backward()
                    losses.values[step, turn, rank] = loss.item()
                if len(parts) > 1:
                    sums = take_gradients(params, sums)
            for i, param in enumerate(params):
                param.grad = (sums[i] if sums else param.grad).mul_(1 / ranks)
            if options.clip:
                clip(params, options.clip)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            progress(step + 1, losses.values[step].mean())
    return losses


def take_gradients(params: list[nn.Parameter], sums: list[Tensor]) -> list[Tensor]:
    """Moves the gradients of one part's micro-batches into the sums."""
    grads = [param.grad for param in params]
    for param in params:
        param.grad = None
    return [a + b for a, b in zip(sums, grads, strict=True)] if sums else grads


def clip(params: list[nn.Parameter], most: float) -> None:
    """torch.nn.utils.clip_grad_norm_ with the norm in double, as Meron computes it: in f32 its last
    bits depend on how the tensors are cut."""
    norm = math.sqrt(sum(float(param.grad.double().square().sum()) for param in params))
    scale = most / (norm + 1e-6)
    if scale < 1:
        for param in params:
            param.grad.mul_(scale)
