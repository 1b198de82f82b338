# SPDX-License-Identifier: Apache-2.0
"""Adam with states in fewer bits: the error of what it trains, beside states in f64."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import report
from arguments import whole
from report import Goal, Json

PARAMS, BLOCK, LR, EPS = 4096, 256, 1e-3, 1e-8
BETAS = (0.9, 0.999)
DTYPES = ("f32", "bf16", "int8")
BITSANDBYTES = "bitsandbytes"
PERCENTILES = (1, 50, 99)
# The gradients of each case, and the largest error that int8 may have.
CASES = {
    "noise": ("normal noise of one size", 0.033),
    "mean": ("the noise with a mean of a tenth of its size", 0.022),
    "decay": ("the noise times 0.999^step", 0.031),
    "fall": ("the noise falls by 1,000 at step 500", 0.034),
    "half": ("in half of the elements the noise falls by 10 at step 500", 0.07),
    "sparse": ("one gradient in 100 is not zero", 0.07),
    "outlier": ("one element in each block of 256 is 10,000 times the others", 0.16),
    "decades": ("a block reaches over six powers of ten", 0.30),
}


def gradients(case: str, steps: int) -> Iterator[Any]:
    """The gradients of a case, f32 of shape (PARAMS,), one array a step."""
    import numpy as np

    random, number = np.random.default_rng(1), np.arange(PARAMS)
    for step in range(steps):
        g = random.standard_normal(PARAMS) * 1e-2
        if case == "mean":
            g += 1e-3
        elif case == "decay":
            g *= 0.999**step
        elif case == "fall" and step >= 500:
            g *= 1e-3
        elif case == "half" and step >= 500:
            g[::2] *= 0.1
        elif case == "sparse":
            g *= random.random(PARAMS) < 0.01
        elif case == "outlier":
            g[::BLOCK] *= 1e4
        elif case == "decades":
            g *= 10.0 ** (-6 * (number % BLOCK) / (BLOCK - 1))
        yield g.astype(np.float32)


class Exact:
    """Adam in f64."""

    def __init__(self, x: Any) -> None:
        self.values = x.astype("f8")
        self.average, self.square, self.steps = 0.0 * self.values, 0.0 * self.values, 0

    def step(self, g: Any) -> None:
        g, self.steps = g.astype("f8"), self.steps + 1
        self.average += (1 - BETAS[0]) * (g - self.average)
        self.square += (1 - BETAS[1]) * (g * g - self.square)
        average = self.average / (1 - BETAS[0] ** self.steps)
        square = self.square / (1 - BETAS[1] ** self.steps)
        self.values -= LR * average / (square**0.5 + EPS)


class Meron:
    """The engine's Adam with states of one dtype."""

    def __init__(self, dtype: str, x: Any) -> None:
        import meron

        self.context = meron.open(plan={"preset": "zero0", "optimizer": {"dtype": dtype}})
        self.param = self.context.param("w", x.shape)
        self.unit = self.context.unit("u", [self.param])
        with self.context.update([self.unit]) as update:
            update.write(self.param, x)
        self.optimizer = self.context.adam([self.unit], lr=LR, betas=BETAS, eps=EPS)

    def step(self, g: Any) -> None:
        self.unit.reduce({self.param: g})
        self.optimizer.step()

    @property
    def values(self) -> Any:
        with self.unit.gather() as full:
            return full[self.param].copy()

    @property
    def square(self) -> Any:
        return self.optimizer.read_state(self.param, "exp_avg_sq").astype("f8")


class Peer:
    """Adam8bit of bitsandbytes."""

    def __init__(self, x: Any) -> None:
        import torch

        bitsandbytes = importlib.import_module(BITSANDBYTES)

        self.param = torch.nn.Parameter(torch.tensor(x))
        self.optimizer = bitsandbytes.optim.Adam8bit(
            [self.param], lr=LR, betas=BETAS, eps=EPS, min_8bit_size=0
        )

    def step(self, g: Any) -> None:
        import torch

        self.param.grad = torch.tensor(g)
        self.optimizer.step()

    @property
    def values(self) -> Any:
        return self.param.detach().numpy().copy()


@dataclass
class Arm:
    make: Callable[[Any], Any]
    rows: dict[str, Json] = field(default_factory=dict)  # by case


def measure(case: str, arms: dict[str, Arm], steps: int) -> None:
    """Runs all arms on the same gradients, beside f64."""
    import numpy as np

    x = np.random.default_rng(0).standard_normal(PARAMS).astype(np.float32)
    exact, runs = Exact(x), {name: arm.make(x) for name, arm in arms.items()}
    for g in gradients(case, steps):
        for run in (exact, *runs.values()):
            run.step(g)
    moved = np.linalg.norm(exact.values - x)
    for name, run in runs.items():
        row: Json = {"error": float(np.linalg.norm(run.values - exact.values) / moved)}
        if isinstance(run, Meron):
            known = exact.square > 0
            ratio = run.square[known] / exact.square[known]
            for percentile in PERCENTILES:
                row[f"square_p{percentile}"] = float(np.percentile(ratio, percentile))
            row["mean_square"] = float(run.square.mean() / exact.square.mean())
            run.context.close()
        arms[name].rows[case] = row


def table(arms: dict[str, Arm]) -> str:
    spread = "int8: v / f64"
    rows = [["gradients", *arms, spread]]
    for case, (what, _) in CASES.items():
        errors = [f"{arm.rows[case]['error']:.1e}" for arm in arms.values()]
        ratios = [arms["int8"].rows[case][f"square_p{percentile}"] for percentile in PERCENTILES]
        rows.append([what, *errors, " .. ".join(f"{ratio:.2f}" for ratio in ratios)])
    return report.columns(rows)


def main() -> None:
    parser = report.parser("states", __doc__ or "")
    parser.add_argument(
        "--steps", type=whole, default=5000, metavar="N", help="of each case (default: 5000)"
    )
    arguments: argparse.Namespace = parser.parse_args()
    steps = 5 if arguments.quick else arguments.steps
    arms = {dtype: Arm(partial(Meron, dtype)) for dtype in DTYPES}
    peer = report.has_module(BITSANDBYTES)
    if peer:
        arms[BITSANDBYTES] = Arm(Peer)
    for case in CASES:
        measure(case, arms, steps)
    print(f"Adam, {PARAMS} params, {steps} steps: |p - p of f64| / |movement of f64|.")
    print("v / f64: percentiles 1, 50 and 99 of the second moments' ratios.\n")
    print(table(arms), end="\n\n")
    if not peer:
        print("bitsandbytes is not installed; its column is left out.")
    goals = [
        Goal(f"int8, {case}", arms["int8"].rows[case]["error"], bound, False)
        for case, (_, bound) in CASES.items()
    ]
    series = [
        {"arm": name, "case": case, **row}
        for name, arm in arms.items()
        for case, row in arm.rows.items()
    ]
    report.finish("states", arguments, goals, 0.0, series=series, steps=steps)


if __name__ == "__main__":
    sys.exit(report.exit_code_of(main))
