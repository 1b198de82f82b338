# SPDX-License-Identifier: Apache-2.0
"""A model on the emulated device is saved, and loaded by another world or on another device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from layers import SLOW
from torch import nn

import meron
import meron.torch as mt

SAVED, STEPS = 2, 4
KEYS = ("exp_avg", "exp_avg_sq")


class Model(nn.Module):
    """Has a buffer, which is on the device of the params."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16, dtype=dtype) for _ in range(3)])
        self.register_buffer("scale", torch.ones(16, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.scale


# By name: the device, and the tier of each kind of value.
THERE = {"tier": "device"}
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "host": ("cpu", {}),
    "values": ("emulated", {"param": THERE}),
    "all": ("emulated", {"param": THERE, "gradient": THERE, "optimizer": THERE}),
    "computes": ("emulated", {}),
}
Run = tuple[nn.Module, Any, torch.dtype]
States = dict[str, torch.Tensor]


def build(name: str, dtype: torch.dtype, seed: int) -> Run:
    torch.manual_seed(seed)
    device, tiers = PLANS[name]
    plan = meron.Plan.parse({"preset": "zero3", "name": name, **tiers})
    model = mt.shard(Model(dtype), units=nn.Linear, plan=plan, device=device)
    return model, mt.AdamW(model, lr=0.1), dtype


def train(run: Run, first: int, last: int) -> None:
    """All ranks have the same micro-batches, so that the means are those of any world size."""
    model, optimizer, dtype = run
    for step in range(first, last):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(step)).to(dtype)
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def states_of(run: Run) -> States:
    model, optimizer, _ = run
    found = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    for name, param in model.named_parameters():
        for key in KEYS:
            state = mt.full_optimizer_state(optimizer, param, key)
            assert state is not None
            found[f"{name}.{key}"] = state.cpu()
    return found


def expect(run: Run, expected: States) -> None:
    found = states_of(run)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.dtype == expected[name].dtype and torch.equal(value, expected[name]), name


def save(name: str, dtype: torch.dtype, background: bool, folder: Path) -> tuple[States, States]:
    """Saves and trains on. Returns the states that it saved, and those at the end."""
    run = build(name, dtype, 1)
    model, optimizer, _ = run
    train(run, 0, SAVED)
    with torch.no_grad():
        model.scale.fill_(0.5)
    before = states_of(run)
    saving = mt.save(folder, "it", model, optimizer, step=SAVED, background=background)
    train(run, SAVED, STEPS)  # during the copy, if in the background
    saving.wait()
    return before, states_of(run)


def load(name: str, dtype: torch.dtype, folder: Path, before: States, after: States) -> None:
    """Loads onto the device that saved, onto the host, and with all values on the device."""
    for other in dict.fromkeys([name, "host", "all"]):
        run = build(other, dtype, 2)
        train(run, 7, 8)
        loaded = mt.load(folder, "it", run[0], run[1])
        assert loaded.step == SAVED
        expect(run, before)
        assert float(run[0].scale.cpu()[0]) == 0.5
        train(run, SAVED, STEPS)
        expect(run, after)


@pytest.mark.parametrize(
    ("dtype", "background"),
    [(torch.float32, False), (torch.bfloat16, True)],
    ids=["f32", "bf16_in_background"],
)
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(
    ("saving", "loading"), [(2, 2), (2, 1), (1, 2)], ids=["2to2", "2to1", "1to2"]
)
def test_resumes_on_another_device_and_world_size(
    tmp_path: Path, saving: int, loading: int, name: str, dtype: torch.dtype, background: bool
) -> None:
    saved = ranks.call(saving, save, name, dtype, background, tmp_path, environment=SLOW)
    ranks.call(loading, load, name, dtype, tmp_path, *saved[0], environment=SLOW)
