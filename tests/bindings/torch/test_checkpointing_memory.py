# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: what is kept, and for how long, with each flag."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpointed import BLOCKS, FLAGS, Model, X, equal, gradients, kept_bytes, plain
from checkpointed import fresh as fresh

from meron import checkpointing


def test_kept_bytes_fall_as_predicted() -> None:
    model = Model()
    full, full_peak = kept_bytes(model, plain)
    assert full > 10 * BLOCKS * X
    kept, peak = kept_bytes(model, checkpointing.checkpoint)
    assert kept == BLOCKS * X
    assert peak < full_peak / 2  # one block's recomputation beside what is kept

    checkpointing.configure(None, contiguous_checkpointing=True, num_checkpoints=2 * BLOCKS)
    for _ in range(2):
        kept, _ = kept_bytes(model, checkpointing.checkpoint)
    assert checkpointing.state.keeper.arenas.bytes == 2 * BLOCKS * X
    assert kept == 0  # the buffer is from the first time
    checkpointing.reset()
    assert checkpointing.state.keeper.arenas.bytes == 0

    checkpointing.configure(None, contiguous_checkpointing=False, checkpoint_in_cpu=True)
    assert kept_bytes(model, checkpointing.checkpoint)[0] == BLOCKS * X  # on the host


def test_kept_bytes_of_example_03(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a GPT, blocks keep their inputs only: width * 4 bytes per position."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "examples" / "03_gpt")
    from gpt.model import GPT

    layers, width, batch, length = 4, 64, 2, 32
    inputs = layers * batch * length * width * 4
    tokens = torch.randint(0, 256, (batch, length))

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = GPT(width, layers, 2, length)

        def forward(self, call: Callable[..., Any]) -> Any:
            self.gpt.run = call
            return self.gpt(tokens)

    model: Any = Wrapped()
    rest, _ = kept_bytes(model, lambda _block, x: x)  # embeddings, the last norm
    full, full_peak = kept_bytes(model, plain)
    for flags in FLAGS:
        checkpointing.configure(None, {}, **flags)
        for _ in range(2):  # a buffer is made in the second
            kept_bytes(model, checkpointing.checkpoint)
        kept, peak = kept_bytes(model, checkpointing.checkpoint)
        kept += checkpointing.state.keeper.arenas.bytes
        peak += checkpointing.state.keeper.arenas.bytes
        assert kept == inputs + rest
        # One block's saved tensors at a time, in place of those of all.
        assert peak <= full_peak - (full - rest) + inputs + (full - rest) // layers


def test_arguments_are_released_as_the_backward_goes() -> None:
    model = Model()
    alive: list[int] = []
    checkpointing.configure(None, profile=True)
    for block in model.blocks:
        block.register_forward_pre_hook(
            lambda *_: alive.append(checkpointing.profile_summary().kept_bytes)
        )
    model(checkpointing.checkpoint).sum().backward()
    assert alive == [n * X for n in (1, 2, 3, 4, 4, 3, 2, 1)]
    assert checkpointing.profile_summary().kept_bytes == 0


def test_a_buffer_that_counts_for_itself_and_grows() -> None:
    model = Model()
    checkpointing.configure(None, contiguous_checkpointing=True)
    arenas = checkpointing.state.keeper.arenas
    model(checkpointing.checkpoint).sum().backward()
    assert arenas.bytes == 0
    model(checkpointing.checkpoint).sum().backward()
    assert arenas.bytes == BLOCKS * X
    model.tokens = torch.randint(0, 11, (3, 9))
    expected = gradients(model, plain)
    assert equal(gradients(model, checkpointing.checkpoint), expected)
    assert arenas.bytes == BLOCKS * 3 * 9 * 16 * 4


class Copies:
    """Replaces copies between a device and the host: records each copy in and out."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.numbers: dict[int, int] = {}

    def to_host(self, flat: torch.Tensor, place: torch.Tensor) -> None:
        place.copy_(flat)
        assert flat.nbytes == X
        self.numbers[place.data_ptr()] = number = len(self.log)
        self.log.append(f"out {number}")

    def begin_back(self, place: torch.Tensor, device: torch.device) -> Any:
        number = self.numbers[place.data_ptr()]
        self.log.append(f"fetch {number}")
        return place.clone(), number

    def end_back(self, tensor: torch.Tensor, event: int) -> torch.Tensor:
        self.log.append(f"use {event}")
        return tensor


@pytest.mark.parametrize("flags", [{}, {"contiguous_checkpointing": True, "num_checkpoints": 4}])
def test_activations_of_a_device_go_to_the_host(
    flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the copies replaced: this host has no GPU."""
    monkeypatch.setattr(checkpointing.keeping, "is_on_host", lambda _: False)
    allocate = checkpointing.arena.allocate
    for module in (checkpointing.arena, checkpointing.keeping):
        unpinned = lambda size, kind: allocate(size, kind._replace(pinned=False))  # noqa: E731
        monkeypatch.setattr(module, "allocate", unpinned)
    model = Model()
    expected = gradients(model, plain)
    checkpointing.configure(checkpoint_in_cpu=True, **flags)
    copies: Any = Copies()
    checkpointing.state.keeper.copies = copies
    assert equal(expected, gradients(model, checkpointing.checkpoint))
    # Each is on its way while the one that is needed before it is used.
    backward = "fetch 3 fetch 2 use 3 fetch 1 use 2 fetch 0 use 1 use 0"
    assert " ".join(copies.log) == "out 0 out 1 out 2 out 3 " + backward
    copies.log.clear()
    loss = model(checkpointing.checkpoint).square().sum()
    for _ in range(2):
        loss.backward(retain_graph=True)
    uses = [line for line in copies.log if line.startswith("use")]
    assert uses == ["use 3", "use 2", "use 1", "use 0"] * 2
    kinds = list(checkpointing.state.keeper.arenas.by_kind)
    assert [kind.pinned for kind in kinds] == [True] * len(kinds) and len(kinds) == len(flags) // 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "+".join(flags) or "none")
def test_on_a_gpu(flags: dict[str, Any]) -> None:
    model = Model().cuda()
    model.tokens = model.tokens.cuda()
    expected = gradients(model, plain)
    checkpointing.configure(None, **flags)
    for _ in range(3):
        assert equal(expected, gradients(model, checkpointing.checkpoint))
