# SPDX-License-Identifier: Apache-2.0
"""from_pretrained of transformers within configure_model."""

from __future__ import annotations

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from modules import FOLDER, RANK, Regression, distance, fit, run_cases
from transformers import GPT2Config, GPT2LMHeadModel


class Tuned(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def configure_model(self) -> None:
        if not hasattr(self, "lm"):
            self.lm = GPT2LMHeadModel.from_pretrained(FOLDER / "published")
            self.lm.train()

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        tokens = (batch[0].abs() * 10).long() % 64
        loss = self.lm(tokens, labels=tokens).loss
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def case_published_weights() -> None:
    fit("ddp", Regression())  # opens the process group
    if RANK == 0:
        torch.manual_seed(5)
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        shape = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 64, "n_positions": 32}
        GPT2LMHeadModel(GPT2Config(**shape, **none)).save_pretrained(FOLDER / "published")
    dist.barrier()
    plain, _ = fit("ddp", Tuned())
    for name in ("meron_stage_2", "meron_stage_3"):
        module, _ = fit(name, Tuned())
        assert module.losses == plain.losses, (name, module.losses, plain.losses)
        assert distance(module, plain) == 0


if __name__ == "__main__":
    run_cases(dict(globals()))
