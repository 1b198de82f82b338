# SPDX-License-Identifier: Apache-2.0
"""The GPT of example 03 as a LightningModule, and batches of text. Knows nothing of Meron."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path[1:1] = [str(EXAMPLES), str(EXAMPLES / "03_gpt")]

from gpt.model import GPT, loss_of  # noqa: E402

from common import text  # noqa: E402


class LitGPT(LightningModule):
    """A GPT over bytes.

    Attributes:
        curve: the mean loss of each step over all ranks, on each of them.
    """

    def __init__(self, width: int, layers: int, heads: int, context: int, lr: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.curve: list[float] = []

    def configure_model(self) -> None:
        """Here a strategy of stage 3 shards each module as soon as it is built."""
        if not hasattr(self, "gpt"):
            given = self.hparams
            torch.manual_seed(1)
            self.gpt = GPT(given["width"], given["layers"], given["heads"], given["context"])

    def training_step(self, batch: Tensor, _index: int) -> Tensor:
        loss = loss_of(self.gpt, batch)
        self.log("loss", loss, prog_bar=True)
        self.curve.append(float(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean")))
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])


class Text(Dataset[Tensor]):
    """Pieces of a text that do not overlap, each of context + 1 bytes."""

    def __init__(self, files: list[str], context: int, most: int) -> None:
        data = torch.frombuffer(text.load(files, context + 1), dtype=torch.uint8)
        count = min(len(data) // (context + 1), most)
        if count < most:  # a short text is read again
            data = data[: count * (context + 1)].repeat(-(-most // count))
        self.pieces = data[: most * (context + 1)].view(most, context + 1)

    def __len__(self) -> int:
        return len(self.pieces)

    def __getitem__(self, index: int) -> Tensor:
        return self.pieces[index].long()


def loader(files: list[str], context: int, batch: int, batches: int) -> DataLoader[Tensor]:
    """So many batches, of all ranks together, in an order that is mixed anew in each epoch."""
    return DataLoader(Text(files, context, batch * batches), batch_size=batch, shuffle=True)
