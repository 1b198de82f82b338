# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests of activation checkpointing: a model, its gradients, its memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint as torchs_checkpoint

from meron import checkpointing
from meron.torch.tensors import tensors_in

BLOCKS = 4
X = 5 * 5 * 16 * 4  # bytes of an activation of Model, which 3 does not divide
FLAGS: list[dict[str, Any]] = [
    {},
    {"contiguous_checkpointing": True},
    {"contiguous_checkpointing": True, "num_checkpoints": BLOCKS},
    {"partition_activations": True},
    {"checkpoint_in_cpu": True, "synchronize": True},
    {
        "partition_activations": True,
        "contiguous_checkpointing": True,
        "num_checkpoints": BLOCKS,
        "checkpoint_in_cpu": True,
        "synchronize": True,
        "profile": True,
    },
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Each test begins, and ends, with the default configuration."""
    checkpointing.state.__init__()  # type: ignore[misc]
    checkpointing.get_cuda_rng_tracker().reset()
    yield
    checkpointing.state.__init__()  # type: ignore[misc]
    checkpointing.get_cuda_rng_tracker().reset()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(self.norm(x)))
        return x + torch.nn.functional.dropout(self.down(hidden), 0.25)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(11, 16)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(BLOCKS))
        self.tokens = torch.randint(0, 11, (5, 5))

    def forward(self, call: Callable[..., Any]) -> Any:
        x = self.embedding(self.tokens)
        for block in self.blocks:
            x = call(block, x)
        return x


def plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def torchs(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return torchs_checkpoint(function, *args, use_reentrant=False, **kwargs)


def gradients(model: Model, call: Callable[..., Any]) -> list[torch.Tensor]:
    """Of all params, with the random number that is drawn next."""
    torch.manual_seed(1)
    model.zero_grad()
    model(call).square().sum().backward()
    return [param.grad.clone() for param in model.parameters()] + [torch.rand(1)]  # type: ignore[union-attr]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of storages that operators made within it and that still live."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: dict[int, Any] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {tensor.untyped_storage()._cdata for tensor in tensors_in([args, kwargs])}
        for tensor in tensors_in(out):
            if tensor.untyped_storage()._cdata not in given:  # it is no view
                self.see(tensor.untyped_storage())
        return out

    def see(self, storage: Any) -> None:
        key = storage._cdata
        if key not in self.known:
            size = storage.nbytes()
            self.known[key] = weakref.ref(storage, lambda _: self.lose(key, size))
            self.now += size
            self.peak = max(self.peak, self.now)

    def lose(self, key: int, size: int) -> None:
        del self.known[key]
        self.now -= size


def kept_bytes(model: Model, call: Callable[..., Any]) -> tuple[int, int]:
    """Live bytes after a forward, its output left out, and the most in the backward."""
    model.zero_grad()
    for param in model.parameters():
        param.grad = torch.zeros_like(param)  # not made within
    with LiveBytes() as live:
        out = model(call)
        after = live.now - out.nbytes
        live.peak = 0
        out.sum().backward()
    return after, live.peak
