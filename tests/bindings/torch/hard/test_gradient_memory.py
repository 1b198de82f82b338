# SPDX-License-Identifier: Apache-2.0
"""Number of full gradients and gathered units that exist at one time in a backward."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mlp import RANK, RANKS
from torch import nn
from torch.utils.checkpoint import checkpoint

import meron.torch as mt
from meron.torch.sharding import sharding_of, unit_of

WIDTH, BLOCKS = 32, 12
BLOCK_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
pytestmark = pytest.mark.ranks(2)


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
    """Peaks over a backward, taken when each gradient arrives.

    Attributes:
        bytes: of full gradients.
        units: number of units in use.
    """

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
    """Trains a sharded model and its plain twin, and checks that their bits are equal.

    Args:
        freeze: part of the names of params to freeze after `shard`.
    """
    model = mt.shard(build(), units=Block)
    plain = build()
    context = mt.context_for("zero3")
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
    """At most two of the twelve blocks, and the unit of the root."""
    assert peaks.bytes <= 3 * BLOCK_BYTES + 64, f"{peaks.bytes / BLOCK_BYTES} blocks' gradients"
    assert peaks.units <= 3, f"{peaks.units} units in use"


# ---- Memory ----------------------------------------------------------------------------------


def test_unused_params_delay_no_reduction() -> None:
    expect_few(train(lambda: Chain(unused=True)))


def test_unused_param_in_the_last_block_delays_no_reduction() -> None:
    def build() -> nn.Module:
        model = Chain()
        model.blocks[-1].unused = nn.Parameter(torch.ones(4))
        return model

    expect_few(train(build))


@pytest.mark.parametrize("freeze", ["linear.weight", "11.linear.bias"])
def test_params_frozen_after_shard_delay_no_reduction(freeze: str) -> None:
    expect_few(train(Chain, freeze=freeze))


def test_blocks_frozen_after_shard_are_not_reduced() -> None:
    context = mt.context_for("zero3")
    counted = []
    for freeze in ("", "blocks"):
        before = context.stats()
        expect_few(train(Chain, freeze=freeze))
        counted.append(context.stats().reduce_bytes - before.reduce_bytes)
    assert counted[1] <= counted[0] / BLOCKS, counted


@pytest.mark.parametrize("reentrant", [False, True])
def test_unused_params_of_recomputed_blocks_delay_no_reduction(reentrant: bool) -> None:
    expect_few(train(lambda: Chain(unused=True, reentrant=reentrant)))


def test_unused_output_delays_no_reduction() -> None:
    class Aside(Chain):
        def __init__(self) -> None:
            super().__init__()
            self.aside = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            self.aside(out)
            return out

    expect_few(train(Aside))


def test_partly_frozen_blocks_with_a_shared_input_delay_no_reduction() -> None:
    """The gradient of `shared` is complete after the backward of all blocks."""

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


def test_teachers_are_not_reduced() -> None:
    context = mt.context_for("zero3")
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


# ---- Values and counters ------------------------------------------------------------------------


def test_stats_count_accumulated_gradients() -> None:
    context = mt.context_for("zero3")
    model = mt.shard(Chain(), units=Block)
    with mt.no_sync(model):
        model(data(RANK)).square().mean().backward()
    whole = sum(param.numel() * 4 for param in model.parameters())
    stats = context.stats()
    assert stats.caller_gradient_bytes == whole
    assert stats.caller_gradient_peak_bytes >= whole
    model(data(RANK)).square().mean().backward()
    assert context.stats().caller_gradient_bytes == 0


def test_trains_blocks_that_run_twice() -> None:
    class Loops(Chain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for block in [*self.blocks, self.blocks[0], self.blocks[3]]:
                x = block(x)
            return x

    train(lambda: Loops(unused=True))


def test_trains_a_param_that_a_module_returns() -> None:
    """Its gradient arrives before the backward of modules that ran after it."""

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


def test_runs_one_backward_of_old_and_new_graphs() -> None:
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
