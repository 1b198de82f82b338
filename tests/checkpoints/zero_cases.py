# SPDX-License-Identifier: Apache-2.0
"""The kept checkpoints of meron.zero: how each is trained, and what an engine has at some step."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch_model import Model, batch, bits_of

from meron import zero

STATES = ("exp_avg", "exp_avg_sq")
COUNTERS = ("global_steps", "micro_steps", "skipped_steps")
SAVED, SEED = 6, 11  # micro-batches before the save; of the random numbers, plus the rank
CLIENT: dict[Any, Any] = {
    "epoch": 3,
    "note": "größer",
    "pair": (1, 2.5),
    7: [None, True, float("inf")],
    "sampler": {"order": torch.arange(12).reshape(3, 4), "mask": torch.tensor([True, False])},
}
RANK = int(os.environ.get("MERON_RANK", "0"))
Records = dict[str, dict[str, Any]]  # of an engine when it is saved, and after the "next" step


@dataclass(frozen=True)
class Case:
    config: dict[str, Any]
    overflows: tuple[int, ...] = ()  # steps whose gradients are infinite
    late: int = 0  # first step that trains model.first, which then has a count of its own


def config(stage: int, **others: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
        "scheduler": {
            "type": "WarmupDecayLR",
            "params": {
                "warmup_num_steps": 2,
                "warmup_max_lr": 0.0625,
                "total_num_steps": 10,
                "warmup_type": "linear",
            },
        },
        **others,
    }


HALF = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 3, "hysteresis": 2}
CASES = {
    # The first overflow uses up the hysteresis, the second halves the scale, and the step after the
    # save doubles it.
    "zero-fp16": Case(config(1, fp16=HALF), overflows=(0, 2)),
    "zero-bf16": Case(config(3, bf16={"enabled": True}), late=2),
}


class Run:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.engine: Any = zero.initialize(model=Model(), config=case.config)[0]

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            self.engine.module.first.weight.requires_grad_(step >= self.case.late)
            loss = self.engine(batch(step))
            self.engine.backward(loss * float("inf") if step in self.case.overflows else loss)
            self.engine.step()

    def record(self) -> dict[str, Any]:
        """Bits of values and states, by name, and what else a checkpoint restores. Collective."""
        engine = self.engine
        bits = {name: bits_of(value) for name, value in zero.full_state_dict(engine).items()}
        steps = {}
        for name, param in engine.module.named_parameters():
            master = zero.safe_get_full_fp32_param(param)
            assert master is not None
            bits[f"{name}.master"] = bits_of(master)
            for key in STATES if param.requires_grad else ():
                state = zero.safe_get_full_optimizer_state(param, key)
                assert state is not None
                bits[f"{name}.{key}"] = bits_of(state)
            if param.requires_grad:
                steps[name] = int(zero.safe_get_full_optimizer_state(param, "step"))
        return {
            "bits": bits,
            "steps": steps,
            "counters": {name: getattr(engine, name) for name in COUNTERS},
            "scale": engine.cur_scale,
            "lr": engine.get_lr(),
            "scheduler": engine.lr_scheduler.state_dict(),
        }


def plain(state: Any) -> Any:
    """A client state whose tensors are lists."""
    if isinstance(state, torch.Tensor):
        return [str(state.dtype), state.tolist()]
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    return state


def keep(folder: Path, case: Case) -> Records:
    """Saves a run, and continues it."""
    run = Run(case)
    run.train(0, SAVED)
    torch.manual_seed(SEED + RANK)
    run.engine.save_checkpoint(folder, client_state=CLIENT)
    saved = run.record()
    run.train(SAVED, SAVED + 1)
    return {"saved": saved, "next": run.record()}
