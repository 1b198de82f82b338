# SPDX-License-Identifier: Apache-2.0
"""The training text: some files, one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Where Debian keeps the texts of common licences: what is read when no file is named.
DEFAULT_FOLDER = Path("/usr/share/common-licenses")


class NoText(Exception):
    """Why there is nothing to train on."""


def load(paths: list[str]) -> NDArray[np.uint8]:
    """Reads the files, or those of DEFAULT_FOLDER when none is named."""
    pieces = []
    for path in paths:
        try:
            piece = Path(path).read_bytes()
        except OSError as error:
            raise NoText(f"cannot read {path}: {error.strerror}") from error
        if not piece:
            raise NoText(f"{path} is empty")
        pieces.append(piece)
    if not paths:
        pieces = [path.read_bytes() for path in default_files()]
    text = b"".join(pieces)
    if not text:
        raise NoText(f"this machine has no texts in {DEFAULT_FOLDER}")
    return np.frombuffer(text, np.uint8)


def default_files() -> list[Path]:
    """In the order of their names; a file that has a second name by a link counts once."""
    files: dict[tuple[int, int], Path] = {}
    for path in sorted(DEFAULT_FOLDER.glob("*")):
        if path.is_file():
            status = path.stat()
            files.setdefault((status.st_dev, status.st_ino), path)
    return list(files.values())
