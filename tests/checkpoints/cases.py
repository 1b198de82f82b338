# SPDX-License-Identifier: Apache-2.0
"""The kept checkpoints: what each contains, and how ranks build the model that it fits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import meron

NAME = "step-42"
EXTRA = {"epoch": 3, "note": "größer"}
BOTH, AVERAGE, SQUARES = ("exp_avg", "exp_avg_sq"), ("exp_avg",), ("exp_avg_sq",)
# Shapes that no number of ranks divides.
SHAPES = {"weight": ((9, 5), "f32"), "half": ((300,), "bf16"), "frozen": ((4,), "f32")}


@dataclass(frozen=True)
class Case:
    plan: dict[str, Any]
    rule: str  # a method of Context
    numbers: dict[str, Any] = field(default_factory=dict)
    states: tuple[str, ...] = BOTH  # that the rule keeps of an element, besides the master
    save: dict[str, Any] = field(default_factory=dict)


CASES = {
    "adamw": Case({"preset": "zero3"}, "adamw", {"lr": 0.01, "max_norm": 1.0}),
    "adam-replicated": Case({"preset": "zero0"}, "adam", {"lr": 0.01}),
    "sgd-momentum": Case({"preset": "zero1"}, "sgd", {"lr": 0.1, "momentum": 0.9}, AVERAGE),
    "adagrad": Case({"preset": "zero2"}, "adagrad", {"lr": 0.1, "lr_decay": 0.1}, SQUARES),
    "lion-16-bits": Case(
        {"preset": "zero3", "optimizer": {"dtype": "bf16"}}, "lion", {"lr": 0.01}, AVERAGE
    ),
    "adamw-8-bits": Case(
        {"preset": "zero3", "optimizer": {"dtype": "int8"}}, "adamw", {"lr": 0.01}
    ),
    "values": Case({"preset": "zero3"}, "adamw", {"lr": 0.01}, save={"values_only": True}),
}


@dataclass
class Model:
    params: dict[str, meron.Param]
    unit: meron.Unit
    optimizer: meron.Optimizer


def build(context: meron.Context, case: Case) -> Model:
    params = {
        name: context.param(name, shape, dtype, frozen=name == "frozen")
        for name, (shape, dtype) in SHAPES.items()
    }
    unit = context.unit("layer", list(params.values()))
    make: Callable[..., meron.Optimizer] = getattr(context, case.rule)
    return Model(params, unit, make([unit], **case.numbers))


def begin(context: meron.Context, model: Model) -> None:
    """Values from -1 to 1, which do not depend on the number of ranks."""
    with context.update([model.unit]) as update:
        for name, param in model.params.items():
            values = np.linspace(-1, 1, param.size).reshape(param.shape)
            update.write(param, values * (2 if name == "frozen" else 1))


def train(model: Model, steps: int) -> None:
    for step in range(steps):
        for name in ("weight", "half"):
            param = model.params[name]
            wave = np.sin(np.arange(param.size) + step).astype(np.float32)
            model.unit.gradient(param)[:] = wave.reshape(param.shape)
        model.unit.reduce()
        model.optimizer.step()


def bits(context: meron.Context, model: Model, case: Case) -> dict[str, str]:
    """Hexadecimal bytes of each full tensor: "weight", "weight.exp_avg". The same on all ranks."""
    found = {}
    with model.unit.gather("copy") as full:
        for name, param in model.params.items():
            found[name] = np.ascontiguousarray(full[param]).tobytes().hex()
    for name in ("weight", "half"):
        param = model.params[name]
        for state in ("master", *case.states):
            whole = np.zeros(param.size, np.float32)
            part = param.shard_range
            mine = model.optimizer.read_state(param, state)
            # Where each rank has the whole state, that of rank 0 counts.
            if context.rank == 0 or len(mine) < param.size:
                whole[part.start : part.stop] = mine
            found[f"{name}.{state}"] = context.world.all_reduce(whole).tobytes().hex()
    return found


def tensors(rank: int) -> list[meron.CheckpointTensor]:
    """The caller's own: rank 0 has the first half, rank 1 the other."""
    whole = np.arange(20, dtype="<i8").reshape(4, 5)
    part = np.ascontiguousarray(whole.reshape(-1)[rank * 10 : rank * 10 + 10])
    return [meron.CheckpointTensor("seen", "I64", whole.shape, part, rank * 10, "extra")]


HERE = Path(os.path.abspath(__file__)).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if path.name[0].isdigit())


def folder_of(version: str, case: str) -> Path:
    return HERE / version / case


def expected_of(version: str, case: str) -> dict[str, Any]:
    """The values that `keep.py` recorded beside the checkpoint."""
    expected: dict[str, Any] = json.loads((folder_of(version, case) / "expected.json").read_text())
    return expected
