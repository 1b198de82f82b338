# SPDX-License-Identifier: Apache-2.0
"""The kept checkpoints of meron.lightning: how each is trained, and what a run has at some step."""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from torch_cases import Records, plain
from torch_model import Model, batch, bits_of

import meron.lightning  # noqa: F401  (registers the strategies)
import meron.torch as mt

warnings.filterwarnings("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)

FILE, SAVED, BATCHES = "step-3.ckpt", 3, 5  # batches of an epoch: the save is within the first
MINE = {"count": 3, "sum": torch.tensor(2.5)}  # of the module's own hooks
WORLD = int(os.environ.get("MERON_WORLD_SIZE", "1"))
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
# By case: strategy, owner of the optimizer, and its numbers. A step has the same bits on every
# processor and with every torch.
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "lightning-sgd": ("meron_stage_2", "torch", {"lr": 0.25, "momentum": 0.5}),
    "lightning-engine-adamw": ("meron_stage_3", "engine", {"lr": 0.01}),
}


class Module(LightningModule):
    def __init__(self, home: str = "torch", numbers: Any = None, width: int = 5) -> None:
        super().__init__()
        self.save_hyperparameters("width")
        self.home, self.numbers = home, numbers
        self.net = Model()
        self.records: list[dict[str, Any]] = []  # at the start, and after each batch
        self.restored: Any = None

    def training_step(self, _batch: Any, _index: int) -> torch.Tensor:
        return self.net(batch(self.trainer.global_step))

    def configure_optimizers(self) -> Any:
        trained = [p for p in self.parameters() if p.requires_grad]
        rule = torch.optim.SGD if self.home == "torch" else mt.AdamW
        optimizer = rule(trained, **self.numbers)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["mine"] = MINE

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.restored = checkpoint["mine"]

    def on_train_start(self) -> None:
        self.records.append(record(self, self.trainer))


def trainer(strategy: str, steps: int) -> Trainer:
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=WORLD,
        max_steps=steps,
        use_distributed_sampler=False,
        **dict.fromkeys(quiet, False),
    )


def batches() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.zeros(BATCHES, 1)), batch_size=1)


def record(module: Module, made: Trainer) -> dict[str, Any]:
    """Bits of values and states, by name, and what else a checkpoint restores. Collective."""
    bits = {name: bits_of(value) for name, value in module.state_dict().items()}
    (optimizer,) = made.strategy.optimizers
    for name, param in module.named_parameters():
        for key in STATES:
            state = mt.full_optimizer_state(optimizer, param, key)
            if state is not None:
                bits[f"{name}.{key}"] = bits_of(state)
    return {
        "bits": bits,
        "step": made.global_step,
        "batches": made.fit_loop.epoch_loop.batch_progress.current.completed,
        "lr": [group["lr"] for group in optimizer.param_groups],
        "scheduler": plain(made.lr_scheduler_configs[0].scheduler),
    }


def keep(folder: Path, case: tuple[str, str, dict[str, Any]]) -> Records:
    """Saves a run, and continues it."""
    strategy, *rule = case
    module, made = Module(*rule), trainer(strategy, SAVED)
    made.fit(module, batches())
    made.save_checkpoint(folder / FILE)
    saved = record(module, made)
    # Without an interruption.
    module, made = Module(*rule), trainer(strategy, SAVED + 1)
    made.fit(module, batches())
    return {"saved": saved, "next": record(module, made)}
