#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training with Fabric, in a loop of one's own."""

from __future__ import annotations

import itertools
import logging
import time
import warnings

import torch
from lightning.fabric import Fabric, seed_everything
from options import finish, ranks, read, size_of

from meron.lightning import MeronEnvironment  # the import registers the strategies
from model import GPT, loader, loss_of


def main() -> None:
    options = read(
        "train_fabric.py", "Trains a GPT on the bytes of a text with Lightning's Fabric."
    )
    warnings.filterwarnings("ignore", "" if options.quiet else ".*does not have many workers.*")
    if options.quiet:
        logging.getLogger("lightning").setLevel(logging.ERROR)
    plain = options.strategy == "ddp"  # which does not know the ranks of `meron run` by itself
    fabric = Fabric(
        strategy=options.strategy,
        accelerator="auto",
        devices=ranks(),
        precision=options.precision,
        plugins=[MeronEnvironment()] if plain and MeronEnvironment.detect() else None,
    )
    fabric.launch()
    seed_everything(1, verbose=False)
    size = size_of(options)
    lr = size.pop("lr")
    with fabric.init_module():  # at stage 3 each module is sharded as soon as it is built
        model = GPT(**size)
    parameters = sum(param.numel() for param in model.parameters())
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=lr))
    batches = fabric.setup_dataloaders(
        loader(options.data, options.context, options.batch, 64 * ranks())
    )
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if options.resume:
        fabric.load(options.resume, state)
    curve = []
    begin = time.monotonic()
    epochs = itertools.chain.from_iterable(itertools.repeat(batches))
    for batch in itertools.islice(epochs, max(options.steps - state["step"], 0)):
        loss = loss_of(model, batch)
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        state["step"] += 1
        curve.append(float(fabric.all_reduce(loss.detach(), reduce_op="mean")))
    seconds = time.monotonic() - begin
    if options.save:
        fabric.save(options.save, state)
    if fabric.is_global_zero:
        finish(options, curve, parameters, seconds)


if __name__ == "__main__":
    main()
