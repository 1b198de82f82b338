# SPDX-License-Identifier: Apache-2.0
"""The state of torch's random numbers, of each rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from meron.checkpoint import CheckpointTensor
from meron.torch.checkpoint import packing
from meron.torch.checkpoint.files import saved_tensor
from meron.torch.checkpoint.reading import Reader


def name_of(device: str, rank: int) -> str:
    return f"meron.torch.rng.{device}.{rank}"


def states(rank: int) -> Iterator[CheckpointTensor]:
    """The states that this rank saves. Local."""
    yield saved_tensor(name_of("cpu", rank), torch.get_rng_state())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield saved_tensor(name_of("cuda", rank), torch.cuda.get_rng_state())


def read(reader: Reader, rank: int) -> dict[str, torch.Tensor]:
    """This rank's states by device; nothing where it saved none. Collective if the reader is."""
    found = {}
    for each in range(reader.context.world_size) if reader.collective else (rank,):
        for device in ("cpu", "cuda"):
            if ("extra", name_of(device, each)) in reader.checkpoint.tensors:
                state = reader.whole(name_of(device, each), "extra")
                if each == rank:
                    found[device] = state
    return found


def check(found: dict[str, torch.Tensor]) -> None:
    """ParseError for a state that torch would not take. Changes nothing. Local."""
    for device, state in found.items():
        if device == "cuda" and not torch.cuda.is_available():
            continue
        try:
            torch.Generator(device).set_state(state)
        except (RuntimeError, TypeError) as error:
            raise packing.unreadable(f"the state of random numbers of {device}", error) from error


def restore(found: dict[str, torch.Tensor]) -> None:
    if "cpu" in found:
        torch.set_rng_state(found["cpu"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
