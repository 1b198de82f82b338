# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's directory as one file, which Lightning and torch load without Meron."""

from __future__ import annotations

import inspect
import os
import tempfile
from pathlib import Path
from typing import Any

import torch

import meron
from meron.lightning import deepspeed_folder, own_state
from meron.zero import zero_to_fp32


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: str | os.PathLike[str],
    output_file: str | os.PathLike[str],
    tag: str | None = None,
    *,
    weights_only: bool | None = None,
) -> dict[str, Any]:
    """Writes a directory that a strategy of Meron, or Lightning's DeepSpeedStrategy, saved as one
    file of Lightning. Local.

    The file has f32 weights as `state_dict`, beside all that Lightning saved: any strategy and
    `load_from_checkpoint` take it. It exists whole or not at all.

    Args:
        checkpoint_dir: NAME.ckpt.
        output_file: is replaced.
        tag: of the checkpoint in the directory; default is what its file `latest` says.
        weights_only: False trusts whoever made the checkpoint: objects that Lightning's state has
            besides tensors and plain values may then run code. Default is torch's, which runs none.

    Returns the file's content. Raises ValueError (no `latest`), FileNotFoundError (no checkpoint),
    LoadError (objects in it need trust), CorruptError (names the file and the offset).
    """
    content = read(checkpoint_dir, tag, weights_only)
    with zero_to_fp32.replacing(Path(output_file)) as file:
        torch.save(content, file)
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
        arguments: of that method, such as map_location, strict, weights_only and hyperparameters.

    Raises LoadError (objects in it need weights_only=False), CorruptError (names the file and the
    offset).
    """
    if os.path.isfile(checkpoint_path):
        return module_class.load_from_checkpoint(checkpoint_path, **arguments)
    content = read(checkpoint_path, None, arguments.pop("weights_only", None))
    load = module_class.load_from_checkpoint
    if "weights_only" in inspect.signature(load).parameters:  # not before Lightning 2.6
        arguments["weights_only"] = False  # this process writes the file
    with tempfile.TemporaryFile() as file:
        torch.save(content, file)
        file.seek(0)
        return load(file, **arguments)


def read(
    folder: str | os.PathLike[str], tag: str | None, weights_only: bool | None
) -> dict[str, Any]:
    """All of a checkpoint, of Meron or of Lightning's DeepSpeedStrategy, with f32 weights, in
    memory."""
    foreign = deepspeed_folder.find(os.fspath(folder))
    if foreign is not None:
        content = deepspeed_folder.Folder(foreign, weights_only, tag).state
        content.setdefault("optimizer_states", [])
        return content
    found = zero_to_fp32.find_checkpoint(folder, tag)
    with meron.open_checkpoint(found) as checkpoint:
        try:
            state = own_state.read(checkpoint, weights_only)
        except own_state.NoState:
            raise ValueError(
                f"{found} has no state of Lightning: convert it by meron.zero.zero_to_fp32"
            ) from None
        state.setdefault("optimizer_states", [])
        weights = zero_to_fp32.lazy_state_dict(zero_to_fp32.LibraryReader(checkpoint), False)
        state["state_dict"] = zero_to_fp32.read_all(weights)
    return state
