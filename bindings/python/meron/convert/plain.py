# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save: a state_dict, or one inside of a dict, as training scripts and Lightning
write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from meron.convert import pickles
from meron.convert.content import Content, ConvertError, Found, state_kind

MODELS = ("state_dict", "model_state_dict", "model", "module", "net", "weights")
OPTIMIZERS = ("optimizer_states", "optimizer_state_dict", "optimizer", "optim")
STEPS = ("global_step", "step", "global_steps", "iteration")


def read(path: Path, tag: str | None = None, trust: bool = False) -> Content:
    if tag is not None:
        raise ConvertError(f"{path} is one file: leave the tag out")
    loaded = pickles.load(path, trust)
    if isinstance(loaded, torch.nn.Module):
        loaded = loaded.state_dict()
    if not isinstance(loaded, Mapping):
        raise ConvertError(f"{path} holds a {type(loaded).__name__}: a dict of tensors is needed")
    content = Content("a file of torch.save")
    values = dict(loaded)
    model = next((key for key in MODELS if is_state_dict(loaded.get(key))), None)
    if model is not None:
        values = dict(loaded[model])
    add_values(content, values)
    if not content.tensors:
        raise ConvertError(f"{path} holds no tensors; its keys are: {', '.join(map(str, loaded))}")
    if model is None:
        return content
    for key, value in loaded.items():
        if key == model:
            continue
        if key in OPTIMIZERS:
            states = value if isinstance(value, list) else [value]
            for state in states:
                add_optimizer(content, state)
            content.infer_rule()
        elif key in STEPS and isinstance(value, int):
            content.step = value
        else:
            content.keep_json([(key, value)])
    return content


def is_state_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(v, torch.Tensor) for v in value.values())


def add_values(content: Content, values: Mapping[Any, Any]) -> None:
    """Tensors that share memory (tied weights) are taken once."""
    seen: dict[tuple[int, tuple[int, ...]], str] = {}
    for name, value in values.items():
        if not isinstance(value, torch.Tensor):
            content.left_out.append(f"{name}: it is no tensor")
            continue
        key = (value.data_ptr(), tuple(value.shape))
        if value.numel() and key in seen:
            content.left_out.append(f"{name}: it is tied to {seen[key]}")
            continue
        seen[key] = str(name)
        content.tensors.append(Found.whole(str(name), "values", value))


def add_optimizer(content: Content, state: Any) -> None:
    """The states of an optimizer whose groups name their params, as torch does when it is asked."""
    if not isinstance(state, Mapping) or "param_groups" not in state:
        content.left_out.append("optimizer: it is no state_dict of an optimizer")
        return
    shapes = {found.name: found.shape for found in content.tensors if found.kind == "values"}
    for group in state["param_groups"]:
        names = group.get("param_names")
        if names is None:
            content.left_out.append(
                "optimizer: its groups do not name their params (pass named_parameters() to it)"
            )
            return
        content.add_groups([names], [group])
        for index, name in zip(group["params"], names, strict=True):
            for key, value in state["state"].get(index, {}).items():
                if key == "step":
                    content.optimizer_steps = int(value)
                elif isinstance(value, torch.Tensor) and tuple(value.shape) == shapes.get(name):
                    content.tensors.append(Found.whole(name, state_kind(key), value))
