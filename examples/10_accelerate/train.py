#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop of accelerate with --use_deepspeed. Nothing in it is of Meron.

    PYTHONPATH=$(python3 -m meron.zero.dropin) accelerate launch --use_deepspeed --zero_stage 3 \\
      --zero3_save_16bit_model true --num_processes 2 train.py

It trains a small network, saves accelerator's state in the middle, goes back to it, and writes the
weights at the end.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="steps of the optimizer (40)")
    parser.add_argument("--folder", type=Path, help="where to save; default is a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.gettempdir()) / "meron_10_accelerate"

    # Without a GPU accelerate needs the name of the backend. With one, leave the line out.
    handlers = [] if torch.cuda.is_available() else [InitProcessGroupKwargs(backend="gloo")]
    accelerator = Accelerator(kwargs_handlers=handlers)
    set_seed(1)
    x = torch.rand(4096, 8)
    data = DataLoader(TensorDataset(x, x.mean(1, keepdim=True)), batch_size=32)
    model = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.97**step)
    model, optimizer, data, scheduler = accelerator.prepare(model, optimizer, data, scheduler)

    half = options.steps // 2
    first = train(accelerator, model, optimizer, scheduler, data, half)
    accelerator.save_state(str(folder / "state"))
    middle = train(accelerator, model, optimizer, scheduler, data, half)
    accelerator.load_state(str(folder / "state"))
    again = train(accelerator, model, optimizer, scheduler, data, half)
    accelerator.save_model(model, str(folder / "weights"))
    accelerator.print(f"{accelerator.num_processes} processes, {accelerator.distributed_type}")
    accelerator.print(f"loss {first[0]:.6f} -> {middle[-1]:.6f}")
    accelerator.print(
        "from the saved state again:", "the same losses" if again == middle else again
    )
    accelerator.print(f"weights in {folder / 'weights'}")
    accelerator.end_training()


def train(accelerator, model, optimizer, scheduler, data, steps):
    """The mean loss over all processes, of each step. Begins with the first batch."""
    losses = []
    for _, (x, y) in zip(range(steps), data):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)  # steps too
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


if __name__ == "__main__":
    main()
