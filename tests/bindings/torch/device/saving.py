# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of models on the emulated device: saved by one run, loaded by others.

FOLDER: of the checkpoints and of what they must give. ACTION: save, or load.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import meron
import meron.torch as mt
from model import RANK, RANKS, run_cases

FOLDER = Path(os.environ["FOLDER"])
ACTION = os.environ["ACTION"]
SAVED, STEPS = 2, 4
KEYS = ("exp_avg", "exp_avg_sq")


class Model(nn.Module):
    """With a buffer, which is on the device as the params are."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16, dtype=dtype) for _ in range(3)])
        self.register_buffer("scale", torch.ones(16, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


# What resides where, and on which device.
THERE = {"tier": "device"}
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "host": ("cpu", {}),
    "values": ("emulated", {"param": THERE}),
    "all": ("emulated", {"param": THERE, "gradient": THERE, "optimizer": THERE}),
    "computes": ("emulated", {}),
}
Run = tuple[nn.Module, Any, torch.dtype]


def build(name: str, dtype: torch.dtype, seed: int) -> Run:
    torch.manual_seed(seed)
    device, tiers = PLANS[name]
    plan = meron.Plan.parse({"preset": "zero3", "name": name, **tiers})
    model = mt.shard(Model(dtype), units=nn.Linear, plan=plan, device=device)
    return model, mt.AdamW(model, lr=0.1), dtype


def train(run: Run, first: int, last: int) -> None:
    """Every rank has the same micro-batches, so that any number of ranks has the same means."""
    model, optimizer, dtype = run
    for step in range(first, last):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(step)).to(dtype)
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def states(run: Run) -> dict[str, torch.Tensor]:
    model, optimizer, _ = run
    found = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    for name, param in model.named_parameters():
        for key in KEYS:
            state = mt.full_optimizer_state(optimizer, param, key)
            assert state is not None
            found[f"{name}.{key}"] = state.cpu()
    return found


def expect(run: Run, file: Path) -> None:
    expected = torch.load(file)
    found = states(run)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == expected[name].dtype and torch.equal(value, expected[name]), name


def variants() -> Iterator[tuple[str, torch.dtype, bool, str]]:
    for name in PLANS:
        for dtype, background in ((torch.float32, False), (torch.bfloat16, True)):
            yield name, dtype, background, f"{name}-{background}"


def save(name: str, dtype: torch.dtype, background: bool, folder: Path) -> None:
    run = build(name, dtype, 1)
    model, optimizer, _ = run
    train(run, 0, SAVED)
    with torch.no_grad():
        model.scale.fill_(0.5)
    before = states(run)
    saving = mt.save(folder, "it", model, optimizer, step=SAVED, background=background)
    train(run, SAVED, STEPS)  # while it is copied, if in the background
    saving.wait()
    after = states(run)
    if RANK == 0:
        torch.save(before, folder / "before.pt")
        torch.save(after, folder / "after.pt")


def case_what_is_saved_is_loaded() -> None:
    for name, dtype, background, key in variants():
        folder = FOLDER / key
        if ACTION == "save":
            save(name, dtype, background, folder)
            continue
        # From the device to the host too, and back.
        for other in dict.fromkeys([name, "host", "all"]):
            run = build(other, dtype, 2)
            train(run, 7, 8)
            loaded = mt.load(folder, "it", run[0], run[1])
            assert loaded.step == SAVED
            expect(run, folder / "before.pt")
            assert float(run[0].scale.cpu()[0]) == 0.5
            train(run, SAVED, STEPS)
            expect(run, folder / "after.pt")


if __name__ == "__main__":
    assert RANKS > 0
    run_cases(sys.modules[__name__])
