# SPDX-License-Identifier: Apache-2.0
"""from_pretrained of transformers within configure_model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from modules import RANK, Regression, distance, fit

pytestmark = pytest.mark.ranks(2)

transformers = pytest.importorskip("transformers", reason="tools/setup --integrations installs it")


class Tuned(LightningModule):
    def __init__(self, published: Path) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.published = published

    def configure_model(self) -> None:
        if not hasattr(self, "lm"):
            self.lm = transformers.GPT2LMHeadModel.from_pretrained(self.published)
            self.lm.train()

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        tokens = (batch[0].abs() * 10).long() % 64
        loss = self.lm(tokens, labels=tokens).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def test_from_pretrained_in_configure_model_trains_as_ddp(tmp_path: Path) -> None:
    fit("ddp", Regression())  # opens the process group
    if RANK == 0:
        torch.manual_seed(5)
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 32}
        config = transformers.GPT2Config(**shape, **none)
        transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    dist.barrier()
    plain, _ = fit("ddp", Tuned(tmp_path))
    for name in ("meron_stage_2", "meron_stage_3"):
        module, _ = fit(name, Tuned(tmp_path))
        assert module.losses == plain.losses
        assert distance(module, plain) == 0
