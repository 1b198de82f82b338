# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's universal checkpoints: a folder per param with fp32.pt, exp_avg.pt, exp_avg_sq.pt."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from meron.convert import pickles
from meron.convert.content import Content, ConvertError, Found, state_kind
from meron.convert.deepspeed import MODEL, add_common, add_loss_scale

STATES = ("exp_avg", "exp_avg_sq")


def is_universal(path: Path) -> bool:
    return (path / "zero").is_dir()


def folder_of(path: Path, tag: str | None) -> Path:
    if tag is None and is_universal(path):
        return path
    latest = path / "latest_universal"
    name = tag or (latest.read_text().strip() if latest.is_file() else "")
    if name and Path(name).name == name and is_universal(path / name):
        return path / name
    raise ConvertError(f"{path} has no universal checkpoint {name!r}: pass its folder")


def read(path: Path, tag: str | None = None, trust: bool = False) -> Content:
    folder = folder_of(path, tag)
    content = Content("a universal checkpoint of DeepSpeed")
    models = sorted(each for each in folder.iterdir() if MODEL.fullmatch(each.name))
    if not models:
        raise ConvertError(f"{folder} has no *_model_states.pt: copy all its files")
    first = pickles.load(models[0], trust)
    add_common(content, first)
    shapes = {
        name: tuple(s) for group in first.get("param_shapes") or [] for name, s in group.items()
    }
    shared = first.get("shared_params") or {}
    module = first.get("module") or {}
    seen = set()
    for param in sorted(each for each in (folder / "zero").rglob("fp32.pt")):
        name = ".".join(param.parent.relative_to(folder / "zero").parts)
        if name in shared:
            continue
        seen.add(name)
        add_param(content, param.parent, name, shapes.get(name), module.get(name), trust)
    require_complete(content, folder, set(shapes) - set(shared))
    for name, tensor in module.items():
        placeholder = name in shapes and not math.prod(getattr(tensor, "shape", ()))
        if (
            isinstance(tensor, torch.Tensor)
            and name not in (seen | set(shared))
            and not placeholder
        ):
            content.tensors.append(Found.whole(name, "values", tensor))
    state = pickles.load(folder / "zero" / "optimizer_state.pt", trust)
    add_loss_scale(content, state)
    names = [list(group) for group in first.get("param_shapes") or []]
    content.add_groups(names, state.get("param_groups") or [])
    for state_of in (state.get("optimizer_state_dict") or {}).get("state", {}).values():
        content.optimizer_steps = int(state_of.get("step", content.optimizer_steps))
    return content


def require_complete(content: Content, folder: Path, trained: set[str]) -> None:
    """ConvertError unless each trained param has its f32 values, and the states that any has."""
    found = {(each.kind, each.name) for each in content.tensors}
    wanted = {each.kind for each in content.tensors} & {"values", *STATES}
    for name in sorted(trained | {each.name for each in content.tensors}):
        lacking = sorted(kind for kind in wanted if (kind, name) not in found)
        if lacking:
            lacking = ["fp32.pt" if kind == "values" else f"{kind}.pt" for kind in lacking]
            raise ConvertError(
                f"{folder}/zero/{name} lacks {', '.join(lacking)}: copy all its files"
            )


def add_param(
    content: Content,
    folder: Path,
    name: str,
    shape: tuple[int, ...] | None,
    given: Any,
    trust: bool,
) -> None:
    for path in sorted(folder.glob("*.pt")):
        found = pickles.load(path, trust)
        tensor = found.get("param") if isinstance(found, dict) else found
        if path.stem == "step":
            content.optimizer_steps = int(found if tensor is None else tensor)
            continue
        if not isinstance(tensor, torch.Tensor):
            content.left_out.append(f"{path.stem} of {name}: it is no tensor")
            continue
        tensor = tensor.reshape(shape) if shape is not None else tensor
        if path.stem != "fp32":
            content.tensors.append(Found.whole(name, state_kind(path.stem), tensor))
            continue
        dtype = given.dtype if isinstance(given, torch.Tensor) else torch.float32
        if dtype != torch.float32 and shape is not None:
            content.tensors.append(Found.whole(name, "master", tensor))
        content.tensors.append(Found.whole(name, "values", tensor.to(dtype)))
