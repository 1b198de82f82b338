# SPDX-License-Identifier: Apache-2.0
"""The kept checkpoints of meron.torch: how each is trained, and what a run has at some step."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_model import Layer, Model, batch, bits_of

import meron.torch as mt

NAME, SAVED = "step-3", 3
EXTRA = {"position": 7, "note": "größer"}
TENSORS = {"order": torch.arange(12).reshape(3, 4), "mask": torch.tensor([True, False, True])}
SEED = 11  # of the random numbers that are saved, plus the rank
STATES = ("exp_avg", "exp_avg_sq", "momentum_buffer")
Records = dict[str, dict[str, Any]]  # of a run when it is saved, and after the "next" step
RANK = int(os.environ.get("MERON_RANK", "0"))


@dataclass(frozen=True)
class Case:
    plan: str
    rule: str  # "torch SGD": of torch.optim, on shards; "engine AdamW": of meron.torch
    numbers: dict[str, Any]
    low: bool = False  # computes in bf16, with f32 masters
    exact: bool = True  # a step has the same bits on every processor and with every torch


CASES = {
    # Each product is exact, so that it does not matter whether torch fuses it with the sum.
    "torch-sgd": Case("zero3", "torch SGD", {"lr": 0.25, "momentum": 0.5}),
    "torch-adamw": Case("zero2", "torch AdamW", {"lr": 0.01}, exact=False),
    "torch-engine-adamw": Case("zero3", "engine AdamW", {"lr": 0.01}, low=True),
    "torch-engine-sgd": Case("zero1", "engine SGD", {"lr": 0.25, "momentum": 0.5}),
}


class Run:
    """A model, its optimizer of two groups, and its schedule."""

    def __init__(self, case: Case) -> None:
        self.model = model = Model()
        low = mt.MixedPrecision(torch.bfloat16) if case.low else None
        mt.shard(model, units=Layer, plan=case.plan, mp=low)
        trained = [p for p in model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in trained if p.dim() > 1]},
            {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
        ]
        home, rule = case.rule.split()
        self.optimizer: torch.optim.Optimizer
        if home == "engine":
            self.optimizer = getattr(mt, rule)(groups, **case.numbers)
        else:
            self.optimizer = getattr(torch.optim, rule)(groups, **case.numbers)
            mt.shard_optimizer(model, self.optimizer)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2, 4], 0.5)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            self.model(batch(step)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()

    def record(self) -> dict[str, Any]:
        """Bits of values and states, by name, and what else a checkpoint restores. Collective."""
        bits = {name: bits_of(value) for name, value in self.model.state_dict().items()}
        steps = {}
        for name, param in self.model.named_parameters():
            for key in STATES:
                state = mt.full_optimizer_state(self.optimizer, param, key)
                if state is not None:
                    bits[f"{name}.{key}"] = bits_of(state)
            if (taken := mt.full_optimizer_state(self.optimizer, param, "step")) is not None:
                steps[name] = int(taken)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return {"bits": bits, "steps": steps, "lr": rates, "scheduler": plain(self.scheduler)}


def plain(scheduler: torch.optim.lr_scheduler.LRScheduler) -> dict[str, Any]:
    """The state of a scheduler, without what JSON does not hold."""
    kept = ("last_epoch", "_step_count", "_last_lr", "base_lrs")
    return {name: value for name, value in scheduler.state_dict().items() if name in kept}


def save(run: Run, folder: Path) -> None:
    mt.save(
        folder,
        NAME,
        run.model,
        run.optimizer,
        step=SAVED,
        scheduler=run.scheduler,
        extra=EXTRA,
        tensors=TENSORS,
    )


def keep(folder: Path, case: Case) -> Records:
    """Saves a run, and continues it."""
    run = Run(case)
    run.train(0, SAVED)
    torch.manual_seed(SEED + RANK)
    save(run, folder)
    saved = run.record()
    run.train(SAVED, SAVED + 1)
    return {"saved": saved, "next": run.record()}
