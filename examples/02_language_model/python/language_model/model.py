# SPDX-License-Identifier: Apache-2.0
"""A language model on bytes: it sees the last `context` bytes of a text and predicts the next one.

This file does not depend on Meron. The model is a row of layers. Each layer reads its weights and
writes its gradients in arrays of the caller, train.py.

    layer 0               embedding: a row of `bytes` per byte seen, side by side: `width` values
    layers 1 .. blocks    residual block: h + relu(h w1 + b1) w2 + b2
    layer blocks + 1      head: softmax(h w + b) over the 256 values of the next byte

Initial values and examples are those of ../c/model.c: both programs learn the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

BYTE_VALUES = 256
MAX_TENSORS = 4  # of a layer


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    bound: float  # initial values are uniform in [-bound, bound)


class Model:
    def __init__(self, context: int, width: int, blocks: int) -> None:
        self.context, self.width, self.blocks = context, width, blocks
        self.loss = 0.0  # of the last forward pass: mean negative log-likelihood, in nats
        # Kept from forward to backward: one row per example.
        self._bytes: NDArray[np.uint8]  # what is seen
        self._next: NDArray[np.uint8]  # what is to be predicted
        self._hidden: list[Floats] = []  # what flows from layer to layer
        self._inner: list[Floats] = []  # relu(h w1 + b1)
        self._error: Floats  # gradient of the loss by what flows, on its way back

    @property
    def layer_count(self) -> int:
        return self.blocks + 2

    def tensors(self, layer: int) -> list[Tensor]:
        width = self.width
        unit = math.sqrt(3.0 / width)  # keeps the variance of what passes through
        if layer == 0:
            return [Tensor("bytes", (BYTE_VALUES, width // self.context), 1.0)]
        if layer <= self.blocks:
            return [
                Tensor("w1", (width, width), math.sqrt(2.0) * unit),
                Tensor("b1", (width,), 0.0),
                Tensor("w2", (width, width), unit / self.blocks),
                Tensor("b2", (width,), 0.0),
            ]
        return [Tensor("w", (width, BYTE_VALUES), 0.1 * unit), Tensor("b", (BYTE_VALUES,), 0.0)]

    def set_examples(self, windows: NDArray[np.uint8]) -> None:
        """A row per example: `context` bytes of text, then the one to predict."""
        self._bytes, self._next = windows[:, :-1], windows[:, -1]
        self._hidden, self._inner = [], []

    def forward(self, layer: int, weights: Sequence[Floats]) -> None:
        """Runs one layer. Call it for the layers in order; the head sets `loss`."""
        if layer == 0:
            (table,) = weights
            self._hidden.append(table[self._bytes].reshape(len(self._bytes), self.width))
        elif layer <= self.blocks:
            w1, b1, w2, b2 = weights
            h = self._hidden[-1]
            inner = np.maximum(h @ w1 + b1, np.float32(0))
            self._inner.append(inner)
            self._hidden.append(h + (inner @ w2 + b2))
        else:
            w, b = weights
            logits = self._hidden[-1] @ w + b
            logits -= logits.max(axis=1, keepdims=True)
            row = np.arange(len(logits))
            chosen = logits[row, self._next].copy()
            np.exp(logits, out=logits)
            sums = logits.sum(axis=1, keepdims=True)
            self.loss = float(np.mean(np.log(sums[:, 0]) - chosen))
            self._error = logits / sums
            self._error[row, self._next] -= 1
            self._error /= np.float32(len(logits))

    def backward(self, layer: int, weights: Sequence[Floats], gradients: Sequence[Floats]) -> None:
        """Runs one layer backwards, in reverse order, and adds to `gradients`.

        The sums are complete per batch: two batches in a row give the same bits as two ranks with
        summed gradients.
        """
        error = self._error
        if layer == 0:
            batch_sum = np.zeros_like(gradients[0])
            np.add.at(batch_sum, self._bytes, error.reshape(*self._bytes.shape, -1))
            gradients[0][...] += batch_sum
        elif layer <= self.blocks:
            w1, _, w2, _ = weights
            h, inner = self._hidden[layer - 1], self._inner[layer - 1]
            gradients[2][...] += inner.T @ error
            gradients[3][...] += error.sum(axis=0)
            inner_error = error @ w2.T
            inner_error *= inner > 0
            gradients[0][...] += h.T @ inner_error
            gradients[1][...] += inner_error.sum(axis=0)
            error += inner_error @ w1.T  # `error` already has the values of the residual path
        else:
            w, _ = weights
            gradients[0][...] += self._hidden[-1].T @ error
            gradients[1][...] += error.sum(axis=0)
            self._error = error @ w.T


def random_bits(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    """`count` random numbers that depend on nothing but the arguments: the same on every rank."""

    def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """SplitMix64's output function (Steele, Lea and Flood, 2014)."""
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))

    first = np.add(mix(np.array([seed], np.uint64)), np.uint64(stream))
    return mix(np.add(mix(first), np.arange(count, dtype=np.uint64)))


def initial_values(tensor: Tensor, seed: int, stream: int) -> Floats:
    """`stream` numbers the tensors of the model."""
    bits = random_bits(seed, stream, math.prod(tensor.shape)) >> np.uint64(40)
    zero_to_two = bits.astype(np.float32) * np.float32(2.0**-23)
    values: Floats = (zero_to_two - np.float32(1)) * np.float32(tensor.bound)
    return values.reshape(tensor.shape)
