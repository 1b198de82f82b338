# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's directory as one file, which Lightning and torch load without Meron."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import meron
from meron.lightning import deepspeed_folder, own_state
from meron.lightning.trees import Tree
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
    load = module_class.load_from_checkpoint
    if os.path.isfile(checkpoint_path):
        return load(checkpoint_path, **arguments)
    with as_file(checkpoint_path, arguments.pop("weights_only", None)) as file:
        if "weights_only" in inspect.signature(load).parameters:  # not before Lightning 2.6
            arguments["weights_only"] = False  # this process writes the file
        return load(file, **arguments)


@functools.cache
def hook_loads(tree: Tree) -> None:
    """Lets `load_from_checkpoint` of a tree's modules take a directory too.

    Lightning has one function that opens checkpoints, and no place to add another reader.
    """
    saving: Any = importlib.import_module(f"{tree.pl.__name__}.core.saving")
    plain = saving.pl_load

    @functools.wraps(plain)
    def load(
        path_or_url: Any, map_location: Any = None, weights_only: bool | None = None, **more: Any
    ) -> Any:
        if not is_folder(path_or_url):
            return plain(path_or_url, map_location, weights_only=weights_only, **more)
        with as_file(path_or_url, weights_only) as file:
            return plain(file, map_location, weights_only=False, **more)

    saving.pl_load = load


def is_folder(path: Any) -> bool:
    """True for the directory of a checkpoint of Meron, or of Lightning's DeepSpeedStrategy."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.isdir(path):
        return False
    if deepspeed_folder.find(os.fspath(path)) is not None:
        return True
    try:
        zero_to_fp32.find_checkpoint(path)
    except (ValueError, OSError):
        return False
    return True


@contextlib.contextmanager
def as_file(folder: str | os.PathLike[str], weights_only: bool | None) -> Iterator[Any]:
    """A directory as a file of Lightning, which is open and has no name."""
    content = read(folder, None, weights_only)
    with tempfile.TemporaryFile() as file:
        torch.save(content, file)
        file.seek(0)
        yield file


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
