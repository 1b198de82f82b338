# SPDX-License-Identifier: Apache-2.0
"""state_dict of a model that meron.zero has sharded: local, as DeepSpeed's."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from model import RANK, assert_equal_weights, batches_of, config, engine_step, on_device, twins

pytestmark = [pytest.mark.ranks(2), on_device(2)]

settings = config


def names_without_values(state: Any) -> set[str]:
    return {name for name, value in state.items() if "sharded" in repr(value)}


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_one_rank_alone_reads_it(stage: int) -> None:
    model, plain = twins()
    model.register_buffer("count", torch.tensor(7))
    engine, *_ = zero.initialize(model=model, config=settings(stage))
    here = model.blocks[0].up.weight._meron[0].stays
    if RANK == 0:
        for owner in (model, engine):
            state = owner.state_dict()
            assert int(state.pop("count")) == 7
            assert list(state) == list(plain.state_dict())
            without = names_without_values(state)
            assert without == (set() if here else set(state))
            for name, value in plain.state_dict().items():
                assert state[name].shape == value.shape and state[name].dtype == value.dtype
                assert name in without or torch.equal(state[name], value)
            addresses = {name: v.untyped_storage().data_ptr() for name, v in state.items()}
            tied = [addresses.pop("head.weight"), addresses["embed.weight"]]
            assert here or tied[0] == tied[1]
            assert len({*addresses.values()}) == len(addresses)
        assert "shift" in engine.module_state_dict()
        model.shift.requires_grad_(False)
        assert "shift" not in engine.module_state_dict(exclude_frozen_parameters=True)
        model.shift.requires_grad_(True)
        kept = model.state_dict(keep_vars=True)
        assert kept["shift"] is model.shift
    for step in batches_of(2):
        engine_step(engine, [step])  # ranks are in step


def test_entries_without_values_say_what_to_call() -> None:
    """Every read of their values raises, so each file that is written has all values."""
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=settings(3))
    if RANK == 0:
        state = model.state_dict()
        entry = state["blocks.0.up.weight"]
        assert entry.view(-1)[-1].data_ptr() == entry.data_ptr() == 0
        for read in (
            lambda: torch.save(state, io.BytesIO()),
            lambda: entry.contiguous(),
            lambda: entry.clone(),
            lambda: entry.view(-1)[0].item(),
            lambda: copy.deepcopy(state),
            lambda: plain.blocks[0].up.weight.data.copy_(entry),
        ):
            with pytest.raises(meron.StateError, match="full_state_dict"):
                read()
        with pytest.raises(meron.StateError, match="a write"):
            entry.fill_(1.0)
        # As libraries hash models; DeepSpeed's entries are empty.
        with pytest.warns(UserWarning, match=r"up\.weight.* is empty.*full_state_dict"):
            assert entry.cpu().to(torch.float32).numpy().tobytes() == b""
        with pytest.raises(meron.StateError, match="full_state_dict"):
            torch.save(entry.cpu(), io.BytesIO())
        with pytest.raises(RuntimeError, match="full_state_dict"):
            plain.load_state_dict(state)
    state = model.state_dict()
    with pytest.raises(ValueError, match="sharded param, out of use"):
        model.load_state_dict(state)
    assert_equal_weights(model, plain, 0.0)
    engine_step(engine, batches_of(1))


def test_has_the_values_of_gathered_params() -> None:
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=settings(3))
    layer = model.blocks[0].up
    with zero.GatheredParameters(model.parameters(), modifier_rank=0):
        if RANK == 0:
            state = model.state_dict()
            for name, value in plain.state_dict().items():
                assert torch.equal(state[name], value), name
            with torch.no_grad():
                state["blocks.0.up.weight"].fill_(2.0)  # as in torch, the param itself
    assert torch.equal(zero.full_state_dict(layer)["weight"], torch.full((24, 12), 2.0))
    assert not names_without_values(
        {name: v.clone() for name, v in state.items()} if RANK == 0 else {}
    )
    with pytest.raises(KeyError, match="in it"), zero.GatheredParameters(layer.weight):
        assert torch.equal(layer.state_dict()["weight"], torch.full((24, 12), 2.0))
        raise KeyError("in it")
    assert names_without_values(layer.state_dict()) == {"weight", "bias"}
    engine_step(engine, batches_of(1))


@pytest.mark.parametrize("stage", [1, 3])
def test_full_state_dict_has_all_values_on_every_rank(stage: int) -> None:
    model, plain = twins()
    model.shift.requires_grad_(False)
    engine, *_ = zero.initialize(model=model, config=settings(stage))
    for owner in (engine, model):
        state = zero.full_state_dict(owner)
        assert list(state) == list(plain.state_dict())
        for name, value in plain.state_dict().items():
            assert torch.equal(state[name], value), name
        assert "shift" not in zero.full_state_dict(owner, exclude_frozen_parameters=True)
    engine.load_state_dict(state)
    assert_equal_weights(model, plain, 0.0)
    assert list(zero.full_state_dict(nn.Linear(2, 2))) == ["weight", "bias"]
    with pytest.raises(meron.ArgumentError, match="takes a module, not a dict"):
        zero.full_state_dict(state)
