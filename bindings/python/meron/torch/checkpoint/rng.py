# SPDX-License-Identifier: Apache-2.0
"""The state of torch's random numbers, of each rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from meron.checkpoint import Checkpoint, CheckpointTensor
from meron.torch.checkpoint.files import read_tensor, saved_tensor


def name_of(device: str, rank: int) -> str:
    return f"meron.torch.rng.{device}.{rank}"


def states(rank: int) -> Iterator[CheckpointTensor]:
    """What this rank saves. Local."""
    yield saved_tensor(name_of("cpu", rank), torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield saved_tensor(name_of("cuda", rank), torch.cuda.get_rng_state())


def read(checkpoint: Checkpoint, rank: int) -> dict[str, torch.Tensor]:
    """This rank's states by device; nothing where it saved none. Local."""
    return {
        device: read_tensor(checkpoint, name_of(device, rank), "extra")
        for device in ("cpu", "cuda")
        if ("extra", name_of(device, rank)) in checkpoint.tensors
    }


def restore(found: dict[str, torch.Tensor]) -> None:
    if "cpu" in found:
        torch.set_rng_state(found["cpu"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
