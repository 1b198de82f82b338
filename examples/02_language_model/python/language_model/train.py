# SPDX-License-Identifier: Apache-2.0
"""Training with parameters, gradients and optimizer states partitioned over the ranks.

Every layer is a unit. It is gathered before its forward pass and released after it, gathered again
for its backward pass, which adds the gradients to the unit's bucket; their reduction runs while the
layers below compute. The plan decides which states are sharded: no line here depends on it.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import meron
from common.progress import Progress

from .model import MAX_TENSORS, Floats, Model, initial_values, random_bits

INITIAL_STREAMS = 1 << 32  # of random numbers: initial values use those below, examples those above


class Trainer:
    def __init__(self, context: meron.Context, text: NDArray[np.uint8], options: Namespace) -> None:
        self.context, self.text, self.options = context, text, options
        self.model = Model(options.context, options.width, options.layers)
        self.units = [self._create_layer(layer) for layer in range(self.model.layer_count)]
        # More momentum would carry the first steps past what they aim at.
        betas = (0.6, 0.999)
        self.optimizer = context.adamw(self.units, lr=options.lr, betas=betas, max_norm=1.0)
        self.first = 0  # steps that were taken before this run
        self.position = 0  # micro-batches that all ranks took in them

    def _create_layer(self, layer: int) -> meron.Unit:
        """Every rank computes the same initial values; Meron keeps this rank's part of them."""
        tensors = self.model.tensors(layer)
        params = [
            self.context.param(f"layers.{layer}.{tensor.name}", tensor.shape, self.options.dtype)
            for tensor in tensors
        ]
        unit = self.context.unit(f"layers.{layer}", params)
        with self.context.update([unit]) as update:
            for i, (param, tensor) in enumerate(zip(params, tensors, strict=True)):
                stream = layer * MAX_TENSORS + i
                update.write(param, initial_values(tensor, self.options.seed, stream))
        return unit

    def micro_batches(self, step: int) -> int:
        """Number of micro-batches of all ranks after `step` steps."""
        return (
            self.position + (step - self.first) * self.options.accumulate * self.context.world_size
        )

    def parameter_count(self) -> int:
        return sum(param.size for unit in self.units for param in unit.params)

    def _forward(self, layer: int) -> None:
        unit = self.units[layer]
        with unit.gather() as full:
            self.model.forward(layer, [as_f32(full[param]) for param in unit.params])

    def _backward(self, layer: int, boundary: bool) -> meron.Future:
        """Begins the reduction of the layer's gradients, and does not wait for it."""
        unit = self.units[layer]
        views = [unit.gradient(param) for param in unit.params]
        gradients = [v if v.dtype == np.float32 else np.zeros(v.shape, np.float32) for v in views]
        with unit.gather() as full:
            weights = [as_f32(full[param]) for param in unit.params]
            self.model.backward(layer, weights, gradients)
        for view, gradient in zip(views, gradients, strict=True):
            if view is not gradient:
                add_rounded(view, gradient)
        return unit.reduce_begin(boundary=boundary, divisor=self.options.accumulate)

    def _choose_examples(self, turn: int) -> None:
        """Micro-batches are numbered over all ranks: one process that takes N times as many sees
        the same examples as N ranks."""
        context = self.options.context
        micro_batch = self.position + turn * self.context.world_size + self.context.rank
        bits = random_bits(self.options.seed, INITIAL_STREAMS + micro_batch, self.options.batch)
        places = (bits % np.uint64(len(self.text) - context)).astype(np.int64)
        self.model.set_examples(self.text[places[:, None] + np.arange(context + 1)])

    def _learning_rate(self, step: int) -> float:
        """Up to the peak over the first 100 steps, and down to a tenth of it over all steps."""
        rise = (step + 1) / 100
        fall = 1 - 0.9 * step / self.options.steps
        return float(self.options.lr * min(rise, fall))

    def _step(self, step: int) -> float:
        """One step of the optimizer; the sum of the losses of this rank's micro-batches."""
        loss = 0.0
        for turn in range(self.options.accumulate):
            self._choose_examples((step - self.first) * self.options.accumulate + turn)
            boundary = turn + 1 == self.options.accumulate
            layers = range(self.model.layer_count)
            for layer in layers:
                self._forward(layer)
            for reduction in [self._backward(layer, boundary) for layer in reversed(layers)]:
                reduction.wait()
            loss += self.model.loss
        self.optimizer.lr = self._learning_rate(step)
        self.optimizer.step()
        return loss

    def train(self, progress: Progress, save: Callable[[int, float], None]) -> Floats:
        """The loss of each step from `first` on, a mean over all ranks.

        `save` is called after each step with the loss of this rank's examples. Now and then
        `progress` gets the mean of those since its last call.
        """
        steps, first = self.options.steps, self.first
        every = steps_per_report(steps)
        micro_batches = self.options.accumulate * self.context.world_size
        losses = np.zeros(steps - first, np.float32)
        known = first
        with progress:
            for step in range(first + 1, steps + 1):
                losses[step - first - 1] = loss = self._step(step - 1)
                save(step, loss / self.options.accumulate)
                if step % every == 0 or step == steps:
                    recent = losses[known - first : step - first]
                    self.context.world.all_reduce(recent)
                    recent /= micro_batches
                    progress(step - first, float(recent.mean()))
                    known = step
        return losses


def steps_per_report(steps: int) -> int:
    return max(1, steps // 50)


def as_f32(values: NDArray[Any]) -> Floats:
    """Without a copy if the values are f32 already."""
    return values if values.dtype == np.float32 else meron.to_float32(values)


def add_rounded(to: NDArray[Any], values: Floats) -> None:
    """to += values for 16-bit floats, computed in f32 and rounded once."""
    dtype = "f16" if to.dtype == np.float16 else "bf16"
    to[...] = meron.from_float32(meron.to_float32(to) + values, dtype)
