# SPDX-License-Identifier: Apache-2.0
"""Training with meron.torch: an ordinary loop; three lines of it are Meron's.

Each block is a unit: it is unsharded while it computes, in the forward and in the backward, and
sharded otherwise. The plan decides which states are sharded: no line here depends on it.
"""

from __future__ import annotations

import json
from argparse import Namespace

import torch

import meron
import meron.torch as mt
from common.progress import Progress

from .examples import Examples
from .model import Block, loss_of
from .recipe import Losses, Trained, build, checkpointed, gathered, learning_rate, torch_device


def train(
    context: meron.Context, options: Namespace, examples: Examples, progress: Progress
) -> Trained:
    rank, ranks, accumulate = context.rank, context.world_size, options.accumulate
    losses, device = Losses.of(options, ranks), torch_device(options)

    precision = mt.MixedPrecision(torch.bfloat16) if options.dtype == "bf16" else None
    model = mt.shard(
        checkpointed(build(options), options), units=Block, context=context, mp=precision
    )
    optimizer = adamw(context, model, options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(options.steps))

    before = gathered(context)
    with progress:
        for step in range(options.steps):
            for turn in range(accumulate):
                number = (step * accumulate + turn) * ranks + rank
                loss = loss_of(model, examples[number].to(device))
                (loss / accumulate).backward()
                losses.values[step, turn, rank] = loss.item()
            if options.clip and not isinstance(optimizer, mt.AdamW):
                mt.clip_grad_norm_(model, options.clip)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            progress(step + 1, losses.values[step, :, rank].mean())

    own_bytes = bytes_of(optimizer, precision is not None)
    return Trained(context, losses, model, optimizer, own_bytes, before)


def adamw(
    context: meron.Context, model: torch.nn.Module, options: Namespace
) -> torch.optim.Optimizer:
    """Torch's optimizer, with states of the shards' size. The engine's, if the plan has params or
    states on another tier or in fewer bits. The engine clips in its step, on the gradients' device:
    clip_grad_norm_ would copy the gradients of a GPU to the host."""
    plan = json.loads(context.plan.json())
    states = plan["optimizer"]
    if (plan["param"]["tier"], states["tier"], states["dtype"]) != ("host", "host", "f32"):
        return mt.AdamW(model, lr=options.lr, max_norm=options.clip)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    mt.shard_optimizer(model, optimizer)
    return optimizer


def bytes_of(optimizer: torch.optim.Optimizer, sixteen: bool) -> int:
    """Bytes of torch's optimizer on this rank, for the table: its states, and the f32 values if
    params are gathered in bf16."""
    kept = [value for state in optimizer.state.values() for value in state.values()]
    if sixteen:
        parts = [part for group in optimizer.param_groups for part in group["params"]]
        kept += [part for part in parts if part.dtype == torch.float32]  # else the engine has them
    return sum(tensor.nbytes for tensor in kept if tensor.dim())
