# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that DeepSpeed's engine saved: ZeRO stages 0 to 3, any number of ranks.

The layout is as DeepSpeed's own zero_to_fp32 reads it. Stages 1 and 2 flatten a group's params, pad
them and cut them into equal parts; stage 3 cuts every param by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from meron.convert import pickles
from meron.convert.content import (
    Content,
    ConvertError,
    Found,
    Part,
    Stream,
    rule_of,
    state_kind,
)

MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
# Keys that DeepSpeed itself adds to the caller's client_state.
OWN_KEYS = {
    "module", "buffer_names", "optimizer", "param_shapes", "frozen_param_shapes", "shared_params",
    "frozen_param_fragments", "lr_scheduler", "data_sampler", "random_ltd", "skipped_steps",
    "global_steps", "global_samples", "dp_world_size", "mp_world_size", "ds_config", "ds_version",
    "sparse_tensor_module_names", "checkpoint_parallel_dimensions", "universal_checkpoint_info",
}  # fmt: skip


def is_step_folder(path: Path) -> bool:
    return path.is_dir() and any(MODEL.fullmatch(each.name) for each in path.iterdir())


def step_folder(path: Path, tag: str | None) -> Path:
    """The folder of one checkpoint in that of a run."""
    if tag is None and is_step_folder(path):
        return path
    if tag is None:
        latest = path / "latest"
        if not latest.is_file():
            raise ConvertError(f"{path} has no file 'latest': pass the tag of the checkpoint")
        tag = latest.read_text().strip()
    folder = path / tag
    if Path(tag).name != tag or not is_step_folder(folder):
        there = sorted(each.name for each in path.iterdir() if is_step_folder(each))
        raise ConvertError(
            f"{path} has no checkpoint {tag!r}; it has: {', '.join(there) or 'none'}"
        )
    return folder


def by_rank(folder: Path, pattern: re.Pattern[str], trust: bool) -> list[dict[str, Any]]:
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        match = pattern.fullmatch(path.name)
        if match is None:
            continue
        if int(match[2]) != 0:
            raise ConvertError(
                f"{path} is of a model-parallel rank; merge those with DeepSpeed's ds_to_universal "
                "and import the result"
            )
        found[int(match[1] or 0)] = path
    lacking = sorted(set(range(max(found, default=-1) + 1)) - set(found))
    if lacking:
        raise ConvertError(f"{folder} lacks the files of ranks {lacking}: copy all its files")
    return [pickles.load(found[rank], trust) for rank in sorted(found)]


def read(path: Path, tag: str | None = None, trust: bool = False) -> Content:
    folder = step_folder(path, tag)
    for each in folder.iterdir():
        if each.name.startswith(("layer_", "expp_rank_")):
            raise ConvertError(
                f"{each} is of a pipeline or of experts, which Meron does not import"
            )
    models = by_rank(folder, MODEL, trust)
    optimizers = [
        rank.get("optimizer_state_dict", rank) for rank in by_rank(folder, OPTIMIZER, trust)
    ]
    first = models[0]
    stage = stage_of(optimizers)
    content = Content(f"DeepSpeed ZeRO-{stage} of {max(len(optimizers), 1)} ranks")
    world = first.get("dp_world_size", len(optimizers))
    if optimizers and len(optimizers) != world:
        raise ConvertError(
            f"{folder} has optimizer states of {len(optimizers)} ranks, the model was saved by "
            f"{world}: copy all its files"
        )
    if stage == 3 and len(models) != world:
        raise ConvertError(
            f"{folder} has model states of {len(models)} ranks, the model was saved by {world}: "
            "copy all its files"
        )
    add_common(content, first)
    if not optimizers:
        refuse_lost_states(folder, first)
        add_module(content, first, skip=())
        if first.get("optimizer") is not None:
            content.left_out.append("optimizer: the states of stage 0 have no names of params")
        return content
    shapes = [
        {name: tuple(shape) for name, shape in group.items()} for group in first["param_shapes"]
    ]
    try:
        if stage == 3:
            add_stage_3(content, models, optimizers, shapes)
        else:
            add_stage_2(content, models, optimizers, shapes)
    except (KeyError, IndexError, ValueError) as error:
        raise ConvertError(
            f"{folder} is not as DeepSpeed {first.get('ds_version', '?')} writes it: {error!r}"
        ) from error
    return content


def stage_of(optimizers: list[Any]) -> int:
    if not optimizers:
        return 0
    stage = optimizers[0].get("zero_stage", 1)
    if isinstance(stage, pickles.Inert):
        stage = stage.args[0]
    return int(getattr(stage, "value", stage))


def refuse_lost_states(folder: Path, first: Mapping[str, Any]) -> None:
    """ConvertError if the optimizer's states were saved, but their files are gone."""
    config = first.get("ds_config")
    zero = config.get("zero_optimization") if isinstance(config, dict) else None
    stage = zero.get("stage") if isinstance(zero, dict) else int(bool(zero))
    stage = stage if isinstance(stage, int) else 0
    if first.get("optimizer") is not None or (stage == 0 and not first.get("param_shapes")):
        return
    advice = "copy all its files"
    if stage < 3:
        advice += ", or import mp_rank_00_model_states.pt as a file, for its values alone"
    raise ConvertError(
        f"{folder} has no *_optim_states.pt, in which ZeRO-{stage or 1} keeps f32 values and the "
        f"states of the optimizer: {advice}"
    )


def add_common(content: Content, first: Mapping[str, Any]) -> None:
    content.step = int(first.get("global_steps") or 0)
    config = first.get("ds_config") or {}
    if isinstance(config, dict):
        content.rule = rule_of(str((config.get("optimizer") or {}).get("type", "")))
    for key in ("skipped_steps", "global_samples"):
        content.state[key] = int(first.get(key) or 0)
    content.keep_json(
        (key, value) for key, value in first.items() if key not in OWN_KEYS and value is not None
    )
    scheduler = first.get("lr_scheduler")
    if scheduler is not None:
        content.keep_json([("lr_scheduler", scheduler)])


def add_module(content: Content, first: Mapping[str, Any], skip: Any) -> None:
    """Values as the module has them: all under stages 0 to 2, buffers under stage 3."""
    shared = first.get("shared_params") or {}
    for name, tensor in (first.get("module") or {}).items():
        if name not in skip and name not in shared and isinstance(tensor, torch.Tensor):
            content.tensors.append(Found.whole(name, "values", tensor))


def add_params(
    content: Content, first: Mapping[str, Any], name: str, shape: tuple[int, ...], parts: list[Part]
) -> None:
    """The f32 values of a param, and those of its own dtype."""
    dtype = first["module"][name].dtype
    master = Found(name, "values", torch.float32, shape, parts)
    if dtype == torch.float32:
        content.tensors.append(master)
        return
    master.kind = "master"
    given = first["module"][name]
    values = given if given.numel() == math.prod(shape) else master.tensor().to(dtype)
    content.tensors += [master, Found.whole(name, "values", values.reshape(shape))]


def add_stage_2(
    content: Content,
    models: list[dict[str, Any]],
    optimizers: list[Any],
    shapes: list[dict[str, Any]],
) -> None:
    first = models[0]
    paddings = optimizers[0].get("param_alignment_paddings")
    bases = [rank["base_optimizer_state"] for rank in optimizers]
    for g, names in enumerate(shapes):
        masters = Stream(rank["single_partition_of_fp32_groups"][g] for rank in optimizers)
        states = [
            base[g] if isinstance(base, list) else base.get("state", {}).get(g, {})
            for base in bases
        ]
        streams = state_streams(content, states)
        at = 0
        for p, (name, shape) in enumerate(names.items()):
            count = math.prod(shape)
            add_params(content, first, name, shape, list(masters.take(at, count)))
            for kind, stream in streams.items():
                content.tensors.append(
                    Found(name, kind, torch.float32, shape, list(stream.take(at, count)))
                )
            at += count + (paddings[g][p] if paddings else 0)
    add_module(content, first, skip={name for names in shapes for name in names})
    base = bases[0]
    content.add_groups(shapes, base.get("param_groups", []) if isinstance(base, dict) else [])
    add_loss_scale(content, optimizers[0])


def add_stage_3(
    content: Content,
    models: list[dict[str, Any]],
    optimizers: list[Any],
    shapes: list[dict[str, Any]],
) -> None:
    first, world = models[0], len(optimizers)
    masters = [Stream(rank["fp32_flat_groups"]) for rank in optimizers]
    inner = [rank["optimizer_state_dict"] for rank in optimizers]
    streams = [sub_group_streams(content, each) for each in inner]
    begins: list[int] = []  # of the groups, in a rank's flat
    at = 0
    for names in shapes:
        begins.append(at)
        for name, shape in names.items():
            count = math.prod(shape)
            add_params(content, first, name, shape, cut(masters, at, count))
            for kind in streams[0]:
                parts = cut([of_rank[kind] for of_rank in streams], at, count)
                content.tensors.append(Found(name, kind, torch.float32, shape, parts))
            at += math.ceil(count / world)
    for name, shape in (first.get("frozen_param_shapes") or {}).items():
        fragments = [Stream([rank["frozen_param_fragments"][name]]) for rank in models]
        dtype = first["frozen_param_fragments"][name].dtype
        parts = cut(fragments, 0, math.prod(shape))
        content.tensors.append(Found(name, "values", dtype, tuple(shape), parts))
    params = {name for names in shapes for name in names} | set(
        first.get("frozen_param_shapes") or {}
    )
    add_module(content, first, skip=params)
    content.add_groups(shapes, groups_at(begins, optimizers[0], inner[0]))
    add_loss_scale(content, optimizers[0])


def cut(ranks: list[Stream], at: int, count: int) -> list[Part]:
    """A param of stage 3: each rank has ceil(count / ranks) elements at `at` of its flat."""
    size = math.ceil(count / len(ranks))
    parts = []
    for rank, stream in enumerate(ranks):
        own = min(size, count - rank * size)
        if own > 0:
            parts += [Part(rank * size + p.begin, p.data) for p in stream.take(at, own)]
    return parts


def state_streams(content: Content, states: list[dict[str, Any]]) -> dict[str, Stream]:
    """The states of a group, by kind, over all ranks."""
    return {
        state_kind(key): Stream(state[key] for state in states)
        for key in long_keys(content, states[0])
    }


def sub_group_streams(content: Content, inner: dict[str, Any]) -> dict[str, Stream]:
    """The states of a rank, by kind, over its sub-groups."""
    states = [state for _, state in sorted(inner.get("state", {}).items())]
    if not states:
        return {}
    return {
        state_kind(key): Stream(state[key] for state in states)
        for key in long_keys(content, states[0])
    }


def long_keys(content: Content, state: dict[str, Any]) -> Iterator[str]:
    for key, value in state.items():
        if key == "step":
            content.optimizer_steps = int(value)
        elif isinstance(value, torch.Tensor) and value.dim() == 1:
            yield key


def groups_at(begins: list[int], outer: Any, inner: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers of each group: those of the sub-group in which it begins."""
    numbers: list[dict[str, Any]] = inner.get("param_groups", [])
    if len(numbers) == len(begins):
        return numbers
    out, at, ends = [], 0, []
    for flat in outer["fp32_flat_groups"]:
        at += flat.numel()
        ends.append(at)
    for begin in begins:
        index = next((i for i, end in enumerate(ends) if begin < end), len(ends) - 1)
        out.append(numbers[min(index, len(numbers) - 1)])
    return out


def add_loss_scale(content: Content, optimizer: Any) -> None:
    scaler = optimizer.get("loss_scaler")
    scale = getattr(scaler, "cur_scale", None)
    if scale is None:
        return
    if math.isfinite(scale):
        content.state["loss_scale"] = float(scale)
    else:  # DeepSpeed's grows without a limit while all gradients are zero
        content.left_out.append(f"the loss scale, {float(scale)}: a run begins with its config's")
