# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as DeepSpeed lays them out, made by hand from a model that the tests know."""

from __future__ import annotations

import collections
import math
import sys
import types
from pathlib import Path
from typing import Any

import torch

GROUPS = [{"e.weight": (11, 6), "a.weight": (7, 6)}, {"a.bias": (7,), "n.weight": (5,)}]
FROZEN = {"frozen": (5,)}
STATES = ("exp_avg", "exp_avg_sq")


class Model:
    """The expected result: f32 values and states by name."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        self.dtype = dtype
        names = {name: shape for group in GROUPS for name, shape in group.items()}
        self.master = {name: random(shape) for name, shape in names.items()}
        self.states = {
            state: {name: random(shape) for name, shape in names.items()} for state in STATES
        }
        self.frozen = {name: random(shape).to(dtype) for name, shape in FROZEN.items()}
        self.buffer = torch.arange(3.0)


def classes() -> dict[str, Any]:
    """Classes with the names of DeepSpeed's, which its files hold objects of."""
    scaler = type("LossScaler", (), {"__module__": "deepspeed.runtime.fp16.loss_scaler"})
    stage = type("ZeroStageEnum", (int,), {"__module__": "deepspeed.runtime.zero.config"})
    address = collections.namedtuple("fragment_address", ["numel", "start"])
    address.__module__ = "deepspeed.utils.tensor_fragment"
    return {"LossScaler": scaler, "ZeroStageEnum": stage, "fragment_address": address}


def save(value: Any, path: Path) -> None:
    """torch.save, with modules of DeepSpeed's names while it pickles."""
    names = ("deepspeed", "deepspeed.runtime", "deepspeed.runtime.fp16", "deepspeed.utils")
    leaves = (
        "deepspeed.runtime.fp16.loss_scaler",
        "deepspeed.runtime.zero",
        "deepspeed.runtime.zero.config",
        "deepspeed.utils.tensor_fragment",
    )
    before = {name: sys.modules.get(name) for name in (*names, *leaves)}
    try:
        for name in (*names, *leaves):
            sys.modules[name] = types.ModuleType(name)
        for name, made in KNOWN.items():
            setattr(sys.modules[made.__module__], name, made)
        torch.save(value, path)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


KNOWN = classes()


def common(model: Model, world: int, stage: int, rule: str = "AdamW") -> dict[str, Any]:
    return {
        "buffer_names": ["buffer"],
        "param_shapes": [
            collections.OrderedDict((name, torch.Size(shape)) for name, shape in group.items())
            for group in GROUPS
        ],
        "frozen_param_shapes": {name: torch.Size(shape) for name, shape in FROZEN.items()},
        "shared_params": {"head.weight": "e.weight"},
        "lr_scheduler": {"last_epoch": 4},
        "skipped_steps": 1,
        "global_steps": 9,
        "global_samples": 36,
        "dp_world_size": world,
        "mp_world_size": 1,
        "ds_config": {
            "zero_optimization": {"stage": stage},
            **({"optimizer": {"type": rule}} if rule else {}),
        },
        "optimizer": None,
        "ds_version": "0.19.8",
        "epoch": 4,
        "name": "a run",
    }


def scaler() -> Any:
    made = KNOWN["LossScaler"]()
    made.cur_scale = 512.0
    return made


def group_numbers(indexes: list[int]) -> list[dict[str, Any]]:
    decay = [0.1, 0.0]
    return [
        {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": decay[g], "params": [i]}
        for i, g in enumerate(indexes)
    ]


def write_stage_2(folder: Path, model: Model, world: int, rule: str = "AdamW") -> None:
    """Groups flattened, padded to a multiple of 2 * world, cut into equal parts."""
    folder.mkdir(parents=True)
    first = common(model, world, 2, rule)
    first["module"] = {name: value.to(model.dtype) for name, value in model.master.items()}
    first["module"] |= {**model.frozen, "buffer": model.buffer}
    first["module"]["head.weight"] = first["module"]["e.weight"]
    first["frozen_param_fragments"] = model.frozen
    save(first, folder / "mp_rank_00_model_states.pt")

    def parts(values: dict[str, torch.Tensor], group: dict[str, Any]) -> list[torch.Tensor]:
        flat = torch.cat([values[name].reshape(-1) for name in group])
        room = math.ceil(flat.numel() / (2 * world)) * 2 * world
        return list(torch.nn.functional.pad(flat, (0, room - flat.numel())).chunk(world))

    masters = [parts(model.master, group) for group in GROUPS]
    states = {s: [parts(model.states[s], group) for group in GROUPS] for s in STATES}
    sizes = [sum(math.prod(shape) for shape in group.values()) for group in GROUPS]
    for rank in range(world):
        own = []
        for g, size in enumerate(sizes):
            part = masters[g][rank]
            used = max(0, min(part.numel(), size - rank * part.numel()))
            own.append(part[:used].clone())
        state = {
            g: {"step": torch.tensor(9.0), **{s: states[s][g][rank].clone() for s in STATES}}
            for g in range(len(GROUPS))
        }
        inner = {"state": state, "param_groups": group_numbers([0, 1])}
        outer = {
            "loss_scaler": scaler(),
            "base_optimizer_state": inner,
            "single_partition_of_fp32_groups": own,
            "zero_stage": KNOWN["ZeroStageEnum"](2),
            "param_slice_mappings": [{"a.weight": KNOWN["fragment_address"](1, 0)}],
        }
        path = folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        save({"optimizer_state_dict": outer}, path)


def write_stage_3(folder: Path, model: Model, world: int, sub_groups: bool = False) -> None:
    """Every param cut by itself. With `sub_groups`, a sub-group ends in the midst of a param."""
    folder.mkdir(parents=True)

    def part(value: torch.Tensor, rank: int) -> torch.Tensor:
        flat = value.reshape(-1)
        size = math.ceil(flat.numel() / world)
        room = torch.nn.functional.pad(flat, (0, size * world - flat.numel()), value=float("nan"))
        return room[rank * size : (rank + 1) * size].clone()

    for rank in range(world):
        first = common(model, world, 3)
        first["module"] = {name: torch.empty(0, dtype=model.dtype) for name in model.master}
        first["module"] |= {name: torch.empty(0, dtype=model.dtype) for name in model.frozen}
        first["module"] |= {"buffer": model.buffer, "head.weight": torch.empty(0)}
        first["frozen_param_fragments"] = {n: part(v, rank) for n, v in model.frozen.items()}
        save(first, folder / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")

        def flats(values: dict[str, torch.Tensor], own: int = rank) -> list[torch.Tensor]:
            groups = [torch.cat([part(values[name], own) for name in group]) for group in GROUPS]
            if not sub_groups:
                return groups
            return [groups[0][:20].clone(), groups[0][20:].clone(), groups[1]]

        count = 3 if sub_groups else 2
        inner = {
            "state": {
                i: {
                    "step": torch.tensor(9.0),
                    **{s: flats(model.states[s])[i] for s in STATES},
                }
                for i in range(count)
            },
            "param_groups": group_numbers([0, 0, 1] if sub_groups else [0, 1]),
        }
        outer = {
            "zero_stage": KNOWN["ZeroStageEnum"](3),
            "loss_scaler": scaler(),
            "optimizer_state_dict": inner,
            "fp32_flat_groups": flats(model.master),
        }
        path = folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        save({"optimizer_state_dict": outer}, path)
