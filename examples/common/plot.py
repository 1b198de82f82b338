#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss curve of one or more runs.

python3 plot.py OUT.png RUN.json...     with the files that --json wrote

OUT may end in .png, .pdf or .svg. The curve of --compare, trained without Meron, is dotted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ENDINGS = (".png", ".pdf", ".svg")
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
    import matplotlib  # only who draws needs it

    matplotlib.use("Agg")  # a picture in a file: no display is needed
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for run in runs:
        steps = range(1, len(run["losses"]) + 1)
        (line,) = axes.plot(steps, run["losses"], linewidth=0.6, alpha=0.35)
        span = max(1, len(run["losses"]) // 50)
        trend = smooth(run["losses"], span)
        axes.plot(steps, trend, color=line.get_color(), label=label(run))
        if "twin" in run:
            twin = smooth(run["twin"]["losses"], span)
            axes.plot(steps, twin, "k:", label="the same without Meron")
    axes.axhline(UNIFORM_GUESS, color="gray", linestyle=":", linewidth=1, label="uniform guess")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats per byte")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def read(file: Path) -> dict[str, Any]:
    """A run; ValueError for another file."""
    run = json.loads(file.read_text())
    if not isinstance(run, dict) or not {"losses", "plan", "ranks", "dtype"} <= run.keys():
        raise ValueError
    return run


def fail(message: str) -> int:
    print(f"plot.py: {message}", file=sys.stderr)
    return 2


def main() -> int:
    if sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__, end="")
        return 0
    if len(sys.argv) < 3:
        return fail("name a picture and the file of a run: --help")
    picture, *files = map(Path, sys.argv[1:])
    if picture.suffix not in ENDINGS:
        return fail(f"{picture}: the picture's name must end in {' or '.join(ENDINGS)}")
    runs = []
    for file in files:
        try:
            runs.append(read(file))
        except OSError as error:
            return fail(f"cannot read {file}: {error.strerror}")
        except ValueError:
            return fail(f"{file} is not what an example's --json wrote")
    try:
        plot(runs, picture)
    except OSError as error:
        return fail(f"cannot write {picture}: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
