#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a GPT with Lightning's Trainer on Meron. Two lines are Meron's: the import and a name."""

from __future__ import annotations

import logging
import time
import warnings

from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.utilities.model_summary import ModelSummary
from options import finish, ranks, read, size_of

from meron.lightning import MeronEnvironment  # the import registers the strategies
from model import LitGPT, loader


def main() -> None:
    options = read("train.py", "Trains a GPT on the bytes of a text with Lightning's Trainer.")
    warnings.filterwarnings("ignore", "" if options.quiet else ".*does not have many workers.*")
    if options.quiet:
        logging.getLogger("lightning").setLevel(logging.ERROR)
    seed_everything(1, verbose=False)
    plain = options.strategy == "ddp"  # which does not know the ranks of `meron run` by itself
    trainer = Trainer(
        strategy=options.strategy,
        accelerator="auto",
        devices=ranks(),
        precision=options.precision,
        max_steps=options.steps,
        max_epochs=-1,
        plugins=[MeronEnvironment()] if plain and MeronEnvironment.detect() else None,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=not options.quiet,
        enable_progress_bar=not options.quiet,
    )
    batches = loader(options.data, options.context, options.batch, 64 * ranks())
    model = LitGPT(**size_of(options))
    begin = time.monotonic()
    trainer.fit(model, batches, ckpt_path=options.resume)
    seconds = time.monotonic() - begin
    if options.save:
        trainer.save_checkpoint(options.save)
    if trainer.is_global_zero:
        finish(options, model.curve, ModelSummary(model).total_parameters, seconds)


if __name__ == "__main__":
    main()
