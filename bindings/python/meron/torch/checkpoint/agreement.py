# SPDX-License-Identifier: Apache-2.0
"""Agreement of ranks on errors, and exchange of small data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

import meron
from meron import errors


class LoadError(errors.ArgumentError, RuntimeError):
    """Something does not fit on some rank. Also a RuntimeError, as torch raises."""


@contextlib.contextmanager
def together(context: meron.Context) -> Iterator[None]:
    """Runs a block without collectives; where it raised on any rank, raises on all. Collective.

    A rank whose block raised raises its own error, the others one of the same kind that names the
    ranks and has their messages.
    """
    error: Exception | None = None
    try:
        yield
    except Exception as raised:
        error = raised
    found = errors_of_all(context, error)
    if error is not None:
        raise error
    if found:
        status, _ = found[0][1].split("\n", 1)
        texts = [f"rank {rank}: {text.split(chr(10), 1)[1]}" for rank, text in found]
        raise errors.make(int(status), "; ".join(dict.fromkeys(texts)), rank=found[0][0])


def errors_of_all(context: meron.Context, error: Exception | None) -> list[tuple[int, str]]:
    """The ranks that have an error, each with its status and its message on lines. Collective."""
    text = ""
    if error is not None:
        status = getattr(error, "status", None) or errors.ArgumentError.status
        text = f"{status}\n{getattr(error, 'message', '') or str(error) or type(error).__name__}"
    texts = texts_of_all(context, text, undecodable="replace")
    return [(rank, found) for rank, found in enumerate(texts) if found]


def texts_of_all(context: meron.Context, text: str, undecodable: str = "strict") -> list[str]:
    """The texts of all ranks, by rank. Collective."""
    ranks, own = context.world_size, context.rank
    if ranks == 1:
        return [text]
    sizes = np.zeros((ranks, 2), np.float32)
    data = text.encode()
    sizes[own] = divmod(len(data), 4096)
    context.world.all_reduce(sizes)
    found = [""] * ranks
    for rank in range(ranks):
        size = int(sizes[rank, 0]) * 4096 + int(sizes[rank, 1])
        if size:
            of_rank = np.frombuffer(data, np.uint8).copy() if rank == own else np.zeros(size, "u1")
            context.world.broadcast(of_rank, rank)
            found[rank] = of_rank.tobytes().decode(errors=undecodable)
    return found


def from_rank(context: meron.Context, text: str, root: int = 0) -> str:
    """The root's text, on all ranks. Collective."""
    if context.world_size == 1:
        return text
    data = text.encode()
    size = np.array(divmod(len(data), 4096), np.float32)
    context.world.broadcast(size, root)
    count = int(size[0]) * 4096 + int(size[1])
    ours = context.rank == root
    own = np.frombuffer(data, np.uint8).copy() if ours else np.zeros(count, np.uint8)
    if count:
        context.world.broadcast(own, root)
    return own.tobytes().decode()


def require_same(context: meron.Context, first: str, own: str, what: str, advice: str) -> None:
    """ArgumentError where `own` is not the text `first` of rank 0. Local: call it `together`."""
    if own != first:
        raise errors.argument(
            f"{what} is {own!r} on rank {context.rank} and {first!r} on rank 0",
            subject=what,
            advice=advice,
        )


def tensor_from_rank(context: meron.Context, tensor: torch.Tensor, root: int = 0) -> torch.Tensor:
    """The root's values, written into the contiguous host tensors of all ranks. Collective."""
    if context.world_size > 1 and tensor.numel():
        context.world.broadcast(tensor.view(-1).view(torch.uint8).numpy(), root)
    return tensor
