# SPDX-License-Identifier: Apache-2.0
"""An engine with AdamW and a schedule, and its states, for tests of checkpoints."""

from __future__ import annotations

from typing import Any

import torch

from meron import zero
from model import Model, config, data, engine_step

ADAM: dict[str, Any] = {
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 0.01}},
}


def made(seed: int = 0, stage: int = 3, frozen: bool = False, **options: Any) -> Any:
    torch.manual_seed(seed)
    model = Model()
    model.embed.weight.requires_grad_(not frozen)
    settings = config(stage, **{**ADAM, **options})
    return zero.initialize(model=model, config=settings)[0]


def steps(engine: Any, first: int, last: int) -> None:
    for step in range(first, last):
        engine_step(engine, [data(torch.Generator().manual_seed(step))])


def state(engine: Any) -> list[torch.Tensor]:
    found = []
    for param in engine.parameters():
        if not param.requires_grad:
            found.append(zero.safe_get_full_fp32_param(param))
            continue
        found += [
            zero.safe_get_full_fp32_param(param),
            zero.safe_get_full_optimizer_state(param, "exp_avg"),
            zero.safe_get_full_optimizer_state(param, "exp_avg_sq"),
        ]
    return [value for value in found if value is not None]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other))
