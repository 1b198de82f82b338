# SPDX-License-Identifier: Apache-2.0
"""Several engines: one after another, and side by side."""

from __future__ import annotations

import gc
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
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
    on_device,
    plain_step,
    sgd,
    twins,
)

pytestmark = [pytest.mark.ranks(1, 3), on_device(1)]


def test_initialize_succeeds_after_a_failure() -> None:
    model, plain = twins()
    wrong = config(optimizer={"type": "Adammm", "params": {}})
    for _ in range(2):
        with pytest.raises(meron.ArgumentError, match="Adammm"):
            zero.initialize(model=model, config=wrong)
    engine = zero.initialize(model=model, config=config())[0]
    batches = batches_of(1)
    engine_step(engine, batches)
    plain_step(plain, sgd(plain), batches)
    assert_equal_weights(model, plain, 1e-6)


def test_trains_again_after_destroy() -> None:
    model, plain = twins()
    batches = batches_of(2)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    settings = config(optimizer={"type": "AdamW", "params": {"lr": 0.01}})
    engine = zero.initialize(model=model, config=settings)[0]
    engine_step(engine, batches[:1])
    plain_step(plain, optimizer, batches[:1])
    engine.destroy()
    engine.destroy()  # has no effect
    with pytest.raises(meron.StateError, match="destroyed"):
        engine.step()
    engine = zero.initialize(model=model, config=settings)[0]
    engine_step(engine, batches[1:])
    # The new engine has new states.
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    plain_step(plain, optimizer, batches[1:])
    assert_equal_weights(model, plain, 1e-5)


def test_f32_values_outlive_an_engine() -> None:
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


def test_logs_keys_without_effect() -> None:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    lines: list[str] = []
    logger, handler = logging.getLogger("meron.zero"), Keep()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    zero.initialize(model=nn.Linear(3, 3), config=config(prescale_gradients=True))
    logger.removeHandler(handler)
    found = [line for line in lines if "without effect" in line]
    assert len(found) == (RANK == 0) and all("prescale_gradients" in line for line in found)
    assert bool(lines) == (RANK == 0)


def test_engines_cannot_share_params() -> None:
    shared = nn.Linear(3, 3)
    first = nn.Sequential(shared, nn.Linear(3, 2))
    second = nn.Sequential(shared, nn.Linear(3, 1))
    engine = zero.initialize(model=first, config=config())[0]
    with pytest.raises(meron.StateError, match=re.escape("0.weight")):
        zero.initialize(model=second, config=config())
    engine.destroy()
    zero.initialize(model=second, config=config())


def test_engines_of_a_plan_share_limits() -> None:
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


def test_a_model_that_is_gone_on_one_rank_only_is_in_nobodys_way() -> None:
    def engine_of(elements: int) -> Any:
        settings = config(
            zero_optimization={"stage": 3, "stage3_prefetch_bucket_size": elements},
            communication_data_type="fp16",  # a plan of its own
        )
        return zero.initialize(model=nn.Linear(3, 3), config=settings)[0]

    kept = engine_of(10) if RANK == 0 else None
    if RANK != 0:
        engine_of(10)
        gc.collect()
    engine_of(10)  # looks for models that are gone
    assert engine_of(20).sharding.limits["prefetch_elements"] == 20
    del kept


def test_each_engine_has_its_own_sanity_checks() -> None:
    settings = config(zero_optimization={"stage": 3, "enable_sanity_checks": True})
    checked = zero.initialize(model=nn.Linear(3, 5), config=settings)[0].module
    free = zero.initialize(model=nn.Linear(3, 5), config=config())[0].module
    refused = pytest.raises(meron.StateError, match="changed in a GatheredParameters")
    with refused, zero.GatheredParameters([free.weight, checked.weight]):
        if RANK == RANKS - 1:
            checked.weight.data.add_(1.0)
    with zero.GatheredParameters([checked.bias, free.weight]), torch.no_grad():
        free.weight.add_(1.0)


def test_rejects_optimizers_and_schedulers_that_do_not_fit() -> None:
    def begin(**arguments: Any) -> None:
        model = arguments.pop("model", None) or nn.Linear(3, 3)
        zero.initialize(model=model, **{"config": config(), **arguments})

    other = nn.Linear(3, 3)
    stray = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(other.parameters(), lr=0.1), 1)
    with pytest.raises(meron.ArgumentError, match="another optimizer"):
        begin(lr_scheduler=stray)
    with pytest.raises(meron.ArgumentError, match="no optimizer"):
        begin(config={"zero_optimization": {"stage": 3}}, lr_scheduler=lambda optimizer: None)
    with pytest.raises(meron.ArgumentError, match="no trainable params"):
        begin(model=nn.Linear(3, 3).requires_grad_(False))
    with pytest.raises(meron.ArgumentError, match=re.escape("torch.optim.Optimizer")):
        begin(optimizer=3)
    with pytest.raises(meron.ArgumentError, match=re.escape("torch.optim.Optimizer")):
        begin(optimizer=lambda params: None)
    own = mt.shard(nn.Linear(3, 3))
    with pytest.raises(meron.ArgumentError, match="max_norm"):
        begin(model=own, optimizer=mt.AdamW(own), config=config(gradient_clipping=0.5))
    foreign = mt.AdamW(mt.shard(nn.Linear(3, 3)))
    with pytest.raises(meron.ArgumentError, match="another model"):
        begin(optimizer=foreign)


def test_forwards_module_methods_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    engine = zero.initialize(model=model, config=config())[0]
    seen: list[nn.Module] = []
    assert engine.apply(seen.append) is engine
    assert seen == [model[0], model]
    alone = zero.initialize(model=nn.Linear(3, 3), config=config())[0]
    with pytest.raises(meron.StateError, match="cannot be moved"):
        alone.to(torch.bfloat16)
    with pytest.raises(meron.UnsupportedError, match="schedule"):
        engine.compile(schedule=[(0, [])])
    expected = engine(torch.ones(2, 3))
    engine.compile(backend="eager")
    assert engine.is_compiled and torch.equal(engine(torch.ones(2, 3)), expected)
    monkeypatch.setenv("LOCAL_RANK", "7")
    monkeypatch.setenv("MERON_LOCAL_RANK", "5")
    assert engine.local_rank == comm.get_local_rank() == 5
    monkeypatch.delenv("MERON_LOCAL_RANK")
    assert engine.local_rank == comm.get_local_rank() == 7
    monkeypatch.delenv("LOCAL_RANK")
    assert engine.local_rank == RANK


def test_saves_16_bit_weights(tmp_path: Path) -> None:
    model, _ = twins()
    model.blocks[0].requires_grad_(False)
    engine = zero.initialize(model=model, config=config())[0]
    engine_step(engine, batches_of(1))
    expected = zero.full_state_dict(engine)
    engine.save_16bit_model(tmp_path)
    engine.save_16bit_model(tmp_path, "part.bin", exclude_frozen_parameters=True)
    if RANK == 0:
        whole = torch.load(tmp_path / "pytorch_model.bin")
        assert whole.keys() == expected.keys()
        assert all(torch.equal(whole[name], expected[name]) for name in whole)
        part = torch.load(tmp_path / "part.bin")
        missing = expected.keys() - part.keys()
        assert missing == {name for name in expected if name.startswith("blocks.0.")}
    assert engine.module_state_dict(exclude_frozen_parameters=True).keys() == (
        expected.keys() - {name for name in expected if name.startswith("blocks.0.")}
    )
