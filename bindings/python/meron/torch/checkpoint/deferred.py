# SPDX-License-Identifier: Apache-2.0
"""Models that were built on the device meta and get their values from a checkpoint: init="defer".

Buffers that no file has, such as tables of rotary embeddings, are made by the module that has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from meron import errors
from meron.torch.torch_internals import RESET, own_buffers, own_params
from meron.torch.values.unwritten import check_written, share_buffers, unwritten

if TYPE_CHECKING:
    from meron.torch.checkpoint.names import Names


def refuse_meta_buffers(names: Names) -> None:
    """StateError naming temporary buffers on meta that their modules cannot fill. Local."""
    lost = [name for name, part, _ in meta_buffers(names) if filler_of(part) is None]
    if lost:
        raise errors.StateError(
            f"{len(lost)} buffers are on the device meta, and no file has them: "
            + ", ".join(lost[:8]),
            subject=lost[0],
            advice="Assign them real tensors after building the model, give their class a method "
            "reset_parameters() that does, or build buffers on the CPU.",
        )


def meta_buffers(names: Names) -> Iterator[tuple[str, torch.nn.Module, str]]:
    for name, (part, own) in names.temporary.items():
        buffer = own_buffers(part)[own]
        if buffer is not None and buffer.is_meta:
            yield name, part, own


def filler_of(part: torch.nn.Module) -> Any:
    """A function that fills a module's own buffers: reset_parameters of one without params. For
    rotary embeddings of transformers, it copies those of a new one made of the same config."""
    if any(param is not None for param in own_params(part).values()):
        return None
    for name in RESET:
        if hasattr(part, name):
            return getattr(part, name)
    if hasattr(part, "config") and "inv_freq" in own_buffers(part):
        return lambda: fill_rotary(part)
    return None


def fill_rotary(part: torch.nn.Module) -> None:
    made = type(part)(part.config)
    for name, buffer in own_buffers(made).items():
        if buffer is not None:
            own_buffers(part)[name] = buffer
    for name in ("attention_scaling", "original_inv_freq"):
        if name in made.__dict__:
            part.__dict__[name] = made.__dict__[name]


def fill_buffers(names: Names) -> None:
    """Gives temporary buffers on meta their values, rank 0's. Collective.

    Raises StateError on all ranks that names what was not filled.
    """
    place = names.sharding.torch_device
    missing = list(meta_buffers(names))
    parts = dict.fromkeys(part for _, part, _ in missing)
    for part in parts:
        for own, buffer in own_buffers(part).items():
            if buffer is not None and buffer.is_meta:
                own_buffers(part)[own] = unwritten(buffer.shape, buffer.dtype)
        with torch.device("cpu"), torch.no_grad():
            filler_of(part)()
    written = {name: own_buffers(part)[own] for name, part, own in missing}
    check_written(names.sharding, {k: value for k, value in written.items() if value is not None})
    for part in parts:
        share_buffers(names.sharding, part, [own for _, each, own in missing if each is part])
        for own, buffer in own_buffers(part).items():
            if buffer is not None and buffer.device != place:
                own_buffers(part)[own] = buffer.to(place)
