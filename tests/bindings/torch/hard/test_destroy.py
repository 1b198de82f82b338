# SPDX-License-Identifier: Apache-2.0
"""Memory of a model after it is destroyed or collected."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mlp import RANK, RANKS
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch.registry import shardings

WIDTH, BLOCKS = 512, 8  # 8.4 MB
BYTES = 4 * BLOCKS * (WIDTH * WIDTH + WIDTH)
DEVICE_TIER = {"tier": "device"}
PLANS = {
    "cpu": meron.Plan.preset("zero3"),
    "emulated": meron.Plan.parse(
        {
            "preset": "zero3",
            "param": DEVICE_TIER,
            "gradient": DEVICE_TIER,
            "optimizer": DEVICE_TIER,
        }
    ),
}
pytestmark = pytest.mark.ranks(2)
on_each_device = pytest.mark.parametrize("device", PLANS)


def open_context(device: str = "cpu") -> meron.Context:
    return mt.context_for(PLANS[device], device=device)


def build() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS)))


def data(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def resident() -> int:
    """Bytes of resident memory, with shared memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(2):
        model(data(step + RANK)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def one_model(context: meron.Context, engine: bool) -> nn.Module:
    """A model that has trained with an optimizer of the engine or of torch."""
    model = mt.shard(build(), units=nn.Linear, context=context)
    if engine:
        train(model, mt.AdamW(model))
        return model
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, mt.shard_optimizer(model, own))
    return model


def check_no_growth(device: str, turns: int, one: Callable[[int], None]) -> None:
    """Checks that memory does not grow in three rounds of `one(turn)` for each turn.

    Memory that the heap keeps for reuse grows in the first rounds only.
    """
    context = open_context(device)
    for turn in range(2):
        one(turn)
    gc.collect()
    held = context.stats()
    growths = []
    for _ in range(3):
        before = resident()
        for turn in range(turns):
            one(turn)
        gc.collect()
        growths.append(resident() - before)
        # All ranks decide alike, because they make the same models.
        most = np.array([max(growths[-1], 0)], np.float32)
        context.world.all_reduce(most)
        if device != "cpu" or most[0] < BYTES:  # the heap has the emulated device's memory
            break
    else:
        shown = ", ".join(f"{grown / 1e6:.1f}" for grown in growths)
        raise AssertionError(
            f"{shown} MB more after each {turns} models of {BYTES / 1e6:.1f} on this rank"
        )
    now = context.stats()
    kinds = ("param_bytes", "gradient_bytes", "optimizer_bytes", "control_bytes", "device_bytes")
    for kind in kinds:
        assert getattr(now, kind) <= getattr(held, kind), kind


@on_each_device
def test_destroyed_models_leave_no_memory(device: str) -> None:
    context = open_context(device)

    def one(turn: int) -> None:
        mt.destroy(one_model(context, engine=turn % 2 == 0 or device != "cpu"))

    check_no_growth(device, 20 if device == "cpu" else 6, one)


@on_each_device
def test_collected_models_leave_no_memory(device: str) -> None:
    """Ranks collect them at different times. The next `shard` frees them."""
    context = open_context(device)

    def one(turn: int) -> None:
        one_model(context, engine=turn % 2 == 0 or device != "cpu")
        if turn % RANKS == RANK:
            gc.collect()

    check_no_growth(device, 6, one)


@on_each_device
def test_ranks_collect_a_root_at_different_times(device: str) -> None:
    """A later root records the same order of units on all ranks."""
    context = open_context(device)
    parts = mt.shard(build(), units=nn.Linear, context=context)
    first = mt.shard(nn.Sequential(parts[0], parts[1], nn.Linear(WIDTH, WIDTH)), context=context)
    other = mt.shard(nn.Sequential(parts[0], parts[2], nn.Linear(WIDTH, WIDTH)), context=context)
    for _ in range(2):
        first(data(RANK)).square().mean().backward()
    context.world.barrier()
    gc.disable()
    first.itself = [first]
    del first
    if RANK == 0:
        gc.collect()
    for _ in range(2):
        other(data(RANK)).square().mean().backward()
    gc.enable()
    gc.collect()
    del other
    gc.collect()
    mt.destroy(mt.shard(nn.Linear(2, 2), context=context))
    mt.destroy(parts)


def test_referenced_models_survive_collection() -> None:
    context = open_context()
    model, other = one_model(context, True), one_model(context, False)
    weight = model[0].weight
    expected = mt.full_param(weight)
    lone = mt.full_param(other[2].bias)
    twin = mt.shard(build(), units=nn.Linear, context=context)
    del model, twin
    gc.collect()
    keeps = mt.shard(build(), context=context)  # destroys collected models only
    assert torch.equal(mt.full_param(weight), expected)
    assert torch.equal(mt.full_param(other[2].bias), lone)
    del weight
    optimizer = mt.shard_optimizer(other, torch.optim.SGD(other.parameters(), lr=0.1))
    train(other, optimizer)
    train(keeps, mt.AdamW(keeps))
    for each in (other, keeps):
        mt.destroy(each)
    assert len(shardings[context].units) <= BLOCKS


def test_destroy_keeps_the_bits_of_other_models() -> None:
    context = open_context()
    alone, beside = build(), one_model(context, False)
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    model = mt.shard(build(), units=nn.Linear, context=context)
    own = mt.shard_optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(4):
        model(data(step + RANK)).square().mean().backward()
        own.step()
        for rank in range(RANKS):
            (alone(data(step + rank)).square().mean() / RANKS).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 1:
            mt.destroy(beside)
    for param, expected in zip(model.parameters(), alone.parameters()):
        assert torch.equal(mt.full_param(param), expected.detach())
    mt.destroy(model)


def test_destroy_frees_replicated_params() -> None:
    whole = mt.context_for(meron.Plan.preset("zero1"))
    before = whole.stats().param_bytes
    for collected in (False, True):
        model = mt.shard(build(), units=nn.Linear, context=whole)
        train(model, mt.AdamW(model))
        assert whole.stats().param_bytes > before
        if collected:
            del model
            gc.collect()
            small = mt.shard(nn.Linear(2, 2), context=whole)
            mt.destroy(small)
        else:
            mt.destroy(model)
        assert whole.stats().param_bytes == before, collected
    whole.close()


def test_destroy_rejects_misuse() -> None:
    context = open_context()
    model = one_model(context, True)
    with pytest.raises(meron.StateError, match="is not sharded"):
        mt.destroy(build())
    with pytest.raises(meron.StateError, match="not this model's"):
        mt.destroy(tied_to(context, model))
    both = one_model(context, False)
    mt.unshard(model[0])
    mt.destroy(model)
    with pytest.raises(meron.StateError, match="was destroyed"):
        model(data(0))
    with pytest.raises(meron.StateError, match="is not sharded"):
        mt.destroy(model)
    with pytest.raises(meron.Error):
        mt.full_param(model[0].weight)
    mt.destroy(both)


@on_each_device
def test_rejected_destroy_changes_nothing(device: str) -> None:
    """If one rank rejects, all do, and the model still trains."""
    context = open_context(device)
    model = mt.shard(build(), units=nn.Linear, context=context)
    optimizer = mt.AdamW(model)
    train(model, optimizer)
    gather = model[1].weight._meron[0].unit.gather()
    if RANK == 0:
        gather.release()
    text = "rank 1 refuses" if RANK == 0 else "gathered by another caller"
    mt.unshard(model[0])
    with pytest.raises(meron.StateError, match=re.escape(text)):
        mt.destroy(model)
    mt.reshard(model[0])
    with (
        zero.GatheredParameters(model[2].weight),
        pytest.raises(meron.StateError, match="by GatheredParameters"),
    ):
        mt.destroy(model)
    if RANK == 1:
        gather.release()
    train(model, optimizer)
    mt.destroy(model)


def tied_to(context: meron.Context, model: nn.Module) -> nn.Module:
    other = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    other[1].weight = model[0].weight
    return mt.shard(other, context=context)


def test_close_frees_the_memory_of_live_models() -> None:
    context = open_context()
    models = [one_model(context, False) for _ in range(8)]
    before = resident()
    context.close()
    assert context not in shardings
    gc.collect()
    fallen = before - resident()
    assert fallen > 8 * BYTES / RANKS, f"{fallen / 1e6:.1f} MB less"
    with pytest.raises(meron.ClosedError, match="closed"):
        models[0](data(0))
