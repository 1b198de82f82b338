# SPDX-License-Identifier: Apache-2.0
"""Params that are gathered together: for generation, and in the background."""

from __future__ import annotations

import copy
import gc
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import meron
import meron.torch as mt
from meron import zero
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    train,
    twins,
)

pytestmark = pytest.mark.ranks(1, 2)


def collectives(engine: Any) -> int:
    return int(engine.sharding.context.stats().operations)


def in_use(engine: Any) -> list[int]:
    return [unit.uses for unit in engine.units]


def generate(model: Any, count: int) -> torch.Tensor:
    """Generates tokens greedily."""
    tokens = torch.arange(4).view(1, 4)
    with torch.no_grad():
        for _ in range(count):
            tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], 1)
    return tokens


def test_generates_without_gathers_and_continues_training() -> None:
    for stage in range(4):
        model, plain = twins()
        engine, *_ = zero.initialize(model=model, config=config(stage))
        optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
        train(engine, plain, optimizer, 2)
        for _ in range(2):
            with zero.unwrap_model_for_generation(engine) as unwrapped:
                assert unwrapped is engine
                before = collectives(engine)
                # Ranks may run different numbers of forwards.
                found = generate(unwrapped, 2 + RANK)
                assert collectives(engine) == before
                assert torch.equal(found, generate(plain, 2 + RANK))
                assert min(in_use(engine)) == 1
                with pytest.raises(meron.StateError, match="unwrap_model_for_generation"):
                    engine.backward(engine(data(torch.Generator())[0][0]).sum() * 0)
                    engine.step()
                engine.zero_grad()
            assert max(in_use(engine)) == 0
            train(engine, plain, optimizer, 1)
        assert_equal_weights(model, plain, 1e-6)
        engine.destroy()


def test_nests_with_other_gathers() -> None:
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=config())
    expected = generate(plain, 2)
    with zero.unwrap_model_for_generation(engine):
        with zero.unwrap_model_for_generation(engine.module) as module:
            assert module is model
            assert torch.equal(generate(module, 2), expected)
        assert min(in_use(engine)) == 1
        assert torch.equal(generate(engine, 2), expected)
        with zero.GatheredParameters(list(model.parameters())), torch.no_grad():
            assert torch.equal(generate(engine, 2), expected)
            model.shift.add_(1)  # dropped
        assert torch.equal(generate(engine, 2), expected)
        with (
            pytest.raises(meron.StateError, match="Model"),
            zero.GatheredParameters(model.shift, 0),
        ):
            pass  # values cannot change during generation
        assert torch.equal(generate(engine, 2), expected)
    params = list(model.parameters())
    with zero.GatheredParameters(params), zero.unwrap_model_for_generation(engine):
        assert torch.equal(generate(engine, 2), expected)
    assert max(in_use(engine)) == 0
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 2)
    assert_equal_weights(model, plain, 1e-6)


class Recomputed(Model):
    """Runs its blocks without gradients first, and again in the backward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x) + self.shift
        for block in self.blocks:
            hidden = checkpoint(block, hidden, use_reentrant=True)
        return self.head(hidden)


def test_trains_within_the_context() -> None:
    torch.manual_seed(0)
    model = Recomputed()
    plain = copy.deepcopy(model)
    engine, *_ = zero.initialize(model=model, config=config())
    x, y = data(torch.Generator().manual_seed(1))
    with zero.unwrap_model_for_generation(engine):
        generate(engine, 1 + RANK)
        loss = torch.nn.functional.cross_entropy(engine(x[RANK]).flatten(0, 1), y[RANK].flatten())
        engine.backward(loss)
    engine.step()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for rank in range(RANKS):
        loss = torch.nn.functional.cross_entropy(plain(x[rank]).flatten(0, 1), y[rank].flatten())
        (loss / RANKS).backward()
    optimizer.step()
    assert_equal_weights(model, plain, 1e-6)


def test_an_exception_leaves_all_params_sharded() -> None:
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=config())
    with pytest.raises(KeyError, match="in it"), zero.unwrap_model_for_generation(engine):
        generate(engine, 1)
        raise KeyError("in it")
    assert max(in_use(engine)) == 0
    with pytest.raises(meron.StateError, match="sharded"):
        model.shift.sum().item()
    train(engine, plain, torch.optim.SGD(plain.parameters(), lr=0.1), 2)
    assert_equal_weights(model, plain, 1e-6)


def test_detects_writes_to_params() -> None:
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=config())
    with (
        pytest.raises(meron.StateError, match="discarded"),
        zero.unwrap_model_for_generation(engine),
    ):
        model.shift.data = torch.ones(12)
    assert max(in_use(engine)) == 0
    assert torch.equal(generate(engine, 1), generate(plain, 1))


def test_accepts_unsharded_models_and_rejects_lists() -> None:
    plain = Model()
    with zero.unwrap_model_for_generation(plain) as same:
        assert same is plain
    with (
        pytest.raises(meron.ArgumentError, match="list"),
        zero.unwrap_model_for_generation([plain]),
    ):  # type: ignore
        pass


def test_gathers_params_together() -> None:
    model, plain = twins()
    engine, *_ = zero.initialize(model=model, config=config())
    params, expected = list(model.parameters()), list(plain.parameters())
    first: Any = params[0]
    handle = first.all_gather_coalesced(reversed(params) if RANK else params)
    handle.wait()
    handle.wait()
    assert all(map(torch.equal, params, expected))
    with pytest.raises(meron.StateError, match="gathered already"):
        first.all_gather_coalesced(params[:1])
    with torch.no_grad():
        first.mul_(2)
        expected[0].mul_(2)
    first.partition(params, has_been_updated=True)
    assert max(in_use(engine)) == 0
    with pytest.raises(meron.UnsupportedError, match="zero_quantized_weights"):
        first.all_gather_coalesced(params, quantize=True)
    with pytest.raises(TypeError, match="async_op"):
        first.all_gather_coalesced(params, async_op=True)
    first.all_gather_coalesced(params)  # without a wait
    engine_step(engine, [data(torch.Generator().manual_seed(2))])
    first.all_gather_coalesced(params[:2]).wait()
    first.partition(params[:2])


def test_any_operation_releases_a_gather_without_a_wait() -> None:
    """Ranks may drop the handle at different times."""
    for following in ("step", "forward", "gather", "again", "state", "late", "destroy"):
        model, _ = twins()
        engine = zero.initialize(model=model, config=config())[0]
        batch = data(torch.Generator().manual_seed(1))
        engine_step(engine, [batch])
        params = list(model.parameters())
        handle = params[0].all_gather_coalesced(params)  # type: ignore[attr-defined]
        if RANK == 0 and following != "late":
            del handle
            gc.collect()
        if following == "forward":
            model(batch[0][RANK])
        elif following == "gather":
            with zero.GatheredParameters(params):
                pass
        elif following == "again":
            params[0].all_gather_coalesced(params).wait()  # type: ignore[attr-defined]
            params[0].partition(params)  # type: ignore[attr-defined]
        elif following == "state":
            zero.full_state_dict(model)
        elif following == "late":
            engine_step(engine, [batch])
            handle.wait()
            params[0].partition(params)  # type: ignore[attr-defined]
        if following != "destroy":
            engine_step(engine, [batch])
            assert params[0].ds_status is zero.ZeroParamStatus.NOT_AVAILABLE  # type: ignore
        engine.destroy()
        mt.destroy(model)
