# SPDX-License-Identifier: Apache-2.0
"""The CRCs of the table come from arithmetic that NumPy does as well, without the library.

Sums in f32 in the order of the ranks; AdamW (arXiv 1711.05101) element by element in f32, each
operation rounded once, the constants rounded from doubles; clipping by the exact norm. The final
values of the cases `train` and `train_in_16_bits` have the bits that cases.txt expects.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from table import read_cases

F32 = np.float32
Floats = npt.NDArray[np.float32]
CASES = {case.name: case for case in read_cases()}


def pattern(count: int, seed: int) -> Floats:
    index = np.arange(count)
    return (((7 * index + 13 * seed) % 61 - 30) / 8).astype(F32)


def mean_of(gradients: list[Floats], divisor: float) -> Floats:
    """The sum of the ranks' gradients in their order, times the rounded inverse."""
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    return total * F32(1.0 / divisor)


@dataclass
class AdamW:
    values: list[Floats]
    lr: float
    weight_decay: float = 0.01
    max_norm: float = 0.0
    steps: int = 0
    moments: list[tuple[Floats, Floats]] = field(init=False)

    def __post_init__(self) -> None:
        self.moments = [(np.zeros_like(v), np.zeros_like(v)) for v in self.values]

    def step(self, gradients: list[Floats]) -> None:
        self.steps += 1
        squares = sum(Fraction(float(g)) ** 2 for gradient in gradients for g in gradient)
        norm = math.sqrt(squares)
        clip = F32(min(1.0, self.max_norm / (norm + 1e-6)) if self.max_norm else 1.0)
        beta1, beta2 = 0.9, 0.999
        inverse_root = F32(1.0 / math.sqrt(1.0 - beta2**self.steps))
        step_size = F32(self.lr / (1.0 - beta1**self.steps))
        decay = F32(1.0 - self.lr * self.weight_decay)
        for value, gradient, (first, second) in zip(self.values, gradients, self.moments):
            scaled = gradient * clip
            first[:] = first * F32(beta1) + scaled * F32(1.0 - beta1)
            second[:] = second * F32(beta2) + (scaled * F32(1.0 - beta2)) * scaled
            denominator = np.sqrt(second) * inverse_root + F32(1e-8)
            value[:] = value * decay - (first * step_size) / denominator


def bfloat16_bits(values: Floats) -> npt.NDArray[np.uint16]:
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def crc(array: npt.NDArray[Any]) -> str:
    return f"{zlib.crc32(array.tobytes()):08x}"


def expected(case: str, ranks: int) -> list[str | None]:
    return [s.get(f"crc{ranks}") for s in CASES[case].statements if s.operation == "full"]


def pattern_of_ranks(ranks: int, count: int, seed: int) -> list[Floats]:
    return [pattern(count, seed + rank) for rank in range(ranks)]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_train(ranks: int) -> None:
    sizes = (33 * 40, 17, 1)
    trained = AdamW([pattern(n, s) for n, s in zip(sizes, (1, 2, 3))], lr=0.01, max_norm=1)
    trained.step([mean_of(pattern_of_ranks(ranks, n, s), ranks) for n, s in zip(sizes, (1, 2, 3))])
    # Two micro-batches: a and c take part in both, b in the first one.
    batches = (
        [a + b for a, b in zip(*(pattern_of_ranks(ranks, sizes[0], s) for s in (4, 7)))],
        pattern_of_ranks(ranks, sizes[1], 5),
        [a + b for a, b in zip(*(pattern_of_ranks(ranks, sizes[2], s) for s in (6, 8)))],
    )
    trained.lr = 0.005
    trained.step([mean_of(batch, 2 * ranks) for batch in batches])
    assert [crc(value) for value in trained.values] == expected("train", ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_train_in_16_bits(ranks: int) -> None:
    sizes = (33 * 40, 170)
    trained = AdamW([pattern(n, s) for n, s in zip(sizes, (1, 2))], lr=0.01, weight_decay=0.1)
    for seeds in ((1, 2), (4, 5)):
        trained.step([mean_of(pattern_of_ranks(ranks, n, s), 1) for n, s in zip(sizes, seeds)])
    a, b = trained.values
    assert [crc(bfloat16_bits(a)), crc(b.astype(np.float16))] == expected("train_in_16_bits", ranks)
