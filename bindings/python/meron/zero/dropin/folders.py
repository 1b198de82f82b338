# SPDX-License-Identifier: Apache-2.0
"""The folders for PYTHONPATH and PATH in which `deepspeed` is Meron."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "site"


def folder() -> str:
    """The folder that holds the package `deepspeed` and its metadata."""
    return str(FOLDER)


def bin_folder() -> str:
    """The folder of the commands `deepspeed` and `ds_report`, for PATH."""
    return str(FOLDER / "bin")


def python_path(before: str | None = None) -> str:
    """A value for PYTHONPATH: the folder, then what was there before."""
    return os.pathsep.join([folder(), before]) if before else folder()
