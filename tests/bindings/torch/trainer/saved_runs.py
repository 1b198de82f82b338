# SPDX-License-Identifier: Apache-2.0
"""A run that saves checkpoints, for tests that load them."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from modules import Regression, fit


class Kept(Regression):
    """Adds its own state to checkpoints."""

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        assert len(checkpoint["state_dict"]) == 6  # values are gathered when they are used
        checkpoint["mine"] = {"batches": len(self.losses), "sum": torch.tensor(2.0)}

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        assert checkpoint["mine"]["sum"] == 2


def train_and_save(folder: Path) -> tuple[Kept, Trainer]:
    """Trains two epochs at stage 2. Saves `step=8.ckpt` after 8 of 12 steps, then `end.ckpt`."""
    saved = ModelCheckpoint(folder, "{step}", every_n_train_steps=8)
    module, made = fit("meron_stage_2", Kept(), max_epochs=2, callbacks=[saved])
    made.save_checkpoint(folder / "end.ckpt")
    return module, made
