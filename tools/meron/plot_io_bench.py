# SPDX-License-Identifier: Apache-2.0
"""Draws what `meron io-bench DIR --json FILE` writes, from standard input into argv[1].

The command `meron` holds this file's text, and starts it for --plot.
"""

from __future__ import annotations

import json
import sys
from typing import Any

BACKENDS = (("io_uring", "depth", "-o"), ("threads", "threads", ":s"))
COLORS = ("#4c72b0", "#dd8452", "#55a868")


def size_of(block: int) -> str:
    return f"{block >> 20} MiB" if block >= 1 << 20 else f"{block >> 10} KiB"


def draw(bench: dict[str, Any], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")  # a picture in a file: no display is needed
    import matplotlib.pyplot as plt

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
