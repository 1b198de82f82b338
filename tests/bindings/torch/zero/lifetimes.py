# SPDX-License-Identifier: Apache-2.0
"""What engines leave behind, share and refuse. Cases of steps.py."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import meron
import meron.torch as mt
from meron import zero
from meron.zero import comm
from model import (
    RANK,
    RANKS,
    assert_equal_weights,
    batches_of,
    config,
    engine_step,
    plain_step,
    raises,
    sgd,
    twins,
)


def case_a_failed_initialize_can_be_repeated() -> None:
    model, plain = twins()
    wrong = config(optimizer={"type": "Adammm", "params": {}})
    for _ in range(2):
        with raises(meron.ArgumentError, "Adammm"):
            zero.initialize(model=model, config=wrong)
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(1)
    engine_step(engine, batches)
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)


def case_an_engine_after_another() -> None:
    model, plain = twins()
    batches = batches_of(2)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    settings = config(optimizer={"type": "AdamW", "params": {"lr": 0.01}})
    engine = zero.initialize(model=model, config=settings)[0]
    engine_step(engine, batches[:1])
    plain_step(plain, optimizer, batches[:1])
    engine.destroy()
    engine.destroy()  # again is nothing
    with raises(meron.StateError, "destroyed"):
        engine.step()
    engine = zero.initialize(model=model, config=settings)[0]
    engine_step(engine, batches[1:])
    # Its states are new.
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    plain_step(plain, optimizer, batches[1:])
    assert_equal_weights(model, plain, 1e-5)


def case_f32_values_outlive_an_engine() -> None:
    model, _ = twins()
    settings = config(bf16={"enabled": True}, optimizer={"type": "AdamW", "params": {"lr": 1e-4}})
    engine = zero.initialize(model=model, config=settings)[0]
    engine_step(engine, batches_of(1))
    before = zero.safe_get_full_fp32_param(model.embed.weight)
    assert not torch.equal(before, before.bfloat16().float())
    engine.destroy()
    again = zero.initialize(model=model, config=settings)[0]
    assert again.optimizer is not engine.optimizer
    assert torch.equal(before, zero.safe_get_full_fp32_param(model.embed.weight))


def case_keys_without_effect_are_told() -> None:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    lines: list[str] = []
    logger, handler = logging.getLogger("meron.zero"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    zero.initialize(model=nn.Linear(3, 3), config=config(prescale_gradients=True))
    logger.removeHandler(handler)
    assert len(lines) == (RANK == 0) and all("prescale_gradients" in line for line in lines)


def case_engines_share_nothing() -> None:
    shared = nn.Linear(3, 3)
    first, second = nn.Sequential(shared), nn.Sequential(shared, nn.Linear(3, 1))
    engine = zero.initialize(model=first, config=config())[0]
    with raises(meron.StateError, "0.weight"):
        zero.initialize(model=second, config=config())
    engine.destroy()
    zero.initialize(model=second, config=config())


def case_limits_are_of_all_engines_of_a_plan() -> None:
    def limited(elements: int) -> dict[str, Any]:
        return config(
            zero_optimization={"stage": 3, "stage3_prefetch_bucket_size": elements},
            communication_data_type="bf16",  # a plan of its own
        )

    first = zero.initialize(model=nn.Linear(3, 3), config=limited(10))[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zero.initialize(model=nn.Linear(3, 3), config=limited(10))
        assert not caught
        zero.initialize(model=nn.Linear(3, 3), config=limited(20))
    assert "prefetch_elements 10 -> 20" in str(caught[0].message)
    assert first.sharding.limits["prefetch_elements"] == 20


def case_sanity_checks_are_of_one_engine() -> None:
    settings = config(zero_optimization={"stage": 3, "enable_sanity_checks": True})
    checked = zero.initialize(model=nn.Linear(3, 5), config=settings)[0].module
    free = zero.initialize(model=nn.Linear(3, 5), config=config())[0].module
    refused = raises(meron.StateError, "changed in a GatheredParameters")
    with refused, zero.GatheredParameters([free.weight, checked.weight]):
        if RANK == RANKS - 1:
            checked.weight.data.add_(1.0)
    with zero.GatheredParameters([checked.bias, free.weight]), torch.no_grad():
        free.weight.add_(1.0)


def case_optimizers_and_schedulers_that_do_not_fit() -> None:
    def begin(**arguments: Any) -> None:
        model = arguments.pop("model", None) or nn.Linear(3, 3)
        zero.initialize(model=model, **{"config": config(), **arguments})

    other = nn.Linear(3, 3)
    stray = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(other.parameters(), lr=0.1), 1)
    with raises(meron.ArgumentError, "another optimizer"):
        begin(lr_scheduler=stray)
    for block in ({"scheduler": {"type": "WarmupLR"}}, {}):
        given = {} if block else {"lr_scheduler": lambda optimizer: None}
        with raises(meron.ArgumentError, "no optimizer"):
            begin(config={"zero_optimization": {"stage": 3}, **block}, **given)
    with raises(meron.ArgumentError, "no trainable params"):
        begin(model=nn.Linear(3, 3).requires_grad_(False))
    with raises(meron.ArgumentError, "torch.optim.Optimizer"):
        begin(optimizer=3)
    with raises(meron.ArgumentError, "torch.optim.Optimizer"):
        begin(optimizer=lambda params: None)
    own = mt.shard(nn.Linear(3, 3))
    with raises(meron.ArgumentError, "max_norm"):
        begin(model=own, optimizer=mt.AdamW(own), config=config(gradient_clipping=0.5))
    foreign = mt.AdamW(mt.shard(nn.Linear(3, 3)))
    with raises(meron.ArgumentError, "another model"):
        begin(optimizer=foreign)


def case_the_engine_is_the_models_face() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    engine = zero.initialize(model=model, config=config())[0]
    seen: list[nn.Module] = []
    assert engine.apply(seen.append) is engine
    assert seen == [model[0], model]
    alone = zero.initialize(model=nn.Linear(3, 3), config=config())[0]
    with raises(meron.StateError, "cannot be moved"):
        alone.to(torch.bfloat16)
    with raises(meron.UnsupportedError, "schedule"):
        engine.compile(schedule=[(0, [])])
    expected = engine(torch.ones(2, 3))
    engine.compile(backend="eager")
    assert engine.is_compiled and torch.equal(engine(torch.ones(2, 3)), expected)
    os.environ["LOCAL_RANK"] = "7"
    assert engine.local_rank == comm.get_local_rank() == 7
    del os.environ["LOCAL_RANK"]
    assert engine.local_rank == RANK


def case_saved_weights() -> None:
    model, _ = twins()
    model.blocks[0].requires_grad_(False)
    engine = zero.initialize(model=model, config=config())[0]
    engine_step(engine, batches_of(1))
    expected = engine.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        engine.save_16bit_model(folder)
        engine.save_16bit_model(folder, "part.bin", exclude_frozen_parameters=True)
        if RANK == 0:
            whole = torch.load(Path(folder, "pytorch_model.bin"))
            assert whole.keys() == expected.keys()
            assert all(torch.equal(whole[name], expected[name]) for name in whole)
            part = torch.load(Path(folder, "part.bin"))
            missing = expected.keys() - part.keys()
            assert missing == {name for name in expected if name.startswith("blocks.0.")}
    assert engine.module_state_dict(exclude_frozen_parameters=True).keys() == (
        expected.keys() - {name for name in expected if name.startswith("blocks.0.")}
    )
