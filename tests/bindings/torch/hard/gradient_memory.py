# SPDX-License-Identifier: Apache-2.0
"""One rank: how many whole gradients, and whole params, a backward has alive at once.

Writes one line of JSON per function into folder/rank: its name, and what went wrong or null.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import meron
import meron.torch as mt
from meron.torch.sharding import sharding_of, unit_of

WIDTH, BLOCKS = 32, 12
BLOCK_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
context = mt.context_for(meron.Plan.preset("zero3"))
RANK, RANKS = context.rank, context.world_size


class Block(nn.Module):
    def __init__(self, unused: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        if unused:
            self.unused = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.linear(x))


class Chain(nn.Module):
    def __init__(self, unused: bool = False, reentrant: bool | None = None) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(unused) for _ in range(BLOCKS))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Peaks:
    """The most whole gradients, in bytes, and the most units in use, as each gradient arrives."""

    def __init__(self, model: nn.Module) -> None:
        self.bytes = self.units = 0
        self.params = [param for param in model.parameters() if param.requires_grad]
        self.all_units = {unit_of(param)[0] for param in model.parameters()}
        for param in self.params:
            param.register_post_accumulate_grad_hook(self.look)

    def look(self, _: torch.Tensor) -> None:
        alive = [param.grad.nbytes for param in self.params if param.grad is not None]
        self.bytes = max(self.bytes, sum(alive))
        self.units = max(self.units, sum(unit.uses > 0 for unit in self.all_units))


def data(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def train(build: Callable[[], nn.Module], freeze: str = "", steps: int = 2) -> Peaks:
    """Trains beside a twin, with equal bits; params whose name holds `freeze` are frozen late."""
    model = mt.shard(build(), units=Block)
    plain = build()
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    twin = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for each in (model, plain):
        for name, param in each.named_parameters():
            if freeze and freeze in name:
                param.requires_grad_(False)
    peaks = Peaks(model)
    for step in range(steps):
        model(data(10 * step + RANK)).square().mean().backward()
        assert context.stats().caller_gradient_bytes == 0
        optimizer.step()
        optimizer.zero_grad()
        twin.zero_grad()
        for rank in range(RANKS):
            (plain(data(10 * step + rank)).square().mean() / RANKS).backward()
        twin.step()
    for (name, param), expected in zip(model.named_parameters(), plain.parameters()):
        assert torch.equal(mt.full_param(param), expected), name
    assert all(unit.uses == 0 for unit in sharding_of(context).units), "a unit is still in use"
    return peaks


def expect_few(peaks: Peaks) -> None:
    """Two blocks and the rest at most, of twelve."""
    assert peaks.bytes <= 3 * BLOCK_BYTES + 64, f"{peaks.bytes / BLOCK_BYTES} blocks' gradients"
    assert peaks.units <= 3, f"{peaks.units} units in use"


# ---- What holds nothing back --------------------------------------------------------------------


def unused_params() -> None:
    expect_few(train(lambda: Chain(unused=True)))


def one_unused_param_in_the_last_block() -> None:
    def build() -> nn.Module:
        model = Chain()
        model.blocks[-1].unused = nn.Parameter(torch.ones(4))
        return model

    expect_few(train(build))


def params_frozen_late() -> None:
    expect_few(train(Chain, freeze="linear.weight"))
    expect_few(train(Chain, freeze="11.linear.bias"))


def blocks_frozen_late_cost_no_reduction() -> None:
    counted = []
    for freeze in ("", "blocks"):
        before = context.stats()
        expect_few(train(Chain, freeze=freeze))
        counted.append(context.stats().reduce_bytes - before.reduce_bytes)
    assert counted[1] <= counted[0] / BLOCKS, counted


def unused_params_of_recomputed_blocks() -> None:
    expect_few(train(lambda: Chain(unused=True, reentrant=False)))
    expect_few(train(lambda: Chain(unused=True, reentrant=True)))


def a_block_whose_output_is_unused() -> None:
    class Aside(Chain):
        def __init__(self) -> None:
            super().__init__()
            self.aside = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            self.aside(out)
            return out

    expect_few(train(Aside))


def partly_frozen_blocks_with_a_shared_input() -> None:
    """The gradient of `shared` is complete when the backward of all blocks is."""

    class Adapted(Block):
        def __init__(self) -> None:
            super().__init__()
            self.linear.requires_grad_(False)
            self.scale = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
            return x + torch.tanh(self.linear(x) * self.scale + shared)

    class Shares(Chain):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Adapted() for _ in range(BLOCKS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = shared = self.first(x)
            for block in self.blocks:
                x = block(x, shared)
            return x

    expect_few(train(Shares))


def teachers_cost_no_reduction() -> None:
    student, teacher = mt.shard(Chain(), units=Block), mt.shard(Chain(), units=Block)
    late = mt.shard(Chain(), units=Block).requires_grad_(False)

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student, self.teacher = Chain(), Chain()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                wanted = self.teacher(x)
            return self.student(x) - wanted

    inner = mt.shard(Inner(), units=Block)
    counted = []
    for kind in ("student", "no_grad", "late", "inner"):
        before = context.stats()
        x = data(RANK)
        wanted: torch.Tensor | float = 0.0
        if kind == "no_grad":
            with torch.no_grad():
                wanted = teacher(x)
        elif kind == "late":
            wanted = late(x)
        ((inner(x) if kind == "inner" else student(x)) - wanted).square().mean().backward()
        after = context.stats()
        counted.append(after.reduce_bytes - before.reduce_bytes)
    # `inner` has one unit for both models' first layers.
    assert counted[0] == counted[1] == counted[2], counted
    assert counted[3] < counted[0] + BLOCK_BYTES, counted


# ---- Bits and counters --------------------------------------------------------------------------


def stats_count_what_is_held() -> None:
    model = mt.shard(Chain(), units=Block)
    with mt.no_sync(model):
        model(data(RANK)).square().mean().backward()
    whole = sum(param.numel() * 4 for param in model.parameters())
    stats = context.stats()
    assert stats.caller_gradient_bytes == whole, (stats.caller_gradient_bytes, whole)
    assert stats.caller_gradient_peak_bytes >= whole
    model(data(RANK)).square().mean().backward()
    assert context.stats().caller_gradient_bytes == 0


def a_shared_block_is_complete_at_its_first_use() -> None:
    class Loops(Chain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for block in [*self.blocks, self.blocks[0], self.blocks[3]]:
                x = block(x)
            return x

    train(lambda: Loops(unused=True))


def a_param_that_is_returned_completes_nothing() -> None:
    """Its gradient comes before the backward of what ran between."""

    class Returns(Block):
        def __init__(self) -> None:
            super().__init__()
            self.added = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.added

    class Between(Chain):
        def __init__(self) -> None:
            super().__init__(unused=True)
            self.returns = Returns()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            added = self.returns(x)
            return super().forward(x) + added

    train(Between)


def old_and_new_graphs_in_one_backward() -> None:
    model, plain = mt.shard(Chain(unused=True), units=Block), Chain(unused=True)
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def losses(each: nn.Module, rank: int) -> torch.Tensor:
        old = each(data(rank)).square().mean()
        (each(data(rank + 10)).square().mean() / 2).backward()
        return old + each(data(rank + 20)).square().mean()

    losses(model, RANK).backward()
    optimizer.step()
    for rank in range(RANKS):
        losses(plain, rank).backward()
    for param in plain.parameters():
        if param.grad is not None:
            param.grad /= RANKS
    torch.optim.SGD(plain.parameters(), lr=0.1).step()
    for param, expected in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(mt.full_param(param), expected.detach())


PROMISES = [
    function
    for name, function in list(globals().items())
    if callable(function)
    and getattr(function, "__module__", None) == __name__
    and getattr(function, "__annotations__", {}) == {"return": "None"}
    and not isinstance(function, type)
]


def main(folder: str) -> int:
    torch.set_num_threads(1)
    with open(f"{folder}/{RANK}", "w", encoding="utf-8") as file:
        for promise in PROMISES:
            wrong = None
            try:
                promise()
            except Exception:
                wrong = traceback.format_exc()
            file.write(json.dumps([promise.__name__, wrong]) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
