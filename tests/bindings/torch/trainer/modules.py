# SPDX-License-Identifier: Apache-2.0
"""LightningModules, data, and runs of a Trainer, for the tests of this folder."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Checkpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from meron.lightning import MeronEnvironment

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)

# pytest's own process, which is no rank, imports this too.
WORLD = int(os.environ.get("MERON_WORLD_SIZE", "1"))
RANK = int(os.environ.get("MERON_RANK", "0"))
mse, bce = nn.functional.mse_loss, nn.functional.binary_cross_entropy_with_logits
HOOKS = ("training_step", "validation_step", "setup", "teardown", "backward", "optimizer_step")
HOOKS += ("configure_model", "configure_optimizers", "configure_gradient_clipping", "forward")
HOOKS += ("lr_scheduler_step", "optimizer_zero_grad", "prepare_data", "train_dataloader")


def layers() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(16, 33), nn.Tanh(), nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 1)
    )


class Regression(LightningModule):
    """Records the losses of this rank's batches, and the hooks that were looked up, in order."""

    def __init__(self, late: bool = False) -> None:
        super().__init__()
        self.__dict__["hooks"] = []
        self.losses: list[float] = []
        self.late = late
        if not late:
            self.net = layers()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_") or name in HOOKS:
            self.__dict__["hooks"].append(name)
        return super().__getattribute__(name)

    def configure_model(self) -> None:
        if self.late and not hasattr(self, "net"):
            self.net = layers()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x).squeeze(1)

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        x, y = batch
        loss = mse(self(x).float(), y.float())
        self.losses.append(loss.item())
        self.log("train", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, _index: int) -> None:
        self.log("val", mse(self(batch[0]), batch[1]), sync_dist=True)

    test_step = validation_step

    def predict_step(self, batch: Any, _index: int) -> torch.Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Normed(Regression):
    """With running statistics, which each rank updates by its own batches."""

    def __init__(self, late: bool = False) -> None:
        super().__init__(late)
        torch.manual_seed(7)
        self.net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 1))


class Gan(LightningModule):
    """Two models, two optimizers, manual optimization."""

    toggles = True

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.losses: list[float] = []
        torch.manual_seed(7)
        self.made = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
        self.judge = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))

    def training_step(self, batch: Any, _index: int) -> None:
        real = batch[0][:, :8]
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        first, second = self.optimizers()
        if self.toggles:
            self.toggle_optimizer(first)
        self.update(first, bce(self.judge(self.made(real[:, :4])), ones))
        if self.toggles:
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
        fake = self.made(real[:, :4]).detach()
        self.update(second, bce(self.judge(real), ones) + bce(self.judge(fake), zeros))
        if self.toggles:
            self.untoggle_optimizer(second)

    def update(self, optimizer: Any, loss: torch.Tensor) -> None:
        self.losses.append(loss.item())
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self) -> Any:
        made = torch.optim.AdamW(self.made.parameters(), lr=1e-2)
        return [made, torch.optim.SGD(self.judge.parameters(), lr=1e-2, momentum=0.9)], []


class Untoggled(Gan):
    toggles = False


class TwoRates(Regression):
    """Two optimizers of the same params, which step in turn."""

    def __init__(self, late: bool = False) -> None:
        super().__init__(late)
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        optimizer = self.optimizers()[index % 2]
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.Adam(self.parameters(), lr=rate) for rate in (1e-2, 1e-3)]


def loader() -> DataLoader[Any]:
    """Six batches for each of two ranks."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(48, 16, generator=generator)
    return DataLoader(TensorDataset(x, x.mean(1)), batch_size=4)


def trainer(strategy: Any, **options: Any) -> Trainer:
    quiet = dict.fromkeys(("logger", "enable_progress_bar"), False)
    saves = any(isinstance(each, Checkpoint) for each in options.get("callbacks", ()))
    quiet["enable_checkpointing"] = saves
    own: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": WORLD,
        "max_epochs": 1,
        "num_sanity_val_steps": 0,
    }
    if str(strategy).startswith("ddp"):
        own["plugins"] = [MeronEnvironment()]
    given = {**quiet, "enable_model_summary": False, **own, **options}
    return Trainer(strategy=strategy, **given)


def fit(
    strategy: Any,
    module: Any = None,
    ckpt_path: Any = None,
    validates: bool = False,
    **options: Any,
) -> tuple[Any, Trainer]:
    """Trains a module. Returns it and its Trainer."""
    seed_everything(1, verbose=False)
    module = Regression() if module is None else module
    made = trainer(strategy, **options)
    made.fit(module, loader(), loader() if validates else None, ckpt_path=ckpt_path)
    return module, made


def distance(one: nn.Module, other: nn.Module) -> float:
    """Returns the largest difference of two models' values. Collective."""
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    return max((ours[key].float() - theirs[key].float()).abs().max().item() for key in ours)
