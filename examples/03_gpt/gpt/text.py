# SPDX-License-Identifier: Apache-2.0
"""The training text, some files one after the other, and examples from it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

# Where Debian keeps the texts of common licences: what is read when no file is named.
DEFAULT_FOLDER = Path("/usr/share/common-licenses")


class NoText(Exception):
    """Why there is nothing to train on."""


def load(paths: list[str]) -> Tensor:
    """The bytes of the files, or of those of DEFAULT_FOLDER when none is named."""
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
    text = bytearray().join(pieces)
    if not text:
        raise NoText(f"this machine has no texts in {DEFAULT_FOLDER}")
    return torch.frombuffer(text, dtype=torch.uint8)


def default_files() -> list[Path]:
    """In the order of their names; a file that has a second name by a link counts once."""
    files: dict[tuple[int, int], Path] = {}
    for path in sorted(DEFAULT_FOLDER.glob("*")):
        if path.is_file():
            status = path.stat()
            files.setdefault((status.st_dev, status.st_ino), path)
    return list(files.values())


class Examples:
    """Micro-batches, numbered over all ranks and steps: which bytes are in number n depends on n
    and the seed alone. So one process that takes all of them sees what N ranks see together."""

    def __init__(self, text: Tensor, batch: int, context: int, seed: int) -> None:
        self.text, self.batch, self.context, self.seed = text, batch, context, seed

    def __getitem__(self, number: int) -> Tensor:
        """(batch, context + 1) of bytes."""
        generator = torch.Generator().manual_seed(self.seed << 32 | number)
        last = len(self.text) - self.context
        places = torch.randint(last, (self.batch, 1), generator=generator)
        return self.text[places + torch.arange(self.context + 1)].long()
