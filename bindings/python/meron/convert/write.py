# SPDX-License-Identifier: Apache-2.0
"""Content as a checkpoint of Meron."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from meron.checkpoint import CheckpointTensor, write_checkpoint
from meron.convert.content import DTYPES, Content, ConvertError, Found
from meron.convert.detect import read

NUMBERS = {"lr": "learning_rate", "eps": "epsilon", "weight_decay": "weight_decay"}


def import_checkpoint(
    source: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    name: str | None = None,
    *,
    format: str = "auto",
    tag: str | None = None,
    trust: bool = False,
    values_only: bool = False,
    overwrite: bool = False,
) -> Content:
    """Writes a checkpoint of another program as one of Meron.

    Values, f32 masters, states of the optimizer, the numbers of its groups, counts of steps, and
    those of the caller's own objects that JSON can represent. Code in the files runs only if
    `trust` is true.

    Args:
        source: a folder of DeepSpeed (a run's or one checkpoint's), a universal checkpoint, a
                checkpoint of torch.distributed.checkpoint, or a file of torch.save.
        folder: of Meron's checkpoints; made if it is not there.
        name:   None: "step-N".
        format: "auto", "deepspeed", "universal", "dcp" or "torch".
        tag:    of DeepSpeed's checkpoints in a run's folder; None: the latest.
        values_only: leave the states of optimizers and the masters out.

    Returns:
        The content, with `left_out`: the parts that were not imported, and the reasons.

    Blocks on the drive. Raises ConvertError for what cannot be read, and the errors of
    write_checkpoint.
    """
    content = read(source, format=format, tag=tag, trust=trust)
    if values_only:
        content.tensors = [found for found in content.tensors if found.kind == "values"]
        content.groups = []
    optimizers = optimizers_of(content, source)
    write_checkpoint(
        folder,
        name or f"step-{content.step}",
        [part for found in content.tensors for part in as_parts(found)],
        step=content.step,
        extra=extra_of(content, Path(source)),
        optimizers=optimizers,
        overwrite=overwrite,
    )
    return content


def as_parts(found: Found) -> list[CheckpointTensor]:
    dtype = DTYPES.get(found.dtype)
    if dtype is None:
        raise ConvertError(
            f"{found.kind} of {found.name} has dtype {found.dtype}, which checkpoints have not"
        )
    return [
        CheckpointTensor(
            name=found.name,
            dtype=dtype,
            shape=found.shape,
            data=buffer_of(part.data),
            begin=part.begin,
            kind=found.kind,
        )
        for part in found.parts
        if part.data.numel() or len(found.parts) == 1
    ]


def buffer_of(data: torch.Tensor) -> Any:
    """The bytes of a tensor, without a copy where it is contiguous."""
    return data.contiguous().view(torch.uint8).numpy() if data.numel() else b""


def extra_of(content: Content, source: Path) -> dict[str, Any]:
    imported = {
        "from": content.source,
        "path": source.name,
        "optimizer_steps": content.optimizer_steps,
        "groups": [group.params for group in content.groups],
        **content.state,
    }
    return {**content.extra, "imported": imported}


def optimizers_of(content: Content, source: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """As the manifest lists them: one, whose states are in the checkpoint."""
    if not content.groups or not content.rule:
        if any(found.kind not in ("values", "master") for found in content.tensors):
            lacking = "name its update rule" if content.groups else "have the numbers of its groups"
            content.left_out.append(
                f"learning rates and steps of the optimizer: the checkpoint does not {lacking}"
            )
        return []
    groups = []
    for index, group in enumerate(content.groups):
        if group.numbers.get("lr") is None:
            raise ConvertError(
                f"{os.fspath(source)}: param group {index} of the optimizer has no learning rate "
                "('lr'). Import the values alone, with --values-only"
            )
        beta1, beta2 = (*(group.numbers.get("betas") or (0.9, 0.999)), 0.0)[:2]
        if content.rule == "sgd":
            beta1, beta2 = group.numbers.get("momentum", 0.0), 0.0
        numbers = {ours: float(group.numbers.get(theirs, 0.0)) for theirs, ours in NUMBERS.items()}
        groups.append({**numbers, "beta1": float(beta1), "beta2": float(beta2)})
    return [{"rule": content.rule, "steps": content.optimizer_steps, "groups": groups}]
