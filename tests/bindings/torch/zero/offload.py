# SPDX-License-Identifier: Apache-2.0
"""Optimizer states on a drive: the same bits as in memory, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

import meron
from meron import zero
from model import config, data, engine_step, raises, run_cases, twins

# On a drive, where a folder for temporary files need not be; nothing is left there.
DRIVE = str(Path(__file__).parent)
STATES = ("exp_avg", "exp_avg_sq")


def settings(stage: int, device: str | None, **keys: Any) -> dict[str, Any]:
    zero_block: dict[str, Any] = {"stage": stage}
    if device is not None:
        zero_block["offload_optimizer"] = {"device": device, "nvme_path": DRIVE, "buffer_count": 3}
    block = {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}}
    return config(zero_optimization=zero_block, optimizer=block, **keys)


def batches(count: int) -> list[Any]:
    generator = torch.Generator().manual_seed(7)
    return [data(generator) for _ in range(count)]


def trained(given: dict[str, Any], steps: int = 3) -> Any:
    model, _ = twins()
    engine = zero.initialize(model=model, config=given)[0]
    for batch in batches(steps):
        engine_step(engine, [batch])
    return engine


def values_of(engine: Any) -> list[torch.Tensor]:
    """Weights and states, whole."""
    found = []
    for param in engine.module.parameters():
        found.append(zero.safe_get_full_fp32_param(param))
        found += [zero.safe_get_full_optimizer_state(param, key) for key in STATES]
    return found


def case_nvme_changes_no_bit() -> None:
    for stage in (1, 2, 3):
        for keys in ({}, {"bf16": {"enabled": True}}):
            expected = values_of(trained(settings(stage, None, **keys)))
            for device in ("cpu", "nvme"):
                found = values_of(trained(settings(stage, device, **keys)))
                assert len(found) == len(expected)
                assert all(torch.equal(a, b) for a, b in zip(found, expected))


def case_states_are_written_where_they_lie() -> None:
    engine = trained(settings(3, "nvme", bf16={"enabled": True}))
    param = engine.module.blocks[0].up.weight
    wanted = torch.arange(param.numel(), dtype=torch.float32).view(param.shape) / 64
    for key in STATES:
        zero.safe_set_full_optimizer_state(param, wanted, key)
        assert torch.equal(zero.safe_get_full_optimizer_state(param, key), wanted)
    exact = wanted + 2.0**-16  # bf16 has no such numbers: the master must have kept them
    zero.safe_set_full_fp32_param(param, exact)
    assert torch.equal(zero.safe_get_full_fp32_param(param), exact)


def case_f32_values_outlive_an_engine() -> None:
    engine = trained(settings(3, "nvme", bf16={"enabled": True}))
    param = engine.module.embed.weight
    before = zero.safe_get_full_fp32_param(param)
    engine.destroy()
    given = settings(3, "nvme", bf16={"enabled": True})
    again = zero.initialize(model=engine.module, config=given)[0]
    assert again.optimizer is not engine.optimizer
    assert torch.equal(before, zero.safe_get_full_fp32_param(param))


def case_what_will_not_do_is_named() -> None:
    nowhere = settings(3, "nvme")
    nowhere["zero_optimization"]["offload_optimizer"]["nvme_path"] = f"{DRIVE}/nowhere"
    with raises(meron.Error, "nowhere"):
        trained(nowhere)


def case_states_of_torch_stay_in_memory() -> None:
    model, _ = twins()
    own = torch.optim.AdamW(model.parameters())
    with raises(meron.UnsupportedError, "torch's own"):
        zero.initialize(model=model, optimizer=own, config=settings(3, "nvme"))


if __name__ == "__main__":
    run_cases(sys.modules[__name__])
