# SPDX-License-Identifier: Apache-2.0
"""A GPT: a decoder-only transformer over bytes, in plain PyTorch. Knows nothing of Meron."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 256  # the values of a byte


class Attention(nn.Module):
    """Each position looks at itself and at those before it."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = linear(width, 3 * width)
        self.out = linear(width, width, layers)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # of each: batch, heads, length, head
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, layers)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = linear(width, 4 * width)
        self.down = linear(4 * width, width, layers)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class GPT(nn.Module):
    """The embedding of a byte is also the weight that predicts it."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.run: Callable[[nn.Module, Tensor], Tensor] = directly  # how a block is called

    def forward(self, bytes_: Tensor) -> Tensor:
        """Scores of the next byte at each position, from (batch, length) of integers."""
        places = torch.arange(bytes_.shape[1], device=bytes_.device)
        x = self.token(bytes_) + self.position(places)
        for block in self.blocks:
            x = self.run(block, x)
        return F.linear(self.norm(x), self.token.weight)


def directly(block: nn.Module, x: Tensor) -> Tensor:
    return block(x)


def linear(inputs: int, outputs: int, layers: int | None = None) -> nn.Linear:
    """A matrix with small initial values. Those that write to the residual stream, which adds up
    two of them per layer, start smaller."""
    made = nn.Linear(inputs, outputs)
    nn.init.normal_(made.weight, std=0.02 / math.sqrt(2 * layers) if layers else 0.02)
    nn.init.zeros_(made.bias)
    return made


def loss_of(model: nn.Module, examples: Tensor) -> Tensor:
    """The mean of -log p(next byte), from (batch, context + 1) of bytes."""
    scores = model(examples[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1).float(), examples[:, 1:].flatten())
