# SPDX-License-Identifier: Apache-2.0
"""One rank: what lies on the emulated device, and how long. Cases of training.py."""

from __future__ import annotations

from typing import Any

import torch
from layers import STEPS, batch, equal_bits, sharding_of, stack, trained

import meron
import meron.torch as mt
from meron.torch.passes import units_below
from model import raises


def case_nothing_is_held_between_gathers() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated", persist_elements=0)
    optimizer = mt.AdamW(model, lr=0.1)
    sharding = sharding_of(model)
    units = [unit.memory for unit in units_below(model)]
    ahead = []
    for unit in units:
        plain = unit.arrive

        def arrive(unit: Any = unit, plain: Any = plain) -> None:
            ahead.append(sum(each.ahead is not None for each in units))
            plain()

        unit.arrive = arrive
    live = []
    for layer in model:
        layer.register_forward_hook(
            lambda *_: live.append([unit.storage.nbytes() > 0 for unit in units])
        )
    before = sharding.context.stats()
    for step in range(STEPS):
        live.clear()
        ahead.clear()
        model(batch(step)).square().mean().backward()
        assert not any(unit.storage.nbytes() for unit in units)
        assert sharding.residency.live == 0 and not sharding.reducer.going
        # Of the first pass nothing is known; then the next units are on their way.
        assert (max(ahead) > 1) == (step > 0), (step, ahead)
        if step == 0:
            assert all(sum(one) <= 2 for one in live), live  # a layer, and the root around it
        optimizer.step()
    after = sharding.context.stats()
    size = 4 * sum(unit.elements for unit in units)
    assert after.device_down_bytes - before.device_down_bytes == STEPS * size
    # The first pass gathers for the backward again; later ones keep what it needs in the window.
    assert after.device_up_bytes - before.device_up_bytes == (STEPS + 1) * size


def case_little_is_held_where_little_is_read_ahead() -> None:
    limits = {"persist_elements": 0, "prefetch_elements": 16 * 17}
    model = mt.shard(stack(), units=torch.nn.Linear, plan="hpz(1)", device="emulated", **limits)
    optimizer = mt.AdamW(model, lr=0.1)
    units = units_below(model)
    live = []
    for layer in model:
        layer.register_forward_hook(
            lambda *_: live.append(sum(unit.memory.storage.nbytes() > 0 for unit in units))
        )
    for step in range(STEPS):
        model(batch(step)).square().mean().backward()
        optimizer.step()
    assert max(live) <= 3, live  # a layer, the next one, and the root around them


def case_small_units_stay_until_the_step() -> None:
    # A plan whose units are these alone: the total counts those of all models.
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated", plan="mics(1)")
    sharding, units = sharding_of(model), units_below(model)
    sharding.limits = {"persist_elements": 16 * 17, "persist_total_elements": 2 * 16 * 17}
    sharding.residency.renew()
    optimizer = mt.AdamW(model, lr=0.1)
    model(batch(0)).square().mean().backward()
    assert sum(unit.memory.here for unit in units) == 2
    optimizer.step()
    assert not any(unit.memory.here for unit in units)
    assert sharding.residency.live == 0


def case_what_was_begun_ahead_is_not_stale() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated")
    mt.prefetch(model[0])
    value = torch.full((16, 16), 2.0)
    mt.set_full_param(model[0].weight, value)
    mt.unshard(model[0])
    assert torch.equal(model[0].weight.detach(), value)
    with raises(meron.StateError, "gathered"):
        mt.set_full_param(model[0].weight, value)
    mt.reshard(model[0])
    assert sharding_of(model).residency.live <= sum(
        u.memory.elements for u in sharding_of(model).units
    )


def case_after_an_exception_it_goes_on() -> None:
    def train(device: str) -> list[torch.Tensor]:
        model = mt.shard(stack(), units=torch.nn.Linear, device=device)
        optimizer = mt.AdamW(model, lr=0.1)
        for _ in range(2):
            try:
                model(torch.ones(4, 3))
            except RuntimeError:
                optimizer.zero_grad()
        return trained(model, optimizer)

    equal_bits(train)


def case_a_write_is_told() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated")
    with raises(meron.StateError, "0.weight' is sharded: a write"):
        model[0].weight.data.zero_()
    with raises(meron.StateError, "full_param"):
        model[0].weight.sum()
    kept = mt.shard(stack(), units=torch.nn.Linear, plan="zero1", device="emulated")
    rule = mt.SGD(kept, lr=0.1)
    kept(batch(0)).sum().backward()
    rule.step()
    for param in kept.parameters():  # in use and out of it, and after a step the new values
        assert torch.equal(param.data.cpu(), mt.full_param(param))
        with raises(meron.StateError, "a write"):
            param.data.zero_()

    def clamp(layer: torch.nn.Module, _inputs: Any) -> None:
        with torch.no_grad():
            layer.weight.clamp_(-1, 1)

    hook = model[1].register_forward_pre_hook(clamp)
    with raises(meron.StateError, "1.weight' is sharded: it was written to"):
        model(batch(0))
    hook.remove()
    model(batch(0))


def case_one_model_on_each() -> None:
    context = mt.context_for(meron.Plan.preset("zero3"), device="emulated")
    assert context.device == "emulated"
    assert mt.context_for(meron.Plan.preset("zero3"), device="cpu") is not context
    model = mt.shard(stack(), context=context)
    assert sharding_of(model).context is context
    with raises(meron.ArgumentError, "emulated"):
        mt.shard(stack(), context=context, device="cpu")
    parts = stack()
    mt.shard(parts[0], device="emulated")
    with raises(meron.ArgumentError, "was sharded for emulated"):
        mt.shard(parts, device="cpu")
    mt.shard(parts)  # as its part
    assert sharding_of(parts).context is context
    assert all(unit.sharding.context is context for unit in units_below(parts))
