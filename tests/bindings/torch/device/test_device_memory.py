# SPDX-License-Identifier: Apache-2.0
"""Memory of the emulated device: which storage is live, and when it is released."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from layers import SLOW, STEPS, batch, equal_bits, sharding_of, stack, trained

import meron
import meron.torch as mt
from meron.torch.passes import units_below

pytestmark = pytest.mark.ranks(1, 2, environment=SLOW)


def test_releases_storage_between_gathers() -> None:
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
        # The first pass records the order of units; later ones prefetch the next units.
        assert (max(ahead) > 1) == (step > 0), (step, ahead)
        if step == 0:
            assert all(sum(one) <= 2 for one in live), live  # a layer and the root
        optimizer.step()
    after = sharding.context.stats()
    size = 4 * sum(unit.elements for unit in units)
    assert after.device_down_bytes - before.device_down_bytes == STEPS * size
    # The first backward gathers again; later passes keep the units that it needs.
    assert after.device_up_bytes - before.device_up_bytes == (STEPS + 1) * size


def test_small_prefetch_limits_live_units() -> None:
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
    assert max(live) <= 3, live  # a layer, the next one, and the root


def test_small_units_stay_until_the_step() -> None:
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


def test_write_after_prefetch_is_not_stale() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated")
    mt.prefetch(model[0])
    value = torch.full((16, 16), 2.0)
    mt.set_full_param(model[0].weight, value)
    mt.unshard(model[0])
    assert torch.equal(model[0].weight.detach(), value)
    with pytest.raises(meron.StateError, match="gathered"):
        mt.set_full_param(model[0].weight, value)
    mt.reshard(model[0])
    assert sharding_of(model).residency.live <= sum(
        u.memory.elements for u in sharding_of(model).units
    )


def test_trains_on_after_a_failed_forward() -> None:
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


def test_writes_out_of_use_are_refused_where_params_are_sharded() -> None:
    model = mt.shard(stack(), units=torch.nn.Linear, device="emulated")
    with pytest.raises(meron.StateError, match=re.escape("0.weight' is sharded: a write")):
        model[0].weight.data.zero_()
    with pytest.raises(meron.StateError, match="full_param"):
        model[0].weight.sum()
    kept = mt.shard(stack(), units=torch.nn.Linear, plan="zero1", device="emulated")
    rule = mt.SGD(kept, lr=0.1)
    kept(batch(0)).sum().backward()
    rule.step()
    for param in kept.parameters():  # sharded and unsharded, and after a step the new values
        assert torch.equal(param.data.cpu(), mt.full_param(param))
        param.data.zero_()  # counts, where every rank has the values
        assert not mt.full_param(param).any()

    def clamp(layer: torch.nn.Module, _inputs: Any) -> None:
        with torch.no_grad():
            layer.weight.clamp_(-1, 1)

    hook = model[1].register_forward_pre_hook(clamp)
    with pytest.raises(
        meron.StateError, match=re.escape("1.weight' is sharded: it was written to")
    ):
        model(batch(0))
    hook.remove()
    model(batch(0))


def test_each_device_has_its_own_context() -> None:
    context = mt.context_for(meron.Plan.preset("zero3"), device="emulated")
    assert context.device == "emulated"
    assert mt.context_for(meron.Plan.preset("zero3"), device="cpu") is not context
    model = mt.shard(stack(), context=context)
    assert sharding_of(model).context is context
    with pytest.raises(meron.ArgumentError, match="emulated"):
        mt.shard(stack(), context=context, device="cpu")
    parts = stack()
    mt.shard(parts[0], device="emulated")
    with pytest.raises(meron.ArgumentError, match="was sharded for emulated"):
        mt.shard(parts, device="cpu")
    mt.shard(parts)  # on the device of its part
    assert sharding_of(parts).context is context
    assert all(unit.sharding.context is context for unit in units_below(parts))
