# SPDX-License-Identifier: Apache-2.0
"""The model of the kept checkpoints of PyTorch.

Its gradients are the batch itself: small multiples of 1/16, equal on all ranks. So they and their
mean are exact at every precision, in any order of sums, on every processor and number of ranks.
"""

from __future__ import annotations

import torch
from torch import nn


class Layer(nn.Module):
    """A unit of its own, with sizes that no number of ranks divides."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(ramp(first, 9, 5))
        self.bias = nn.Parameter(ramp(first + 3, 7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum() + (self.bias * x.reshape(-1)[:7]).sum()


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ramp(11, 11))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x.reshape(-1)[-11:]).sum()


class Model(nn.Module):
    """Has a tied weight, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Line()
        self.layers = nn.ModuleList([Layer(0), Layer(17)])
        self.last = Line()
        self.last.weight = self.first.weight
        self.frozen = nn.Parameter(ramp(5, 4), requires_grad=False)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        ends = self.first(x) + 2 * self.last(x) + self.frozen.sum()
        return ends + sum(layer(x) for layer in self.layers)


def ramp(first: int, *shape: int) -> torch.Tensor:
    """Values from -1 to 1 that 16 bits hold exactly."""
    count = torch.Size(shape).numel()
    return (((torch.arange(count) * 7 + first) % 33 - 16) / 16).reshape(shape)


def batch(step: int) -> torch.Tensor:
    return ramp(13 * step, 9, 5)


def bits_of(value: torch.Tensor) -> str:
    """Hexadecimal bytes of a tensor."""
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes().hex()
