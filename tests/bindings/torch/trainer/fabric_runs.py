# SPDX-License-Identifier: Apache-2.0
"""Runs of Fabric, on Meron or with DDP."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric import Fabric
from modules import WORLD, layers, loader, mse

from meron.lightning import MeronEnvironment


def fabric_of(strategy: Any, precision: Any = None) -> Fabric:
    plugins = [MeronEnvironment()] if strategy == "ddp" else None
    made = Fabric(
        strategy=strategy, accelerator="cpu", devices=WORLD, precision=precision, plugins=plugins
    )
    made.launch()
    return made


def run(
    strategy: Any,
    *,
    clip: Any = None,
    resume: Any = None,
    save: Any = None,
    steps: int = 6,
    precision: Any = None,
    accumulate: int = 1,
) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Returns the losses of this rank, and the values at the end."""
    fabric = fabric_of(strategy, precision)
    late = getattr(fabric.strategy, "zero_stage_3", False)
    with fabric.init_module() if late else torch.enable_grad():
        model = layers()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    state = {"model": model, "optimizer": optimizer, "step": 0, "name": "run"}
    if resume is not None:
        rest = fabric.load(resume, state)
        assert rest == {} and state["step"] == 3 and state["name"] == "saved"
    losses = []
    for index, (x, y) in enumerate(fabric.setup_dataloaders(loader())):
        if not state["step"] <= index < steps:
            continue
        with fabric.no_backward_sync(model, enabled=False):
            loss = mse(model(x).squeeze(1), y)
            fabric.backward(loss / accumulate)
        losses.append(loss.item())
        if (index + 1) % accumulate:
            continue
        if clip is not None:
            norm = fabric.clip_gradients(model, optimizer, **clip)
            assert norm is None or norm > 0
        optimizer.step()
        optimizer.zero_grad()
        state["step"] = index + 1
    if save is not None:
        state["name"] = "saved"
        fabric.save(save, state)
    values = {name: value.clone() for name, value in model.state_dict().items()}
    fabric.strategy.teardown()
    return losses, values


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    return max((one[name] - other[name]).abs().max().item() for name in other)
