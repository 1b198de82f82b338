# SPDX-License-Identifier: Apache-2.0
"""A second engine of a model replaces the first, or evaluates beside it."""

from __future__ import annotations

import gc
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    loss_of,
    on_device,
    plain_step,
    sgd,
    twins,
)

pytestmark = [pytest.mark.ranks(1, 2), on_device(1)]

STAGES = [(0, 0), (0, 2), (1, 3), (2, 1), (3, 0), (3, 3)]
BF16 = {"bf16": {"enabled": True}}
ADAM = {"optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}


def evaluating(stage: int = 3, **others: Any) -> dict[str, Any]:
    settings = config(stage, **others)
    del settings["optimizer"]
    return settings


def adam(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)


def refuse(_given: Any) -> Any:
    raise RuntimeError("mine")


@pytest.mark.parametrize(("first", "second"), STAGES)
def test_trains_a_model_that_was_evaluated(first: int, second: int) -> None:
    model, plain = twins()
    x, y = batches_of(1)[0]
    judge = zero.initialize(model=model, config=evaluating(first))[0]
    judge.eval()
    with torch.no_grad():
        before = loss_of(judge, x[RANK], y[RANK])
    engine = zero.initialize(model=model, config=config(second, **ADAM))[0]
    assert engine.zero_optimization_stage() == second
    own = adam(plain)
    for batch in batches_of(2):
        engine_step(engine, [batch])
        plain_step(plain, own, [batch])
    assert_equal_weights(model, plain, 1e-5)
    with torch.no_grad():
        assert not torch.equal(before, loss_of(judge, x[RANK], y[RANK]))


@pytest.mark.parametrize(("first", "second"), STAGES)
@pytest.mark.parametrize("client", [False, True])
def test_trains_a_model_that_was_trained(first: int, second: int, client: bool) -> None:
    model, plain = twins()
    engines = []
    for stage in (first, second):
        settings = evaluating(stage) if client else config(stage, **ADAM)
        optimizer = adam(model) if client else None
        engine = zero.initialize(model=model, config=settings, optimizer=optimizer)[0]
        own = adam(plain)
        for batch in batches_of(2, stage):
            engine_step(engine, [batch])
            plain_step(plain, own, [batch])
        engines.append(engine)
    assert_equal_weights(model, plain, 1e-5)
    old, new = engines
    x, y = batches_of(1)[0]
    loss = loss_of(old, x[RANK], y[RANK])
    calls: list[Callable[[], Any]] = [
        lambda: old.backward(loss),
        old.step,
        lambda: old.save_checkpoint("nowhere"),
        lambda: old.set_train_batch_size(2 * RANKS),
        lambda: old.optimizer.backward(loss),
    ]
    for call in calls:
        with pytest.raises(meron.StateError, match="replaced: initialize made another engine"):
            call()
    with pytest.raises(meron.StateError, match=r"this AdamW was (replaced|released)"):
        old.optimizer.step()
    old.destroy()
    new.backward(loss_of(new, x[RANK], y[RANK]))
    old.zero_grad()  # no effect
    new.step()
    assert new.was_step_applied() and new.global_steps == 3


@pytest.mark.parametrize(("stage", "other"), [(1, 1), (2, 3), (3, 3), (3, 0)])
def test_evaluates_beside_the_engine_that_trains(stage: int, other: int) -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(stage, **ADAM))[0]
    own = adam(plain)
    for number, batch in enumerate(batches_of(3)):
        judge = zero.initialize(model=model, config=evaluating(other))[0]
        judge.eval()
        with torch.no_grad():
            loss_of(judge, batch[0][RANK], batch[1][RANK])
        model.train()
        with pytest.raises(meron.StateError, match="no optimizer"):
            judge.backward(0 * loss_of(judge, batch[0][RANK], batch[1][RANK]))
            judge.step()
        engine.zero_grad()
        engine_step(engine, [batch])
        plain_step(plain, own, [batch])
        if number == 1:
            judge.destroy()
    assert_equal_weights(model, plain, 1e-5)
    assert engine.global_steps == 3


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_failed_initialize_leaves_the_engine_as_it_was(stage: int) -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config(stage, **ADAM))[0]
    own = adam(plain)
    wrong: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"optimizer": {"type": "Adammm"}}, {}),
        ({"scheduler": {"type": "WarmUp"}}, {}),
        ({"train_batch_size": 5}, {}),
        ({}, {"modle": model}),
    ]
    if "MERON_TORCH_DEVICE" not in os.environ:  # there a step of torch's needs another plan
        wrong.append(({}, {"optimizer": refuse}))
    for batch in batches_of(2):
        for changes, arguments in wrong:
            with pytest.raises((meron.Error, RuntimeError, TypeError)):
                zero.initialize(model=model, config=config(stage, **changes), **arguments)
        engine_step(engine, [batch])
        plain_step(plain, own, [batch])
    assert_equal_weights(model, plain, 1e-5)


def test_keeps_f32_values_of_16_bit_params() -> None:
    for stage, other in ((2, 2), (3, 3), (1, 3)):
        model, _ = twins()
        first = zero.initialize(model=model, config=config(stage, **BF16, **ADAM))[0]
        engine_step(first, batches_of(1))
        before = zero.safe_get_full_fp32_param(model.embed.weight)
        assert before is not None and not torch.equal(before, before.bfloat16().float())
        second = zero.initialize(model=model, config=config(other, **BF16, **ADAM))[0]
        after = zero.safe_get_full_fp32_param(model.embed.weight)
        assert after is not None and torch.equal(before, after), (stage, other)
        engine_step(second, batches_of(1))


@pytest.mark.parametrize("other", [2, 3])
def test_takes_over_states_that_were_offloaded(other: int, tmp_path: Path) -> None:
    if "MERON_TORCH_DEVICE" in os.environ:
        return  # states on a device are not offloaded
    model, _ = twins()
    first = zero.initialize(model=model, config=config(2, **BF16, **ADAM))[0]
    engine_step(first, batches_of(1))
    before = zero.safe_get_full_fp32_param(model.embed.weight)
    first.offload_states(device="nvme", nvme_path=str(tmp_path))
    second = zero.initialize(model=model, config=config(other, **BF16, **ADAM))[0]
    after = zero.safe_get_full_fp32_param(model.embed.weight)
    assert before is not None and after is not None and torch.equal(before, after)
    engine_step(second, batches_of(1))


def test_takes_another_dtype() -> None:
    model, plain = twins()
    judge = zero.initialize(model=model, config=evaluating(2, **BF16))[0]
    engine = zero.initialize(model=model, config=config(2))[0]
    assert model.embed.weight.dtype is torch.float32
    engine_step(engine, batches_of(1))
    plain_step(plain, sgd(plain), batches_of(1))
    assert_equal_weights(model, plain, 1e-5)
    assert judge.bfloat16_enabled()


def test_trains_params_that_were_frozen_then() -> None:
    model, plain = twins()
    model.embed.weight.requires_grad_(False)
    zero.initialize(model=model, config=evaluating(3))
    model.embed.weight.requires_grad_(True)
    engine = zero.initialize(model=model, config=config(3))[0]
    engine_step(engine, batches_of(1))
    plain_step(plain, sgd(plain), batches_of(1))
    assert_equal_weights(model, plain, 1e-5)


def test_takes_the_same_optimizer_again() -> None:
    for stage in (1, 3):
        model, plain = twins()
        optimizer, own = adam(model), adam(plain)
        for batch in batches_of(2):
            engine = zero.initialize(model=model, config=evaluating(stage), optimizer=optimizer)[0]
            engine_step(engine, [batch])
            plain_step(plain, own, [batch])
        assert_equal_weights(model, plain, 1e-5)
        with pytest.raises(meron.StateError, match="steps shards of the last engine"):
            zero.initialize(model=model, config=evaluating(2), optimizer=optimizer)
        engine_step(engine, batches_of(1))
        assert engine.global_steps == 2


def test_drops_gradients_of_the_replaced_engine() -> None:
    lines: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("meron.zero").addHandler(handler)
    for stage in (0, 2, 3):
        model, plain = twins()
        settings = config(stage, gradient_accumulation_steps=2)
        old = zero.initialize(model=model, config=settings)[0]
        left, batch = batches_of(2)
        engine_step(old, [left])
        engine = zero.initialize(model=model, config=config(stage))[0]
        assert "that no step has used are dropped" in lines.pop() and not lines
        engine_step(engine, [batch])
        plain_step(plain, sgd(plain), [batch])
        assert_equal_weights(model, plain, 1e-5)


def test_an_engine_of_a_model_around_replaces_that_of_the_part() -> None:
    class Around(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner
            self.out = nn.Linear(19, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.inner(x))

    for stage, other in ((3, 3), (2, 3)):
        model, _ = twins()
        part = zero.initialize(model=model, config=evaluating(stage))[0]
        around = Around(model)
        engine = zero.initialize(model=around, config=config(other))[0]
        before = zero.safe_get_full_fp32_param(model.shift)
        engine.backward(engine(batches_of(1)[0][0][RANK]).sum())
        engine.step()
        after = zero.safe_get_full_fp32_param(model.shift)
        assert before is not None and after is not None and not torch.equal(before, after)
        with pytest.raises(meron.StateError, match=re.escape("shift of Model belongs")):
            zero.initialize(model=model, config=config(other))
        with pytest.raises(meron.StateError, match="replaced"):
            part.backward(torch.ones(()))


def test_is_refused_while_the_model_is_in_use() -> None:
    for stage in (1, 3):
        model, _ = twins()
        engine = zero.initialize(model=model, config=config(stage))[0]
        for _ in range(2):
            refused = pytest.raises(meron.StateError, match=r"'.*' is gathered")
            with zero.GatheredParameters(model.parameters()), refused:
                zero.initialize(model=model, config=config(stage))
        with pytest.raises(meron.StateError, match="was passed"):
            zero.initialize(model=engine, config=config(stage))
        engine_step(engine, batches_of(1))


def test_actor_and_critic_have_engines_of_their_own() -> None:
    models = [twins(size=12 + 4 * number) for number in range(2)]
    engines = [zero.initialize(model=model, config=config(3))[0] for model, _ in models]
    for batch in batches_of(2):
        for engine, (_, plain) in zip(engines, models):
            engine_step(engine, [batch])
            plain_step(plain, sgd(plain), [batch])
    for model, plain in models:
        assert_equal_weights(model, plain, 1e-5)


def test_an_engine_that_is_gone_is_in_nobodys_way() -> None:
    model, plain = twins()
    for stage in (2, 3, 0):
        settings = config(stage)
        engine = zero.initialize(model=model, config=settings)[0]
        own = sgd(plain)
        engine_step(engine, batches_of(1, stage))
        plain_step(plain, own, batches_of(1, stage))
        if stage == 2:
            engine.destroy()
        del engine
        gc.collect()
    assert_equal_weights(model, plain, 1e-5)


def test_evaluates_with_a_scheduler_and_no_optimizer() -> None:
    schedule = {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}
    for stage in range(4):
        model = Model()
        found = zero.initialize(model=model, config=evaluating(stage, scheduler=schedule))
        assert found[1] is None and found[3] is None
        with torch.no_grad():
            found[0](batches_of(1)[0][0][RANK])
        with pytest.raises(meron.ArgumentError, match="unknown scheduler"):
            zero.initialize(model=Model(), config=evaluating(stage, scheduler={"type": "Warm"}))
        with pytest.raises(meron.ArgumentError, match="no optimizer for it"):
            zero.initialize(model=Model(), config=evaluating(stage), lr_scheduler=refuse)
