# SPDX-License-Identifier: Apache-2.0
"""A config without a key has the behaviour of DeepSpeed 0.19.8 under the name deepspeed."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
import torch

import meron.torch as mt
import meron.zero
import meron.zero.compat as deepspeed

pytestmark = pytest.mark.ranks(1, 2)
RANK = int(os.environ.get("MERON_RANK", "0"))


def sgd(params: Any) -> Any:
    return torch.optim.SGD(params, lr=1.0)


def length_of_a_step(door: Any, stage: int, optimizer: Any = None, **keys: Any) -> float:
    """The length of a step of SGD with rate 1 along a gradient of length 200."""
    model = torch.nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.zero_()
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        **keys,
    }
    if optimizer is None:
        settings["optimizer"] = {"type": "SGD", "params": {"lr": 1.0}}
    engine = door.initialize(model=model, optimizer=optimizer, config=settings)[0]
    engine.backward(engine(torch.full((1, 4), 100.0)).sum())
    engine.step()
    length = float(meron.zero.full_state_dict(engine)["weight"].norm())
    assert math.isclose(engine.get_global_grad_norm(), 200.0, rel_tol=1e-6)
    engine.destroy()
    return length


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("client", [False, True])
def test_clips_at_1_without_gradient_clipping(stage: int, client: bool) -> None:
    optimizer = sgd if client else None
    for keys, length in (
        ({}, 1.0),
        ({"gradient_clipping": "auto"}, 1.0),
        ({"gradient_clipping": 0.0}, 200.0),
        ({"gradient_clipping": 2.0}, 2.0),
    ):
        found = length_of_a_step(deepspeed, stage, optimizer, **keys)
        assert math.isclose(found, length, rel_tol=1e-5), (keys, found)


def test_clips_only_on_request_under_the_name_of_meron() -> None:
    assert math.isclose(length_of_a_step(meron.zero, 2), 200.0, rel_tol=1e-5)
    assert math.isclose(length_of_a_step(meron.zero, 2, gradient_clipping=1.0), 1.0, rel_tol=1e-5)
    assert deepspeed.runtime.constants.GRADIENT_CLIPPING_DEFAULT == 1.0


def test_reports_the_default_clipping() -> None:
    engine = deepspeed.initialize(model=torch.nn.Linear(2, 2), config={})[0]
    assert engine.gradient_clipping() == 1.0
    engine = meron.zero.initialize(model=torch.nn.Linear(2, 2), config={})[0]
    assert engine.gradient_clipping() == 0.0
    chosen = meron.zero.initialize(model=torch.nn.Linear(2, 2), config={}, deepspeed_defaults=True)[
        0
    ]
    assert chosen.gradient_clipping() == 1.0


def test_an_optimizer_of_meron_keeps_its_own_clipping() -> None:
    for max_norm, length in ((0.0, 200.0), (3.0, 3.0)):
        found = length_of_a_step(
            deepspeed, 2, lambda params, norm=max_norm: mt.SGD(params, lr=1.0, max_norm=norm)
        )
        assert math.isclose(found, length, rel_tol=1e-5)


@pytest.mark.parametrize("dropin", [False, True])
def test_torch_adam_decays_weights_as_torch_does(dropin: bool) -> None:
    """DeepSpeed passes the params to torch.optim, whose AdamW decays by 0.01."""
    for kind, params, decay in (
        ("Adam", {}, 0.0),
        ("AdamW", {}, 0.0),
        ("Adam", {"torch_adam": True}, 0.01),
        ("AdamW", {"torch_adam": True}, 0.01),
        ("Adam", {"torch_adam": True, "adam_w_mode": False}, 0.0),
        ("AdamW", {"torch_adam": True, "weight_decay": 0.0}, 0.0),
    ):
        model = torch.nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(10.0)
        block = {"type": kind, "params": {"lr": 0.1, **params}}
        keys = {"optimizer": block, "zero_optimization": {"stage": 1}}
        engine = (deepspeed if dropin else meron.zero).initialize(model=model, config=keys)[0]
        for _ in range(10):
            engine.backward(engine(torch.ones(1, 1)).sum() * 1e-30)
            engine.step()
        found = meron.zero.full_state_dict(engine)["weight"].item()
        assert math.isclose(found, 10.0 * (1 - 0.1 * decay) ** 10, rel_tol=1e-6), (block, found)
        assert engine.optimizer.param_groups[0]["weight_decay"] == decay
        engine.destroy()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_norm_of_an_overflow_is_infinite(stage: int) -> None:
    engine = deepspeed.initialize(
        model=torch.nn.Linear(8, 8),
        optimizer=lambda params: torch.optim.AdamW(params, lr=1e-2),
        config={
            "bf16": {"enabled": True, "check_grad_overflow": True},
            "zero_optimization": {"stage": stage},
        },
    )[0]
    assert engine.get_global_grad_norm() is None
    inputs = torch.full((2, 8), 1e38 if RANK == 0 else 1.0, dtype=torch.bfloat16)
    engine.backward(engine(inputs).float().square().mean())
    engine.step()
    norm = engine.get_global_grad_norm()
    assert norm == math.inf and norm.item() == math.inf and engine.skipped_steps == 1
    engine.backward(engine(torch.ones(2, 8, dtype=torch.bfloat16)).float().square().mean())
    engine.step()
    norm = engine.get_global_grad_norm()
    assert 0 < norm.item() < math.inf and type(norm.item()) is float and f"{norm:.3f}"
    engine.destroy()
