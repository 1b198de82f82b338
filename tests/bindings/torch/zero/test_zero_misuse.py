# SPDX-License-Identifier: Apache-2.0
"""Misuse of an engine: each rank reports the error, and training continues."""

from __future__ import annotations

import functools
import gc
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.torch import checkpoint
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    loss_of,
    plain_step,
    twins,
)

pytestmark = pytest.mark.ranks(2)

FP16 = {"enabled": True, "initial_scale_power": 8, "hysteresis": 1}


def refuse(_given: Any) -> Any:
    raise RuntimeError("mine")


def test_accepts_another_stage_after_a_rejected_config() -> None:
    """initialize checks all of a config before it shards the model."""
    foreign = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    stray = torch.optim.lr_scheduler.StepLR(foreign, 1)
    adam = {"type": "AdamW", "params": {"lr": -1.0}}
    wrong: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"optimizer": {"type": "Adammm"}}, {}, "Adammm"),
        ({"optimizer": {"type": "Adam", "params": {"lrr": 1}}}, {}, "did you mean lr"),
        ({"optimizer": adam}, {}, "-1.0"),
        ({"scheduler": {"type": "WarmUp"}}, {}, "unknown scheduler"),
        ({"scheduler": {"type": "WarmupLR", "params": {"steps": 1}}}, {}, "steps"),
        ({"scheduler": {"type": "StepLR", "params": {}}}, {}, "step_size"),
        ({"optimizer": None, "scheduler": {"type": "WarmUp"}}, {}, "unknown scheduler"),
        ({"optimizer": None}, {"lr_scheduler": refuse}, "no optimizer"),
        ({}, {"lr_scheduler": stray}, "another optimizer"),
        ({}, {"optimizer": 3}, "torch.optim.Optimizer"),
        ({"bf16": {"enabled": True}, "fp16": {"enabled": True}}, {}, "both enabled"),
        ({"train_batch_size": 5}, {}, "train_batch_size"),
    ]
    model, plain = twins()
    for changes, arguments, text in wrong:
        settings = {key: value for key, value in {**config(1), **changes}.items() if value}
        with pytest.raises(meron.ArgumentError, match=re.escape(text)):
            zero.initialize(model=model, config=settings, **arguments)
    engine = zero.initialize(model=model, config=config(3))[0]
    batches = batches_of(1)
    engine_step(engine, batches)
    plain_step(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    assert_equal_weights(model, plain, 1e-6)


def test_initializes_after_a_callers_function_failed() -> None:
    """The function runs after the model is sharded, so the stage must stay the same."""
    model, _ = twins()
    for arguments in ({"optimizer": refuse}, {"lr_scheduler": refuse}):
        with pytest.raises(RuntimeError, match="mine"):
            zero.initialize(model=model, config=config(2), **arguments)
    engine = zero.initialize(model=model, config=config(2), optimizer=torch.optim.SGD)[0]
    engine_step(engine, batches_of(1))
    assert engine.was_step_applied()


def test_names_the_rank_whose_loss_is_not_scaled() -> None:
    for stage in (1, 2, 3):
        model, _ = twins()
        settings = config(stage, fp16=FP16, gradient_accumulation_steps=2)
        engine = zero.initialize(model=model, config=settings)[0]
        first, second = batches_of(2)
        engine_step(engine, [first, second])
        before = zero.safe_get_full_fp32_param(model.shift).clone()
        loss = loss_of(engine, first[0][RANK], first[1][RANK])
        if RANK == RANKS - 1:
            loss.backward()
        else:
            engine.backward(loss)
        caught: list[meron.StateError] = []
        try:
            engine.step()
            engine_step(engine, [second])
        except meron.StateError as error:
            caught.append(error)
        assert len(caught) == 1 and f"not scaled on rank {RANKS - 1}" in str(caught[0])
        assert torch.equal(before, zero.safe_get_full_fp32_param(model.shift))
        engine_step(engine, [first, second])
        assert engine.was_step_applied() and engine.global_steps == 2


def test_one_backward_serves_two_optimizers() -> None:
    for stage in (1, 2, 3):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        settings = config(stage, fp16={"enabled": True, "loss_scale": 256})
        del settings["optimizer"]
        engine = zero.initialize(model=model, config=settings)[0]
        both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
        units = [list(mt.shard_optimizer(model, each)._meron_shards.units()) for each in both]
        before = zero.full_state_dict(model)
        engine.scale(engine(torch.ones(2, 4).half()).float().mean()).backward()
        for each, own in zip(both, units):
            engine.step_units(each, own)
        after = zero.full_state_dict(model)
        assert not any(torch.equal(before[name], after[name]) for name in before)
        engine(torch.ones(2, 4).half()).float().mean().backward()
        with pytest.raises(meron.StateError, match="not scaled"):
            engine.step_units(both[0], units[0])


def test_several_optimizers_reject_a_dynamic_loss_scale() -> None:
    """The step of one would change the scale of gradients that the other has yet to use."""
    for named in (False, True):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        both = [torch.optim.SGD(part.parameters(), lr=0.1) for part in model]
        settings = config(2, fp16=FP16)
        del settings["optimizer"]
        own = {"optimizer": both[0]} if named else {}
        engine = zero.initialize(model=model, config=settings, **own)[0]
        for each in both[1:] if named else both:
            mt.shard_optimizer(model, each)
        engine.scale(engine(torch.ones(2, 4).half()).float().mean()).backward()
        for each in both[1:] if named else both:
            with pytest.raises(meron.UnsupportedError, match=re.escape("fp16.loss_scale")):
                engine.step_units(each, list(each._meron_shards.units()))
        if named:  # a single optimizer may have some of the params
            engine.step_units(both[0], list(both[0]._meron_shards.units()))
            assert engine.was_step_applied()
        engine.zero_grad()


def test_keep_vars_returns_the_params_themselves() -> None:
    """As in torch: attributes of params are kept, and nothing is gathered."""
    for stage in (1, 3):
        model, _ = twins()
        model.shift.requires_grad_(False)
        model.shift.mine = "flag"  # type: ignore[attr-defined]
        zero.initialize(model=model, config=config(stage))
        if RANK == 0:  # the call is local
            state = model.state_dict(keep_vars=True)
            assert all(state[name] is param for name, param in model.named_parameters())
            assert state["shift"].mine == "flag" and not state["shift"].requires_grad
            assert state["shift"].ds_shape == (12,) and state["shift"].ds_numel == 12
            assert hasattr(state["shift"], "ds_id") and hasattr(state["shift"], "ds_status")
        plain = zero.full_state_dict(model)
        assert not hasattr(plain["shift"], "ds_id") and plain["embed.weight"].shape == (19, 12)


def test_loads_values_beside_another_models_empty_accumulation(tmp_path: Path) -> None:
    """No loss uses the output of the other model."""
    student, other = mt.shard(Model()), mt.shard(Model())
    optimizer = mt.AdamW(student, lr=0.1)
    mt.AdamW(other, lr=0.1)
    x, y = batches_of(1)[0]

    def begin() -> None:
        other(x[RANK])
        loss_of(student, x[RANK], y[RANK]).backward()

    begin()
    optimizer.step()
    begin()
    states = checkpoint.get_optimizer_state_dict(student, optimizer)
    checkpoint.set_optimizer_state_dict(student, optimizer, states)
    begin()
    optimizer.step()
    mt.save_pretrained(student, tmp_path)
    begin()
    mt.load_pretrained(student, tmp_path)
    begin()
    optimizer.step()


def test_frees_dropped_engines() -> None:
    """A teacher and a student train in turn; new engines reuse the memory of dropped ones."""
    teacher = zero.initialize(model=twins()[0], config=config())[0]
    student = zero.initialize(model=twins()[0], config=config())[0]
    x, y = batches_of(1)[0]
    for _ in range(2):
        with torch.no_grad():
            wanted = teacher(x[RANK])
        student.backward(
            (student(x[RANK]) - wanted).square().sum() + loss_of(student, x[RANK], y[RANK])
        )
        student.step()
    sharding = student.sharding
    units = 2 * len(student.units)  # of the two models that exist
    gone = [weakref.ref(teacher), weakref.ref(teacher.module), weakref.ref(teacher.optimizer)]
    del teacher
    gc.collect()
    assert all(reference() is None for reference in gone)
    for _ in range(3):  # each replaces the one before
        again = zero.initialize(model=twins()[0], config=config())[0]
        engine_step(again, [(x, y)])
        assert len(sharding.units) == units
        del again
        gc.collect()
    engine_step(student, [(x, y)])


def test_trains_from_another_thread() -> None:
    model, plain = twins()
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(2)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for batch in batches:
                engine_step(engine, [batch])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in batches:
        plain_step(plain, optimizer, [batch])
    assert_equal_weights(model, plain, 1e-6)


def test_rejects_calls_in_a_wrong_order() -> None:
    model, _ = twins()
    engine = zero.initialize(model=model, config=config(gradient_accumulation_steps=2))[0]
    x, y = batches_of(1)[0]
    loss: Callable[[], Any] = functools.partial(loss_of, engine, x[RANK], y[RANK])
    assert engine.get_global_grad_norm() is None
    with pytest.raises(meron.StateError, match="has an engine already"):
        zero.initialize(model=engine, config=config())
    with pytest.raises(TypeError, match="modle"):
        zero.initialize(modle=model, config=config())  # type: ignore[call-arg]
    with pytest.raises(meron.StateError, match="without a backward"):
        engine.step()
    engine.backward(loss())
    with pytest.raises(meron.StateError, match="ran already"):
        engine.backward(loss())
    with pytest.raises(meron.StateError, match="micro-batch"):
        engine.set_train_batch_size(8 * RANKS)
    assert not engine.is_gradient_accumulation_boundary()
    engine.step()
    assert engine.is_gradient_accumulation_boundary() and engine.get_global_grad_norm() is None
    with engine.no_sync():
        with pytest.raises(meron.StateError, match="inside no_sync"):
            engine.step()
        with pytest.raises(meron.StateError, match="within no_sync"), engine.no_sync():
            pass
    engine.backward(loss())
    engine.step()
    assert engine.get_global_grad_norm() > 0
    for wrong in (0, "4", 2.0, True):
        with pytest.raises(meron.ArgumentError, match="train_batch_size"):
            engine.set_train_batch_size(wrong)
        with pytest.raises(meron.ArgumentError, match="micro_batch_size"):
            engine.set_train_micro_batch_size(wrong)
    engine.set_train_batch_size(2 * RANKS)
    assert engine.gradient_accumulation_steps() == 1
    with pytest.raises(meron.StateError, match="cannot be deleted"):
        del engine.module
    engine_step(engine, [(x, y)])
    engine.destroy()
    engine.destroy()
    for call in (engine.step, functools.partial(engine.backward, loss().detach())):
        with pytest.raises(meron.StateError, match="was destroyed"):
            call()
