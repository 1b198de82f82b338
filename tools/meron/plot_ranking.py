# SPDX-License-Identifier: Apache-2.0
"""Draws what `meron plan --cluster FILE --json` prints, from standard input into argv[1].

The command `meron` holds this file's text, and starts it for --plot.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PARTS = (
    ("computation", "computation", "#4c72b0"),
    ("between nodes", "between_nodes", "#c44e52"),
    ("inside a node", "inside_node", "#dd8452"),
    ("copies", "copies", "#8172b3"),
    ("update", "update", "#55a868"),
)
BARS = 16  # more are no longer read


def seconds(strategy: dict[str, Any], key: str) -> float:
    part = strategy[key]
    return float(part["time"]["seconds"] if "time" in part else part["seconds"])


def draw(ranking: dict[str, Any], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")  # a picture in a file: no display is needed
    import matplotlib.pyplot as plt

    shown = [s for s in ranking["strategies"] if s["fits"]] or ranking["strategies"]
    shown = shown[:BARS]
    places = range(len(shown))
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.32 * len(shown)), layout="constrained")
    begin = [0.0] * len(shown)
    for label, key, color in PARTS:
        lengths = [seconds(strategy, key) for strategy in shown]
        if any(lengths):
            axes.barh(places, lengths, left=begin, height=0.7, color=color, label=label)
        begin = [a + b for a, b in zip(begin, lengths)]
    overlapped = [strategy["perfect_overlap"]["step"]["seconds"] for strategy in shown]
    axes.plot(overlapped, places, "kd", markersize=5, label="step with perfect overlap")
    axes.set_yticks(places, [strategy["name"] for strategy in shown])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("predicted seconds per step: bars end where nothing overlaps")
    left_out = len(ranking["strategies"]) - len(shown)
    billions = ranking["model"]["elements"] / 1e9
    title = f"{billions:.3g} billion elements on {ranking['cluster']['name']}"
    axes.set_title(title + (f" ({left_out} not shown)" if left_out else ""), fontsize=10)
    axes.grid(axis="x", alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> int:
    try:
        draw(json.load(sys.stdin), sys.argv[1])
    except ImportError as error:
        print(
            f"python3 cannot draw: {error}. Install matplotlib (on Debian python3-matplotlib), or "
            "activate an environment that has it",
            file=sys.stderr,
        )
        return 1
    except OSError as error:
        print(f"cannot write {sys.argv[1]}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
