# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's directory as one file, which Lightning and torch load without Meron."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from meron.lightning import checkpoints, deepspeed_folder
from meron.zero import zero_to_fp32


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    tag: str | None = None,
) -> dict[str, Any]:
    """Writes a directory that a strategy of Meron, or Lightning's DeepSpeedStrategy, saved as one
    file of Lightning. Local.

    The file has f32 weights as `state_dict`, beside all that Lightning saved: any strategy and
    `load_from_checkpoint` take it. It exists whole or not at all.

    Args:
        checkpoint_dir: NAME.ckpt.
        output_file: is replaced.
        tag: of the checkpoint in the directory; default is what its file `latest` says.

    Returns the file's content. Raises ValueError (no `latest`), FileNotFoundError (no checkpoint).
    """
    content = read(checkpoint_dir, tag)
    target = Path(output_file)
    part = target.with_name(f".{target.name}.part")
    try:
        torch.save(content, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return content


def load_from_checkpoint(
    module_class: Any, checkpoint_path: str | os.PathLike[str], **arguments: Any
) -> Any:
    """As `module_class.load_from_checkpoint`, of a directory that a strategy of Meron, or
    Lightning's DeepSpeedStrategy, saved. Local.

        model = meron.lightning.load_from_checkpoint(LitGPT, "runs/last.ckpt")

    Args:
        module_class: a LightningModule or LightningDataModule.
        checkpoint_path: NAME.ckpt; or a file, for which this is the class's own method.
        arguments: of that method, such as map_location, strict and hyperparameters.
    """
    if os.path.isfile(checkpoint_path):
        return module_class.load_from_checkpoint(checkpoint_path, **arguments)
    with tempfile.TemporaryFile() as file:
        torch.save(read(checkpoint_path), file)
        file.seek(0)
        return module_class.load_from_checkpoint(file, **arguments)


def read(folder: str | os.PathLike[str], tag: str | None = None) -> dict[str, Any]:
    """All of a checkpoint, of Meron or of Lightning's DeepSpeedStrategy, with f32 weights, in
    memory."""
    foreign = deepspeed_folder.find(os.fspath(folder))
    if foreign is not None:
        content = deepspeed_folder.Folder(foreign, None, tag).state
        content.setdefault("optimizer_states", [])
        return content
    found = zero_to_fp32.find_checkpoint(folder, tag)
    load = functools.partial(torch.load, map_location="cpu", weights_only=False)
    try:
        state: dict[str, Any] = checkpoints.from_bytes(checkpoints.read_bytes(found), load)
    except KeyError:
        raise ValueError(
            f"{found} has no state of Lightning: convert it by meron.zero.zero_to_fp32"
        ) from None
    state.setdefault("optimizer_states", [])
    weights = zero_to_fp32.lazy_state_dict(found, False)
    state["state_dict"] = zero_to_fp32.read_all(weights)
    return state
