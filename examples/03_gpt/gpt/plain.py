# SPDX-License-Identifier: Apache-2.0
"""The same training in one process of plain PyTorch, without Meron: what --compare runs.

It sees the micro-batches of all ranks. Where gradients are whole on every rank, a rank adds up its
own micro-batches before the ranks add up theirs; else they are added one after the other. A sum of
floats depends on its order: this process adds in the same one.
"""

from __future__ import annotations

import math
from argparse import Namespace

import torch
from torch import Tensor, nn

from common.progress import Progress

from .examples import Examples
from .model import loss_of
from .recipe import Losses, build, learning_rate


def train(
    options: Namespace, examples: Examples, ranks: int, by_rank: bool, progress: Progress
) -> Losses:
    accumulate = options.accumulate
    losses = Losses.of(options, ranks)
    model = build(options)
    params = list(model.parameters())
    optimizer = torch.optim.AdamW(params, lr=options.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(options.steps))
    places = [(turn, rank) for turn in range(accumulate) for rank in range(ranks)]
    parts = [places[rank::ranks] for rank in range(ranks)] if by_rank else [places]

    with progress:
        for step in range(options.steps):
            sums: list[Tensor] = []
            for part in parts:
                for turn, rank in part:
                    number = (step * accumulate + turn) * ranks + rank
                    loss = loss_of(model, examples[number])
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
    """Moves the gradients of one rank's micro-batches into the sums over ranks."""
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
