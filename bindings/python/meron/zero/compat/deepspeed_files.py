# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint that DeepSpeed saved, as deepspeed.utils.zero_to_fp32 names them.

Lightning's converter reads them. A checkpoint of Meron has none of them: its files are shards of
tensors, without a pickle.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NoReturn, Union

from meron import errors
from meron.zero.zero_to_fp32 import MANIFEST

PathLike = Union[str, "os.PathLike[str]"]

__all__ = [
    "get_checkpoint_files",
    "get_model_state_file",
    "get_model_state_files",
    "get_optim_files",
]


class MissingFilesError(errors.NotFoundError, FileNotFoundError):
    """A folder without the files of DeepSpeed. FileNotFoundError is what DeepSpeed raises."""


def get_model_state_file(checkpoint_dir: PathLike, zero_stage: int) -> str:
    """The file of DeepSpeed's rank 0 that has the module and the client state.

    Args:
        checkpoint_dir: the folder of a tag, such as global_step12.
        zero_stage: of the run that saved it; at stage 3 the file has another name.

    Raises MissingFilesError.
    """
    prefix = "zero_pp_rank_0_" if zero_stage == 3 else ""
    file = existing(checkpoint_dir) / f"{prefix}mp_rank_00_model_states.pt"
    if not file.is_file():
        refuse(file.parent, file.name)
    return str(file)


def get_checkpoint_files(checkpoint_dir: PathLike, glob_pattern: str) -> list[str]:
    """The files of a folder that fit a pattern, numbers in their names in order. Raises
    MissingFilesError if there is none."""
    files = [str(file) for file in existing(checkpoint_dir).glob(glob_pattern)]
    if not files:
        refuse(Path(checkpoint_dir), glob_pattern)
    return sorted(files, key=natural)


def get_optim_files(checkpoint_dir: PathLike) -> list[str]:
    """The files of optimizer states, by rank. Raises MissingFilesError if there is none."""
    return get_checkpoint_files(checkpoint_dir, "*_optim_states.pt")


def get_model_state_files(checkpoint_dir: PathLike) -> list[str]:
    """The files of modules, by rank. Raises MissingFilesError if there is none."""
    return get_checkpoint_files(checkpoint_dir, "*_model_states.pt")


def natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]


def existing(folder: PathLike) -> Path:
    if not os.path.isdir(folder):
        raise MissingFilesError(f"there is no directory {os.fspath(folder)!r}")
    return Path(folder)


def refuse(folder: Path, pattern: str) -> NoReturn:
    if (folder / MANIFEST).is_file():
        raise MissingFilesError(
            f"{folder} is a checkpoint of Meron, which has no {pattern}",
            advice="Call meron.lightning.convert_zero_checkpoint_to_fp32_state_dict if Lightning "
            "saved it, get_fp32_state_dict_from_zero_checkpoint of this module for its weights, or "
            "meron.open_checkpoint for all that it has.",
        )
    raise MissingFilesError(
        f"{folder} has no file {pattern}", advice="Name the folder of a tag, such as global_step12."
    )
