# SPDX-License-Identifier: Apache-2.0
"""Common code of all ways of training: the start of a run, and its results."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

import meron
from meron import checkpointing

from .model import GPT


@dataclass
class Losses:
    """Of every micro-batch: values[step, turn, rank]."""

    values: NDArray[np.float32]

    @classmethod
    def of(cls, options: Namespace, ranks: int) -> Losses:
        return cls(np.zeros((options.steps, options.accumulate, ranks), np.float32))

    def curve(self) -> NDArray[np.float64]:
        """The mean of each step."""
        return self.values.mean((1, 2), dtype=np.float64)


@dataclass
class Trained:
    """Results of a run on a rank. Keep it until the counters are read."""

    context: meron.Context  # that holds the rows
    losses: Losses  # of this rank's micro-batches; zero elsewhere
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    optimizer_bytes: int  # that it keeps in torch's memory, beside the engine's
    gathered_before: int  # bytes, before the first step: plans that shard no params have them then


def gathered(context: meron.Context) -> int:
    """Bytes that this rank has gathered so far."""
    counted = context.stats()
    return counted.gather_mapped_bytes + counted.gather_copied_bytes


def build(options: Namespace) -> GPT:
    """The same initial values in every process."""
    torch.manual_seed(options.seed)
    return GPT(options.width, options.layers, options.heads, options.context)


def checkpointed(model: GPT, options: Namespace) -> GPT:
    """Has blocks keep their input only, and run again in the backward, if the options say so."""
    flags = options.activation_checkpointing
    if flags:
        checkpointing.configure(
            contiguous_checkpointing="contiguous" in flags,
            num_checkpoints=options.layers,
            checkpoint_in_cpu="cpu" in flags,
            synchronize="synchronize" in flags,
            profile=True,
        )
        model.run = checkpointing.checkpoint
    return model


def count_parameters(options: Namespace) -> int:
    with torch.device("meta"):  # no values: a large model takes long to fill
        return sum(param.numel() for param in build(options).parameters())


def torch_device(options: Namespace) -> torch.device:
    """The torch device of a rank. Tensors of the emulated device are on the CPU."""
    cuda = options.device.startswith("cuda")
    return torch.device(options.device if cuda else "cpu")


def learning_rate(steps: int) -> Callable[[int], float]:
    """A factor for each step: up over the first tenth, then down to a tenth of the peak."""

    def factor(step: int) -> float:
        rise = (step + 1) / max(1, steps // 10)
        fall = 1 - 0.9 * step / steps
        return min(rise, fall)

    return factor
