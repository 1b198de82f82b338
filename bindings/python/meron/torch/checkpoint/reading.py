# SPDX-License-Identifier: Apache-2.0
"""Tensors of a checkpoint that Python reads: by each rank, or by rank 0 for all."""

from __future__ import annotations

import os

import numpy as np
import torch

import meron
from meron import errors
from meron.checkpoint import Checkpoint, open_checkpoint
from meron.torch.checkpoint.agreement import from_rank, tensor_from_rank, together
from meron.torch.checkpoint.files import TORCH_DTYPES, bytes_of, read_tensor

PIECE = 1 << 24  # elements that rank 0 sends at once


class Reader:
    """Reads parts of tensors.

    Attributes:
        checkpoint: what is read; of a rank that does not see the files: its table of contents.
        collective: whether its methods are, so that all ranks read the same in one order.
    """

    def __init__(self, context: meron.Context, checkpoint: Checkpoint, rank0_only: bool) -> None:
        self.context = context
        self.checkpoint = checkpoint
        self.rank0_only = rank0_only and context.world_size > 1
        self.collective = self.rank0_only

    def part(self, name: str, kind: str, own: range) -> torch.Tensor:
        """Elements of a tensor, flat, as it is in the files."""
        if not self.rank0_only:
            return read_tensor(self.checkpoint, name, kind, own.start, len(own)).view(-1)
        entry = self.checkpoint.tensors[kind, name]
        size = int(np.prod(entry["shape"], dtype=object))
        out = torch.empty(len(own), dtype=TORCH_DTYPES[entry["dtype"]], device="cpu")
        for begin in range(0, size, PIECE):
            piece = torch.empty(min(PIECE, size - begin), dtype=out.dtype, device="cpu")
            with together(self.context):
                if self.context.rank == 0:
                    self.checkpoint.read_into(
                        bytes_of(piece), name, kind, begin=begin, count=len(piece)
                    )
            tensor_from_rank(self.context, piece)
            low, high = max(begin, own.start), min(begin + len(piece), own.stop)
            if low < high:
                out[low - own.start : high - own.start] = piece[low - begin : high - begin]
        return out

    def whole(self, name: str, kind: str = "values") -> torch.Tensor:
        """All of a tensor, of its shape."""
        shape = self.checkpoint.tensors[kind, name]["shape"]
        size = int(np.prod(shape, dtype=object))
        return self.part(name, kind, range(size)).view(tuple(shape))


class Contents(Checkpoint):
    """Rank 0's description of a checkpoint that this rank does not see."""

    def __init__(self, manifest: str, path: str) -> None:
        import json

        self._handle = None
        self._whole = json.loads(manifest)
        self.path = path
        self.step = int(self._whole["step"])
        self.world = int(self._whole["world"])
        self.extra = self._whole["extra"]
        self.missing = self.unexpected = ()
        self._tensors = None

    @property
    def manifest(self):  # type: ignore[no-untyped-def]
        return self._whole


def open_together(
    context: meron.Context, folder: str | os.PathLike[str], name: str | None, rank0_only: bool
) -> tuple[Checkpoint, str | None]:
    """The same checkpoint on all ranks, and its name in `folder`. Collective.

    Without a name rank 0 looks for the newest one, as others may be saved meanwhile.
    """
    import json

    opened: Checkpoint | None = None
    chosen = ""
    with together(context):
        if context.rank == 0:
            opened = open_checkpoint(folder, name)
            base = os.path.realpath(os.fsdecode(folder))
            inside = os.path.realpath(os.path.dirname(opened.path)) == base
            chosen = os.path.basename(opened.path) if inside and os.path.isdir(base) else ""
    if rank0_only and context.world_size > 1:
        text = json.dumps(opened.manifest) if opened is not None else ""
        path = from_rank(context, opened.path if opened is not None else "")
        text = from_rank(context, text)
        return opened or Contents(text, path), name
    chosen = from_rank(context, chosen)
    found = chosen or name
    with together(context):
        if opened is None:
            opened = open_checkpoint(folder, found)
    assert opened is not None
    own = opened.manifest.get("id", "")
    theirs = from_rank(context, own)
    with together(context):
        if theirs != own:
            raise errors.StateError(
                f"{opened.path} is another checkpoint on rank {context.rank} than on rank 0",
                subject=str(opened.path),
                advice="Give a folder that all ranks see, or rank0_only=True.",
            )
    return opened, found
