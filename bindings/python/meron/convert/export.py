# SPDX-License-Identifier: Apache-2.0
"""A checkpoint of Meron in the formats of others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.planner import WriteItem

from meron.checkpoint import Checkpoint, open_checkpoint
from meron.convert.content import TORCH_DTYPES, ConvertError

STATES = ("exp_avg", "exp_avg_sq")
STEP = "state.step"


def export_checkpoint(
    source: str | os.PathLike[str],
    name: str | None,
    target: str | os.PathLike[str],
    *,
    format: str,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes a checkpoint of Meron for another program.

    Args:
        source, name: as meron.open_checkpoint takes them.
        target: a folder that is not there yet; for "torch" a file.
        format: "dcp": torch.distributed.checkpoint, with "model." and "optim.state.";
                "universal": DeepSpeed's universal checkpoint, a folder per param;
                "torch": a state_dict, by torch.save.
        dtype:  of floating-point values under "torch"; None: their own.

    One tensor is in memory at a time under "dcp" and "universal". Blocks on the drive. Raises
    ConvertError, and the errors of meron.open_checkpoint.
    """
    path = Path(target)
    if path.exists():
        raise ConvertError(f"{path} is there already: pass another name, or remove it first")
    writers: dict[str, Callable[[Checkpoint, Path], None]] = {
        "dcp": write_dcp,
        "universal": write_universal,
        "torch": lambda checkpoint, to: write_torch(checkpoint, to, dtype),
    }
    if format not in writers:
        raise ConvertError(f"unknown format {format!r}: {', '.join(writers)} are known")
    with open_checkpoint(source, name) as checkpoint:
        aside = path.with_name(f".{path.name}.partial")
        remove(aside)
        try:
            writers[format](checkpoint, aside)
            aside.rename(path)
        except BaseException:
            remove(aside)
            raise


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def tensor_of(checkpoint: Checkpoint, kind: str, name: str) -> torch.Tensor:
    entry = checkpoint.tensors[(kind, name)]
    out = torch.empty(entry["shape"], dtype=TORCH_DTYPES[entry["dtype"]])
    if out.numel():
        buffer = out.view(-1).view(torch.uint8).numpy()
        checkpoint.read_into(buffer, name, kind, begin=0, count=out.numel())
    return out


def best_values(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    """The master where there is one."""
    kind = "master" if ("master", name) in checkpoint.tensors else "values"
    return tensor_of(checkpoint, kind, name)


def counter_of(checkpoint: Checkpoint) -> Callable[[str], int]:
    """A function of a param's name: how many steps its optimizer has taken."""
    listed = checkpoint.manifest["optimizers"]
    # meron.torch says which params each optimizer has; of those of the engine the manifest counts.
    saved = checkpoint.extra.get("meron.torch", {}).get("optimizers", [])
    engines = [each for each in saved if each["engine"]]
    counts = {
        name: int(entry["steps"])
        for each, entry in zip(engines, listed)
        for group in each["groups"]
        for name in group["params"]
    }
    most = max((int(each["steps"]) for each in listed), default=0)

    def count(name: str) -> int:
        if (STEP, name) in checkpoint.tensors:
            return int(tensor_of(checkpoint, STEP, name))
        return counts.get(name, most)

    return count


def write_torch(checkpoint: Checkpoint, path: Path, dtype: torch.dtype | None) -> None:
    values = {}
    for kind, name in checkpoint.tensors:
        if kind != "values":
            continue
        tensor = (
            tensor_of(checkpoint, kind, name) if dtype is None else best_values(checkpoint, name)
        )
        floating = dtype is not None and tensor.is_floating_point()
        values[name] = tensor.to(dtype) if floating else tensor
    torch.save(values, path)


def write_universal(checkpoint: Checkpoint, path: Path) -> None:
    """DeepSpeed loads it with `checkpoint: {load_universal: true}`."""
    shapes: dict[str, torch.Size] = {}
    module: dict[str, torch.Tensor] = {}
    with_states = {name for kind, name in checkpoint.tensors if kind in STATES}
    steps = counter_of(checkpoint)
    for kind, name in checkpoint.tensors:
        if kind != "values":
            continue
        tensor = best_values(checkpoint, name)
        if name not in with_states:
            module[name] = tensor_of(checkpoint, kind, name)  # frozen, or a buffer
            continue
        folder = path / "zero" / name
        folder.mkdir(parents=True)
        shapes[name] = tensor.shape
        torch.save({"param": tensor.float(), "cat_dim": 0}, folder / "fp32.pt")
        for state in STATES:
            if (state, name) in checkpoint.tensors:
                found = tensor_of(checkpoint, state, name)
                torch.save({"param": found, "cat_dim": 0}, folder / f"{state}.pt")
        torch.save(steps(name), folder / "step.pt")
    if not shapes:
        raise ConvertError(
            f"{checkpoint.path} has no states of an optimizer: export values instead"
        )
    common = {
        "module": module,
        "param_shapes": [shapes],
        "global_steps": checkpoint.step,
        "dp_world_size": 1,
        "mp_world_size": 1,
        "buffer_names": [],
        "shared_params": {},
        "ds_version": "0.16.0",
        "universal_checkpoint_info": {"universal_checkpoint_version": 0.2},
        "ds_config": {"optimizer": {"type": rule_of(checkpoint)}},
        **checkpoint.extra,
    }
    torch.save(common, path / "mp_rank_00_model_states.pt")
    torch.save({"param_groups": groups_of(checkpoint)}, path / "zero" / "optimizer_state.pt")


def rule_of(checkpoint: Checkpoint) -> str:
    return next((str(each["rule"]) for each in checkpoint.manifest["optimizers"]), "")


def groups_of(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    """Those of all optimizers, one after the other, as torch has them."""
    return [
        {
            "lr": group["learning_rate"],
            "betas": (group["beta1"], group["beta2"]),
            "eps": group["epsilon"],
            "weight_decay": group["weight_decay"],
        }
        for optimizer in checkpoint.manifest["optimizers"]
        for group in optimizer["groups"]
    ]


class Planner(torch_dcp.DefaultSavePlanner):
    """Reads each tensor when it is written."""

    def __init__(self, read: Callable[[str], torch.Tensor]) -> None:
        super().__init__()
        self.read = read

    def resolve_data(self, write_item: WriteItem) -> Any:
        found = super().resolve_data(write_item)
        if isinstance(found, torch.Tensor) and found.is_meta:
            return self.read(write_item.index.fqn)
        return found


def write_dcp(checkpoint: Checkpoint, path: Path) -> None:
    state: dict[str, Any] = {}
    sources: dict[str, tuple[str, str]] = {}

    def add(key: str, kind: str, name: str) -> None:
        entry = checkpoint.tensors[(kind, name)]
        state[key] = torch.empty(entry["shape"], dtype=TORCH_DTYPES[entry["dtype"]], device="meta")
        sources[key] = (kind, name)

    for kind, name in checkpoint.tensors:
        if kind == "values":
            master = ("master", name) in checkpoint.tensors
            add(f"model.{name}", "master" if master else "values", name)
        elif kind in STATES or kind.startswith("state."):
            add(f"optim.state.{name}.{kind.removeprefix('state.')}", kind, name)
    steps = counter_of(checkpoint)
    for kind, name in checkpoint.tensors if checkpoint.manifest["optimizers"] else ():
        if kind == "exp_avg" and (STEP, name) not in checkpoint.tensors:
            state[f"optim.state.{name}.step"] = torch.tensor(float(steps(name)))
    for index, group in enumerate(groups_of(checkpoint)):
        group["decoupled_weight_decay"] = rule_of(checkpoint) == "adamw"
        for key, value in group.items():
            state[f"optim.param_groups.{index}.{key}"] = value
    state["step"] = checkpoint.step
    torch_dcp.save(
        state,
        storage_writer=torch_dcp.FileSystemWriter(path, single_file_per_rank=True, thread_count=1),
        planner=Planner(lambda key: tensor_of(checkpoint, *sources[key])),
        no_dist=True,
    )
