# SPDX-License-Identifier: Apache-2.0
"""Training with meron.torch: an ordinary loop; three lines of it are Meron's.

Each block is a unit: whole while it computes, in the forward and in the backward, and cut over the
ranks otherwise. Which states are cut is the plan's business: no line here depends on it.
"""

from __future__ import annotations

from argparse import Namespace

import torch

import meron
import meron.torch as mt

from .model import Block, loss_of
from .recipe import Losses, Trained, build, learning_rate
from .report import Progress
from .text import Examples


def train(
    context: meron.Context, options: Namespace, examples: Examples, progress: Progress
) -> Trained:
    rank, ranks, accumulate = context.rank, context.world_size, options.accumulate
    losses = Losses.of(options, ranks)

    precision = mt.MixedPrecision(torch.bfloat16) if options.dtype == "bf16" else None
    model = mt.shard(build(options), units=Block, context=context, mp=precision)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    mt.shard_optimizer(model, optimizer)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(options.steps))

    progress.begin()
    for step in range(options.steps):
        for turn in range(accumulate):
            number = (step * accumulate + turn) * ranks + rank
            loss = loss_of(model, examples[number])
            (loss / accumulate).backward()
            losses.values[step, turn, rank] = loss.item()
        if options.clip:
            mt.clip_grad_norm_(model, options.clip)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        progress.step(losses.values[step, :, rank])
    progress.end()

    kept = [value for state in optimizer.state.values() for value in state.values()]
    if precision is not None:  # f32 values of this rank's part of what is gathered in bf16
        kept += [part for group in optimizer.param_groups for part in group["params"]]
    kept_bytes = sum(tensor.nbytes for tensor in kept if tensor.dim())
    return Trained(losses, model, optimizer, kept_bytes)
