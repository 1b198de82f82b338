# SPDX-License-Identifier: Apache-2.0
"""What an accumulation sums, what it is divided by, and what counts its micro-batches."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from meron import zero
from model import config, run_cases


class Scale(nn.Module):
    """Its loss is its weight: every micro-batch brings a gradient of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5))

    def forward(self) -> torch.Tensor:
        return self.weight.sum()


def scale_engine(stage: int, **others: Any) -> tuple[Scale, Any]:
    model = Scale()
    block = {"type": "SGD", "params": {"lr": 1.0}}
    settings = config(stage, optimizer=block, **others)
    return model, zero.initialize(model=model, config=settings)[0]


def weight_of(model: Scale) -> float:
    values = zero.safe_get_full_fp32_param(model.weight)
    assert values is not None and bool((values == values[0]).all()), values
    return float(values[0])


UNMANAGED: dict[str, Any] = {
    "managed_gradient_accumulation": False,
    "gradient_accumulation_steps": 4,
}


def case_unmanaged_gradients_are_divided_by_the_configured_steps() -> None:
    for stage in range(4):
        model, engine = scale_engine(stage, **UNMANAGED)
        for _ in range(4):
            assert float(engine.backward(engine())) == weight_of(model) / 4
        engine.step()
        assert weight_of(model) == -1.0, (stage, weight_of(model))
        for _ in range(2):
            engine().backward()  # as engine.backward does
        assert float(zero.safe_get_full_grad(model.weight)[0]) == 0.5
        engine.step()
        assert weight_of(model) == -1.5, (stage, weight_of(model))
        for _ in range(3):  # the caller averages over the micro-batches that there are
            loss = engine() / 3
            assert torch.equal(engine.backward(loss, scale_wrt_gas=False), loss.detach())
        engine.step()
        assert abs(weight_of(model) + 2.5) < 1e-6, (stage, weight_of(model))
        assert engine.global_steps == 3
        engine.destroy()


if __name__ == "__main__":
    run_cases(sys.modules[__name__])
