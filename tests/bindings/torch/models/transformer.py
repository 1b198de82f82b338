# SPDX-License-Identifier: Apache-2.0
"""Residual blocks between an embedding and a head that share one weight."""

from __future__ import annotations

import torch
from torch import nn

import meron.torch as mt

VOCABULARY, WIDTH = 33, 24


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def build() -> nn.Module:
    return Model()


def batch(generator: torch.Generator) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (2, 8), generator=generator)


def loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def shard(model: nn.Module, plan: str) -> nn.Module:
    return mt.shard(model, units=Block, plan=plan)
