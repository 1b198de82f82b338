# SPDX-License-Identifier: Apache-2.0
"""Draws what the command `meron` writes as JSON, from standard input into argv[2].

argv[1] says what it is: `ranking`, of `meron plan --cluster FILE --json`, or `io-bench`, of
`meron io-bench DIR --json FILE`. The command holds this file's text, and starts it for --plot.
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
WITHOUT_MATPLOTLIB = 3  # the exit code by which the command tries another python3


def seconds(strategy: dict[str, Any], key: str) -> float:
    part = strategy[key]
    return float(part["time"]["seconds"] if "time" in part else part["seconds"])


def draw_ranking(plt: Any, ranking: dict[str, Any]) -> Any:
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
    return figure


BACKENDS = (("io_uring", "depth", "-o"), ("threads", "threads", ":s"))
COLORS = ("#4c72b0", "#dd8452", "#55a868")


def size_of(block: int) -> str:
    return f"{block >> 20} MiB" if block >= 1 << 20 else f"{block >> 10} KiB"


def draw_io_bench(plt: Any, bench: dict[str, Any]) -> Any:
    figure, both = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    measurements = bench["measurements"]
    blocks = sorted({each["block"] for each in measurements})
    for axes, way, title in zip(both, ("read", "write"), ("reading", "writing")):
        for block, color in zip(blocks, COLORS):
            for backend, count, style in BACKENDS:
                kind = (block, backend)
                shown = [each for each in measurements if (each["block"], each["backend"]) == kind]
                if not shown:
                    continue
                axes.plot(
                    [each[count] for each in shown],
                    [each[way]["gb_per_second"] for each in shown],
                    style,
                    color=color,
                    markersize=4,
                    label=f"{backend}, {size_of(block)}",
                )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("requests under way: depth, or threads")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.25)
    both[0].set_ylim(bottom=0)
    both[0].set_ylabel("GB/s")
    both[1].legend(frameon=False, fontsize=8)
    figure.suptitle(f"{bench['directory']}, {bench['size'] / 1e9:.3g} GB", fontsize=10)
    return figure


DRAW = {"ranking": draw_ranking, "io-bench": draw_io_bench}


def main() -> int:
    kind, path = sys.argv[1:]
    try:
        import matplotlib

        matplotlib.use("Agg")  # a picture in a file: no display is needed
        import matplotlib.pyplot as plt

        DRAW[kind](plt, json.load(sys.stdin)).savefig(path, dpi=110)
    except ImportError:
        return WITHOUT_MATPLOTLIB
    except OSError as error:
        print(f"cannot write {path}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
