# SPDX-License-Identifier: Apache-2.0
"""Modules of Lightning with several optimizers and schedulers.

Lightning's DeepSpeedStrategy accepts one optimizer only, so its losses are those of DDP. Where the
package `deepspeed` is Meron's, MeronStrategy trains.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import deepspeed
import tiny
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as entropy
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
LATENT, SIZE = 6, 12


def curves(count: int) -> TensorDataset:
    """Waves of random phase and pitch, which the generator learns to draw."""
    generator = torch.Generator().manual_seed(3)
    phase, pitch = torch.rand(2, count, 1, generator=generator)
    return TensorDataset(torch.sin(torch.arange(SIZE) * (0.5 + pitch) + 6 * phase))


class Gan(LightningModule):
    """Two networks and two optimizers, each stepped by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(LATENT, 24), nn.ReLU(), nn.Linear(24, SIZE))
        self.discriminator = nn.Sequential(nn.Linear(SIZE, 24), nn.ReLU(), nn.Linear(24, 1))
        self.found: dict[str, list[float]] = {"losses": [], "generator": []}

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return self.generator(noise)

    def training_step(self, batch: Any, index: int) -> None:
        (real,) = batch
        first, second = self.optimizers()
        draw = torch.Generator().manual_seed(100 * index + tiny.RANK)
        noise = torch.randn(len(real), LATENT, generator=draw)
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)

        self.toggle_optimizer(first)
        loss = entropy(self.discriminator(self(noise)), yes)
        self.manual_backward(loss)
        self.clip_gradients(first, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.found["generator"].append(loss.item())

        self.toggle_optimizer(second)
        of_real = entropy(self.discriminator(real), yes)
        of_made = entropy(self.discriminator(self(noise).detach()), no)
        loss = (of_real + of_made) / 2
        self.manual_backward(loss)
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)
        self.found["losses"].append(loss.item())

    def configure_optimizers(self) -> Any:
        first = torch.optim.Adam(self.generator.parameters(), lr=1e-2, betas=(0.5, 0.999))
        second = torch.optim.Adam(self.discriminator.parameters(), lr=1e-2, betas=(0.5, 0.999))
        return [first, second], []


class TwoSchedulers(LightningModule):
    """An autoencoder: each half has an optimizer, and a scheduler by step or by epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.encoder = nn.Sequential(nn.Linear(SIZE, 24), nn.Tanh(), nn.Linear(24, LATENT))
        self.decoder = nn.Sequential(nn.Linear(LATENT, 24), nn.Tanh(), nn.Linear(24, SIZE))
        self.found: dict[str, list[float]] = {"losses": [], "rates": []}

    def training_step(self, batch: Any, index: int) -> None:
        (x,) = batch
        optimizers, (by_step, _) = self.optimizers(), self.lr_schedulers()
        loss = (self.decoder(self.encoder(x)) - x).square().mean()
        self.manual_backward(loss / 2)
        if index % 2 == 1:  # accumulates two batches
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            by_step.step()
            self.found["rates"] += [each.param_groups[0]["lr"] for each in optimizers]
        self.found["losses"].append(loss.item())

    def on_train_epoch_end(self) -> None:
        self.lr_schedulers()[1].step()

    def configure_optimizers(self) -> Any:
        first = torch.optim.AdamW(self.encoder.parameters(), lr=1e-2)
        second = torch.optim.SGD(self.decoder.parameters(), lr=0.5, momentum=0.9)
        by_step = torch.optim.lr_scheduler.OneCycleLR(first, max_lr=2e-2, total_steps=8)
        by_epoch = torch.optim.lr_scheduler.StepLR(second, 1, gamma=0.5)
        schedulers = [
            {"scheduler": by_step, "interval": "step"},
            {"scheduler": by_epoch, "interval": "epoch"},
        ]
        return [first, second], schedulers


def strategy(stage: int) -> Any:
    if "meron" not in deepspeed.__version__:
        return "ddp_find_unused_parameters_true"
    from meron.lightning import MeronStrategy

    return MeronStrategy(stage=stage)


def main(folder: Path, module: str, stage: int) -> dict[str, list[float]]:
    seed_everything(5)
    model = {"gan": Gan, "schedulers": TwoSchedulers}[module]()
    made = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy(stage),
        max_epochs=2,
        default_root_dir=folder / f"{module}{stage}",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    made.fit(model, DataLoader(curves(32), batch_size=4, shuffle=True))
    made.save_checkpoint(folder / f"{module}{stage}" / "last.ckpt")
    return model.found
