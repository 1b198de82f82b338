# SPDX-License-Identifier: Apache-2.0
"""The optimizers of a config, with groups and schedulers, beside those of torch."""

from __future__ import annotations

import copy
import gc
import math
import re
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
import meron.zero.compat as deepspeed
from meron import zero
from model import (
    RANK,
    RANKS,
    Model,
    assert_equal_weights,
    config,
    data,
    engine_step,
    loss_of,
    plain_step,
    train,
    twins,
)

pytestmark = pytest.mark.ranks(1, 2, 3)

Lion = deepspeed.ops.lion.FusedLion
# The config's type and params, the engine's optimizer, and torch's with its options.
RULES: tuple[tuple[str, dict[str, Any], Any, Any, dict[str, Any]], ...] = (
    ("AdamW", {"lr": 0.01}, mt.AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.0}),
    (
        "Adam",
        {"lr": 0.01, "betas": [0.8, 0.9], "weight_decay": 0.1},
        mt.AdamW,
        torch.optim.AdamW,
        {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1},
    ),
    (
        "Adam",
        {"lr": 0.01, "adam_w_mode": False, "weight_decay": 0.1},
        mt.Adam,
        torch.optim.Adam,
        {"lr": 0.01, "weight_decay": 0.1},
    ),
    (
        "AdamW",
        {"lr": 0.01, "adam_w_mode": False, "weight_decay": 0.1, "bias_correction": True},
        mt.AdamW,
        torch.optim.AdamW,
        {"lr": 0.01, "weight_decay": 0.1},
    ),
    ("FusedAdam", {}, mt.AdamW, torch.optim.AdamW, {"weight_decay": 0.0}),
    (
        "DeepSpeedCPUAdam",
        {"lr": 0.01},
        mt.AdamW,
        torch.optim.AdamW,
        {"lr": 0.01, "weight_decay": 0},
    ),
    ("Adagrad", {"lr": 0.1, "amsgrad": False}, mt.Adagrad, torch.optim.Adagrad, {"lr": 0.1}),
    ("DeepSpeedCPUAdagrad", {}, mt.Adagrad, torch.optim.Adagrad, {}),
    ("Lion", {"weight_decay": 0.1}, mt.Lion, Lion, {"weight_decay": 0.1}),
    ("FusedLion", {"lr": 0.002}, mt.Lion, Lion, {"lr": 0.002}),
    ("DeepSpeedCPULion", {}, mt.Lion, deepspeed.ops.lion.DeepSpeedCPULion, {}),
    ("SGD", {"lr": 0.1}, mt.SGD, torch.optim.SGD, {"lr": 0.1}),
    (
        "sgd",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        mt.SGD,
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
)


def block_of(kind: str, params: dict[str, Any], **others: Any) -> dict[str, Any]:
    return config(optimizer={"type": kind, "params": params}, **others)


def groups_of(model: nn.Module, **second: Any) -> list[dict[str, Any]]:
    wide = [param for param in model.parameters() if param.dim() > 1]
    rest = [param for param in model.parameters() if param.dim() <= 1]
    return [{"params": wide}, {"params": iter(rest), **second}]


def assert_near(engine: Any, plain: nn.Module, kind: str) -> None:
    if "lion" in kind.lower():  # it uses the sign of a sum, which rounding may flip
        close = total = 0
        for param, expected in zip(engine.module.parameters(), plain.parameters(), strict=True):
            value = zero.safe_get_full_fp32_param(param)
            close += int(((value - expected).abs() < 1e-5).sum())
            total += value.numel()
        assert close >= 0.98 * total, (kind, close, total)
    else:
        assert_equal_weights(engine.module, plain, 1e-5)


def test_each_type_uses_the_engines_rule() -> None:
    for kind, params, rule, torchs, options in RULES:
        model, plain = twins()
        engine, optimizer, _, _ = zero.initialize(model=model, config=block_of(kind, params))
        assert rule in type(optimizer).__bases__, kind
        twin = torchs(plain.parameters(), **options)
        for key, value in optimizer.param_groups[0].items():
            if key in twin.param_groups[0] and key != "params":
                expected = twin.param_groups[0][key]
                assert (tuple(value) if key == "betas" else value) == expected, (kind, key)
        train(engine, plain, twin, 10)
        assert_near(engine, plain, kind)


def test_trains_groups_with_schedulers() -> None:
    blocks = (
        {"type": "WarmupLR", "params": {"warmup_max_lr": [0.02, 0.01], "warmup_num_steps": 6}},
        {"type": "WarmupCosineLR", "params": {"total_num_steps": 12, "warmup_num_steps": 3}},
        {"type": "LambdaLR", "params": {"lr_lambda": [math.exp, lambda step: 1 / (1 + step)]}},
    )
    for kind, params, rule, torchs, options in RULES:
        for block in blocks[:1] if params else blocks[1:2]:
            second = {"lr": 0.003, "weight_decay": 0.05}
            model, plain = twins()
            engine, optimizer, _, scheduler = zero.initialize(
                model=model,
                model_parameters=groups_of(model, **second),
                config=block_of(kind, params, scheduler=block, gradient_clipping=0.5),
            )
            assert rule in type(optimizer).__bases__ and optimizer.engine.groups == 2
            twin = torchs(groups_of(plain, **second), **options)
            other = zero.schedulers.make_scheduler(twin, block["type"], block["params"])
            generator = torch.Generator().manual_seed(1)
            for _ in range(10):
                batches = [data(generator)]
                engine_step(engine, batches)
                plain_step(plain, twin, batches, clip=0.5)
                other.step()
                assert engine.get_lr() == [group["lr"] for group in twin.param_groups]
            assert scheduler.get_last_lr() == other.get_last_lr()
            assert_near(engine, plain, kind)


def test_resumes_from_state_dicts() -> None:
    for kind, params, _, _, _ in RULES:
        for keys in ({}, {"bf16": {"enabled": True}}):
            scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": [0.02, 0.01]}}
            settings = block_of(kind, params, scheduler=scheduler, **keys)

            def begin(settings: dict[str, Any] = settings) -> tuple[Any, Any]:
                model, _ = twins()
                groups = groups_of(model, weight_decay=0.05)
                engine, _, _, schedule = zero.initialize(
                    model=model, model_parameters=groups, config=settings
                )
                return engine, schedule

            generator = torch.Generator().manual_seed(3)
            batches = [data(generator) for _ in range(6)]
            engine, schedule = begin()
            for batch in batches[:3]:
                engine_step(engine, [batch])
            saved = copy.deepcopy(
                [zero.full_state_dict(engine), engine.optimizer.state_dict(), schedule.state_dict()]
            )
            again, its = begin()
            again.load_state_dict(saved[0])
            again.optimizer.load_state_dict(saved[1])
            its.load_state_dict(saved[2])
            for batch in batches[3:]:
                engine_step(engine, [batch])
                engine_step(again, [batch])
            for one, other in zip(engine.parameters(), again.parameters(), strict=True):
                first = zero.safe_get_full_fp32_param(one)
                assert torch.equal(first, zero.safe_get_full_fp32_param(other)), (kind, keys)


def test_the_engine_cycles_momentum() -> None:
    cycle = {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01, "cycle_first_step_size": 4}
    model, plain = twins()
    engine, optimizer, _, _ = zero.initialize(
        model=model,
        config=block_of("Adam", {"lr": 0.01}, scheduler={"type": "OneCycle", "params": cycle}),
    )
    assert mt.AdamW in type(optimizer).__bases__
    twin = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.0)
    schedule = zero.schedulers.OneCycle(twin, **cycle)
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        batch = data(generator)
        engine_step(engine, [batch])
        plain_step(plain, twin, [batch])
        schedule.step()
        assert optimizer.param_groups[0]["betas"] == twin.param_groups[0]["betas"]
    assert_equal_weights(model, plain, 1e-5)
    # The engine's SGD can cycle a momentum only if it has a state for one.
    cyclic = {"type": "CyclicLR", "params": {"base_lr": 0.01, "max_lr": 0.1}}
    begun = zero.initialize(model=Model(), config=block_of("SGD", {"lr": 0.1}, scheduler=cyclic))
    assert torch.optim.SGD in type(begun[1]).__bases__
    params = {"lr": 0.1, "momentum": 0.9}
    begun = zero.initialize(model=Model(), config=block_of("SGD", params, scheduler=cyclic))
    assert mt.SGD in type(begun[1]).__bases__
    engine_step(begun[0], [data(generator)])
    assert begun[1].engine.group(0).betas[0] == 0.9


def test_uses_torch_for_options_that_the_engine_lacks() -> None:
    for kind, params in (
        ("Adam", {"torch_adam": True}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {"maximize": True}),
        ("Adagrad", {"torch_adam": True}),
        ("SGD", {"maximize": True}),
        ("RMSprop", {"momentum": 0.5}),
    ):
        _, optimizer, _, _ = zero.initialize(model=Model(), config=block_of(kind, params))
        assert type(optimizer).__module__.startswith("torch.optim."), kind
    model = Model()
    groups = groups_of(model, momentum=0.0)
    begun = zero.initialize(
        model=model, model_parameters=groups, config=block_of("SGD", {"momentum": 0.9})
    )
    assert torch.optim.SGD in type(begun[1]).__bases__
    # Norms and clipping ignore params that no optimizer has.
    for kind, rule in (("AdamW", torch.optim.AdamW), ("Lion", Lion)):
        model, plain = twins()
        chosen = list(model.blocks.parameters())
        engine, optimizer, _, _ = zero.initialize(
            model=model,
            model_parameters=chosen,
            config=block_of(kind, {"lr": 0.01}, gradient_clipping=0.1),
        )
        assert rule in type(optimizer).__bases__
        before = zero.safe_get_full_fp32_param(model.shift)
        x, y = data(torch.Generator().manual_seed(1))
        engine_step(engine, [(x, y)])
        assert torch.equal(before, zero.safe_get_full_fp32_param(model.shift))
        for rank in range(RANKS):
            (loss_of(plain, x[rank], y[rank]) / RANKS).backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.blocks.parameters(), 0.1)
        assert abs(engine.get_global_grad_norm() - float(norm)) < 1e-5


def test_names_all_unknown_options() -> None:
    for kind, params, texts in (
        ("AdamW", {"lr": 0.1, "weight_deacy": 0.1, "zzz": 1}, ("weight_decay?", "no zzz")),
        ("Lion", {"eps": 1e-8, "torch_adam": True}, ("no eps", "no torch_adam")),
        ("SGD", {"momentun": 0.9}, ("did you mean momentum?",)),
        ("SGD", {"torch_adam": True}, ("no torch_adam",)),
        ("RMSprop", {"betas": [0.9, 0.9]}, ("RMSprop has no betas",)),
        ("Adagrad", {"betas": [0.9, 0.9]}, ("Adagrad has no betas",)),
        ("Adam", {"max_grad_norm": 1.0}, ("gradient_clipping",)),
        ("Adam", {"lr": "fast"}, ("optimizer.params.lr of Adam is 'fast': no number",)),
        ("SGD", {"momentum": "x"}, ("optimizer.params.momentum of SGD is 'x'",)),
        ("AdamW", {"betas": [0.9, "y"]}, ("optimizer.params.betas of AdamW is",)),
        ("OneBitAdam", {}, ("unknown optimizer 'OneBitAdam'", "Lion")),
        ("AdamW", {"max_norm": 1.0}, ("no max_norm",)),
    ):
        for text in texts:
            with pytest.raises(meron.ArgumentError, match=re.escape(text)):
                zero.initialize(model=nn.Linear(3, 3), config=block_of(kind, params))
    for key in ("bias_correction", "fp32_optimizer_states"):
        with pytest.raises(meron.UnsupportedError, match=re.escape(f"{key} = false")):
            zero.initialize(model=nn.Linear(3, 3), config=block_of("AdamW", {key: False}))
    with pytest.raises(meron.ArgumentError, match="AdamW: Invalid learning rate: -1"):
        zero.initialize(model=nn.Linear(3, 3), config=block_of("AdamW", {"lr": -1.0}))


def test_trains_the_callers_groups() -> None:
    """Optimizers of torch with groups run on shards, and are not replaced."""
    for make in (
        lambda groups: torch.optim.AdamW(groups, lr=0.01),
        lambda groups: torch.optim.Adam(groups, lr=0.01),
        lambda groups: torch.optim.Adagrad(groups, lr=0.05),
        lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9),
        lambda groups: deepspeed.ops.adagrad.DeepSpeedCPUAdagrad(groups, lr=0.05),
    ):
        for callers in (False, True):
            model, plain = twins()
            second = {"lr": 0.003, "weight_decay": 0.05}
            given = make if callers else make(groups_of(model, **second))
            engine, optimizer, _, _ = zero.initialize(
                model=model,
                optimizer=given,
                model_parameters=groups_of(model, **second),
                config=config(),
            )
            assert callers or optimizer is given
            train(engine, plain, make(groups_of(plain, **second)), 3)
            assert_equal_weights(model, plain, 1e-6)


def test_accepts_rules_of_meron_torch() -> None:
    for rule in (mt.AdamW, mt.Lion):
        model, plain = twins()
        mt.shard(model)
        engine = zero.initialize(
            model=model,
            optimizer=rule(groups_of(model, lr=0.003), lr=0.001),
            config=config(),
        )[0]
        twin = {mt.AdamW: torch.optim.AdamW, mt.Lion: Lion}[rule]
        options = {"betas": (0.9, 0.99)} if rule is mt.Lion else {}
        train(engine, plain, twin(groups_of(plain, lr=0.003), lr=0.001, **options), 3)
        assert_near(engine, plain, rule.__name__)
        assert engine.get_lr() == [0.001, 0.003]


def adam_of(kind: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    if kind == "engine":
        return mt.AdamW(model, lr=lr)
    return mt.shard_optimizer(model, torch.optim.AdamW(model.parameters(), lr=lr))


def test_the_next_optimizer_starts_from_the_trained_values() -> None:
    batch = data(torch.Generator().manual_seed(1))
    for first in ("engine", "torch"):
        for second in ("engine", "torch"):
            model, _ = twins()
            mt.shard(model, mp=mt.MixedPrecision(param_dtype=torch.bfloat16))
            for param in model.parameters():  # as if no f32 values were kept for an optimizer
                param._meron[0].masters.clear()
            optimizer = adam_of(first, model, 0.125)
            mt.set_full_param(model.shift, torch.ones(12))
            assert torch.equal(mt.full_param(model.shift).float(), torch.ones(12))
            for _ in range(2):
                loss_of(model, batch[0][RANK], batch[1][RANK]).backward()
                optimizer.step()
            trained = mt.full_param(model.shift)
            assert not torch.equal(trained.float(), torch.ones(12))
            del optimizer
            gc.collect()
            optimizer = adam_of(second, model, 0.0)
            loss_of(model, batch[0][RANK], batch[1][RANK]).backward()
            optimizer.step()
            assert torch.equal(mt.full_param(model.shift), trained), (first, second)
