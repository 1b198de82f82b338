# SPDX-License-Identifier: Apache-2.0
"""Models that are hard to shard.

Each takes a batch of WIDTH columns. The loss is the mean square of its output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

WIDTH = 16
rank = 0  # that computes now; the plain twin computes the batches of all ranks


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


class Around(nn.Module):
    """A module between a block and a head."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first = Mlp()
        self.inner = inner
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.first(x)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH, bias=False)
        self.block = Mlp()
        self.head = nn.Linear(WIDTH, WIDTH, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.embed(x)))


def frozen() -> nn.Module:
    model = Around(Mlp())
    model.inner.requires_grad_(False)
    return model


class LowRank(nn.Module):
    """A frozen bf16 base and trainable f32 factors in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, WIDTH).bfloat16().requires_grad_(False)
        self.a = nn.Parameter(torch.randn(WIDTH, 4) / 4)
        self.b = nn.Parameter(torch.randn(4, WIDTH) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x.bfloat16()).float() + x @ self.a @ self.b


class Unused(nn.Module):
    """Params that no rank uses, in their own unit and in a unit with others."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Mlp()
        self.never = nn.Linear(WIDTH, WIDTH)
        self.nor_this = nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


class UnusedHere(nn.Module):
    """A param that only some ranks use."""

    def __init__(self) -> None:
        super().__init__()
        self.even = nn.Parameter(torch.rand(WIDTH))
        self.odd = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (self.even if rank % 2 == 0 else self.odd)


class Experts(nn.Module):
    """A leaf: the data of the rank selects the experts that run."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(Mlp() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.gate(x).softmax(-1)
        chosen = weight.argmax(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            rows = chosen == k
            if rows.any():
                out[rows] = expert(x[rows]) * weight[rows][:, k : k + 1]
        return out + x


class Outputs(nn.Module):
    """Returns tensors in nested containers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Mlp(), Mlp()

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"a": self.a(x), "b": (self.b(x), 3, None)}


class ManyOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Outputs()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.inner(x)
        return out["a"] + out["b"][0]


@dataclasses.dataclass
class Hidden:
    value: torch.Tensor
    more: object = None


class OnDataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Mlp()

    def forward(self, hidden: Hidden) -> Hidden:
        return Hidden(self.block(hidden.value))


class Dataclasses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = OnDataclass(), OnDataclass()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.a(Hidden(x))).value


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(self.block(x))


class Recomputed(nn.Module):
    """Activation recomputation; with `again`, two segments share a block."""

    def __init__(self, reentrant: bool, again: bool) -> None:
        super().__init__()
        block = Mlp()
        self.blocks = nn.ModuleList([block, block if again else Mlp(), Mlp()])
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant and not x.requires_grad:
            x = x.requires_grad_()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Normed(nn.Module):
    """Weight norm, which computes a weight before each forward, in torch's new and old way."""

    def __init__(self) -> None:
        super().__init__()
        self.new = parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        self.old = nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.old(torch.tanh(self.new(x)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.gru = nn.GRU(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(self.lstm(x[None])[0])[0][0]


class Odd(nn.Module):
    """A buffer, a 0-dim param and an empty param."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("twice", torch.full((WIDTH,), 2.0))
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.empty = nn.Parameter(torch.empty(0, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.twice * self.scale + self.empty.sum()


class Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.param = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.param


class External(nn.Module):
    """Uses a param of a child that it does not call, and one that a child returns."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Mlp()
        self.linear = nn.Linear(WIDTH, WIDTH, bias=False)
        self.returns = Returns()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.block(x), self.linear.weight) + self.returns(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[None])[0]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        hidden += 1
        return self.relu(hidden)


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.out = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(self.conv(x[:, None])).flatten(1))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: Around(Mlp()),
    "tied": Tied,
    "frozen": frozen,
    "low_rank": lambda: Around(LowRank()),
    "unused": Unused,
    "unused_here": lambda: Around(UnusedHere()),
    "experts": lambda: Around(Experts()),
    "outputs": lambda: Around(ManyOutputs()),
    "dataclasses": lambda: Around(Dataclasses()),
    "twice": lambda: Around(Twice()),
    "recomputed": lambda: Around(Recomputed(False, False)),
    "recomputed_again": lambda: Around(Recomputed(False, True)),
    "reentrant": lambda: Recomputed(True, False),
    "reentrant_again": lambda: Recomputed(True, True),
    "normed": lambda: Around(Normed()),
    "recurrent": lambda: Around(Recurrent()),
    "odd": lambda: Around(Odd()),
    "external": External,
    "attention": lambda: Around(Attention()),
    "in_place": lambda: Around(InPlace()),
    "convolution": lambda: Around(Convolution()),
}
# Modules that are one unit. Otherwise ranks would gather different experts.
LEAVES = {"experts": "inner"}
