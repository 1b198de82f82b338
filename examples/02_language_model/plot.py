#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss curve of one or more runs.

python3 plot.py OUT.png RUN.json...     with the files that --json wrote
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture in a file: no display is needed
import matplotlib.pyplot as plt

UNIFORM_GUESS = 5.545  # ln 256: the loss of a model that knows nothing


def smooth(losses: list[float], count: int) -> list[float]:
    """The mean over the last `count` steps."""
    return [
        sum(losses[max(0, i + 1 - count) : i + 1]) / min(count, i + 1) for i in range(len(losses))
    ]


def label(run: dict[str, Any]) -> str:
    ranks = f"{run['ranks']} rank{'s' if run['ranks'] > 1 else ''}"
    return f"{run['plan'].get('name', 'plan')}, {ranks}, {run['dtype']} ({run['language']})"


def plot(runs: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for run in runs:
        steps = range(1, len(run["losses"]) + 1)
        (line,) = axes.plot(steps, run["losses"], linewidth=0.6, alpha=0.35)
        trend = smooth(run["losses"], max(1, len(run["losses"]) // 50))
        axes.plot(steps, trend, color=line.get_color(), label=label(run))
    axes.axhline(UNIFORM_GUESS, color="gray", linestyle=":", linewidth=1, label="uniform guess")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per byte")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, end="")
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    plot([json.loads(Path(name).read_text()) for name in sys.argv[2:]], Path(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
