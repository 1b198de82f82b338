# SPDX-License-Identifier: Apache-2.0
"""One rank: what of a model's memory is there when the model is gone.

Writes one line of JSON per function into folder/rank: its name, and what went wrong or null.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch.registry import shardings

WIDTH, BLOCKS = 512, 8  # 8.4 MB
BYTES = 4 * BLOCKS * (WIDTH * WIDTH + WIDTH)
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
THERE = {"tier": "device"}
ROWS = {"preset": "zero3", "param": THERE, "gradient": THERE, "optimizer": THERE}
context = mt.context_for(
    meron.Plan.preset("zero3") if DEVICE == "cpu" else meron.Plan.parse(ROWS), device=DEVICE
)
RANK, RANKS = context.rank, context.world_size


def build() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(BLOCKS)))


def data(seed: int) -> torch.Tensor:
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(seed))


def resident() -> int:
    """Bytes, of memory that is shared too."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(2):
        model(data(step + RANK)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def one_model(engine: bool) -> nn.Module:
    model = mt.shard(build(), units=nn.Linear, context=context)
    if engine or DEVICE != "cpu":  # whose values torch's optimizers cannot step
        train(model, mt.AdamW(model))
        return model
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, mt.shard_optimizer(model, own))
    return model


def flat_over(turns: int, one: Callable[[int], None]) -> None:
    """What a model leaves behind grows with every round of them; what the heap keeps of the first
    ones, for the next, does not."""
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
        # On every rank alike: all have to make the same models.
        most = np.array([max(growths[-1], 0)], np.float32)
        context.world.all_reduce(most)
        if DEVICE != "cpu" or most[0] < BYTES:  # the emulated device's memory is the heap's, too
            break
    else:
        shown = ", ".join(f"{grown / 1e6:.1f}" for grown in growths)
        raise AssertionError(
            f"{shown} MB more after each {turns} models of {BYTES / 1e6:.1f} on this rank"
        )
    now = context.stats()
    kinds = ("param_bytes", "gradient_bytes", "optimizer_bytes", "control_bytes", "device_bytes")
    for kind in kinds:
        assert getattr(now, kind) <= getattr(held, kind), (kind, held, now)


def raises(kind: type[BaseException], text: str, function: Callable[[], object]) -> None:
    try:
        function()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


# ---- Promises -----------------------------------------------------------------------------------


def destroyed_models_leave_nothing() -> None:
    def one(turn: int) -> None:
        mt.destroy(one_model(engine=turn % 2 == 0))

    flat_over(20 if DEVICE == "cpu" else 6, one)


def lost_models_leave_nothing() -> None:
    """Ranks collect them at different times; the next shard finds them."""

    def one(turn: int) -> None:
        one_model(engine=turn % 2 == 0)
        if turn % RANKS == RANK:
            gc.collect()

    flat_over(6, one)


def roots_that_ranks_collect_at_different_times() -> None:
    """A root that comes later on has the same recorded order on all ranks."""
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


def what_is_held_stays() -> None:
    model, other = one_model(True), one_model(False)
    weight = model[0].weight
    expected = mt.full_param(weight)
    lone = mt.full_param(other[2].bias)
    twin = mt.shard(build(), units=nn.Linear, context=context)
    del model, twin
    gc.collect()
    keeps = mt.shard(build(), context=context)  # destroys what is lost, and nothing else
    assert torch.equal(mt.full_param(weight), expected)
    assert torch.equal(mt.full_param(other[2].bias), lone)
    del weight
    optimizer = mt.shard_optimizer(other, torch.optim.SGD(other.parameters(), lr=0.1))
    train(other, optimizer)
    train(keeps, mt.AdamW(keeps))
    for each in (other, keeps):
        mt.destroy(each)
    assert len(shardings[context].units) <= BLOCKS, "what was lost is still there"


def models_beside_it_go_on_with_equal_bits() -> None:
    alone, beside = build(), one_model(False)
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


def models_whose_params_stay_whole() -> None:
    whole = mt.context_for(meron.Plan.preset("zero1"))
    before = whole.stats().param_bytes
    for lost in (False, True):
        model = mt.shard(build(), units=nn.Linear, context=whole)
        train(model, mt.AdamW(model))
        assert whole.stats().param_bytes > before
        if lost:
            del model
            gc.collect()
            small = mt.shard(nn.Linear(2, 2), context=whole)
            mt.destroy(small)
        else:
            mt.destroy(model)
        assert whole.stats().param_bytes == before, (lost, whole.stats().param_bytes, before)
    whole.close()


def mistakes_are_told() -> None:
    model = one_model(True)
    raises(meron.StateError, "is not sharded", lambda: mt.destroy(build()))
    raises(meron.StateError, "not this model's", lambda: mt.destroy(tied_to(model)))
    both = one_model(False)
    mt.unshard(model[0])
    mt.destroy(model)
    raises(meron.StateError, "was destroyed", lambda: model(data(0)))
    raises(meron.StateError, "is not sharded", lambda: mt.destroy(model))
    raises(meron.Error, "", lambda: mt.full_param(model[0].weight))
    mt.destroy(both)


def a_refusal_changes_nothing() -> None:
    """On all ranks, whichever has the reason; the model trains on."""
    model = mt.shard(build(), units=nn.Linear, context=context)
    optimizer = mt.AdamW(model)
    train(model, optimizer)
    gather = model[1].weight._meron[0].unit.gather()
    if RANK == 0:
        gather.release()
    text = "rank 1 refuses" if RANK == 0 else "gathered by another caller"
    mt.unshard(model[0])
    raises(meron.StateError, text, lambda: mt.destroy(model))
    mt.reshard(model[0])
    with zero.GatheredParameters(model[2].weight):
        raises(meron.StateError, "by GatheredParameters", lambda: mt.destroy(model))
    if RANK == 1:
        gather.release()
    train(model, optimizer)
    mt.destroy(model)


def tied_to(model: nn.Module) -> nn.Module:
    other = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    other[1].weight = model[0].weight
    return mt.shard(other, context=context)


def closing_gives_all_back() -> None:
    """Last: what the models show goes with the context, though the models live on."""
    models = [one_model(False) for _ in range(8)]
    before = resident()
    context.close()
    assert context not in shardings
    gc.collect()
    fallen = before - resident()
    assert fallen > 8 * BYTES / RANKS, f"{fallen / 1e6:.1f} MB less"
    raises(meron.ClosedError, "closed", lambda: models[0](data(0)))


PROMISES = [
    function
    for name, function in list(globals().items())
    if callable(function)
    and getattr(function, "__module__", None) == __name__
    and getattr(function, "__annotations__", {}) == {"return": "None"}
    and not isinstance(function, type)
]

# The device's rows are stepped by the engine's optimizers only.
ON_DEVICES = (
    destroyed_models_leave_nothing,
    lost_models_leave_nothing,
    roots_that_ranks_collect_at_different_times,
    a_refusal_changes_nothing,
)


def main(folder: str) -> int:
    torch.set_num_threads(1)
    with open(f"{folder}/{RANK}", "w", encoding="utf-8") as file:
        for promise in PROMISES if DEVICE == "cpu" else ON_DEVICES:
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
