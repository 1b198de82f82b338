# SPDX-License-Identifier: Apache-2.0
"""Draws the README's chart: five ratios out of bench/results. `tools/bench chart` starts this."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
CHART = ROOT / "docs" / "ratios.png"
COLOR, EQUAL_COLOR = "#1f6f8b", "#9aa5ab"

HELP = """\
Draws docs/ratios.png, the chart in the README, from the measurements that bench/results keeps, and
prints the ratios. Nothing is measured. To refresh the measurements first, on a quiet machine:

  for name in torch collectives adamw; do tools/bench $name && tools/bench keep $name; done
"""


@dataclass(frozen=True)
class Bar:
    label: str
    report: str  # the file in bench/results, and the benchmark
    goal: str  # the name of the figure in the report's goals
    inverse: bool = False  # the figure is Meron's share of the peer's cost

    def ratio(self, reports: dict[str, Any]) -> float:
        """Speed relative to the peer's."""
        for goal in reports[self.report]["goals"]:
            if goal["name"] == self.goal:
                return 1 / goal["value"] if self.inverse else float(goal["value"])
        raise KeyError(f"bench/results/{self.report}.json has no figure {self.goal!r}")


BARS = (
    Bar("all-gather of 1 MiB, against Open MPI", "collectives", "gather mapped, 1 MiB, x Open MPI"),
    Bar("step of many small layers, against FSDP2", "torch", "many layers, x fsdp2"),
    Bar("host time in hooks, against FSDP2", "torch", "host time in hooks, of fsdp2's", True),
    Bar(
        "reduce-scatter of 64 MiB, against Open MPI",
        "collectives",
        "reduce registered, 64 MiB, x Open MPI",
    ),
    Bar("step of many small layers, against DeepSpeed", "torch", "many layers, x deepspeed"),
    Bar("AdamW update in f32, against PyTorch", "adamw", "AdamW f32, x torch"),
)


REPORTS = {bar.report for bar in BARS}


def read_reports(folder: Path = RESULTS) -> dict[str, Any]:
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in sorted(REPORTS)}


def shown(ratio: float) -> str:
    """As the README gives it: two digits."""
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}"


def machine_of(reports: dict[str, Any]) -> str:
    """The machine of the reports; says so if they come from several."""
    machines = {
        f"{report['machine']['cpu']}, {report['machine']['cores']} cores"
        for report in reports.values()
    }
    return " and ".join(sorted(machines))


def draw(path: Path, reports: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ratios = [bar.ratio(reports) for bar in BARS]
    figure, axes = pyplot.subplots(figsize=(8.2, 3.1))
    rows = range(len(BARS), 0, -1)
    colors = [COLOR if ratio >= 1.05 else EQUAL_COLOR for ratio in ratios]
    axes.barh(rows, [ratio - 0.8 for ratio in ratios], left=0.8, color=colors, height=0.62)
    for row, ratio in zip(rows, ratios):
        axes.annotate(
            f"{shown(ratio)} x", (ratio, row), (4, 0), textcoords="offset points", va="center"
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(0.8, max(ratios) * 1.8)
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1 x", "2 x", "5 x", "10 x", "20 x", "50 x"])
    axes.minorticks_off()
    axes.set_yticks(rows, [bar.label for bar in BARS])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(
        f"How many times as fast as the peer, 2 ranks ({machine_of(reports)})", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/bench chart",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", type=Path, default=CHART, metavar="FILE", help="%(default)s")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FOLDER", help="%(default)s"
    )
    options = parser.parse_args()
    try:
        reports = read_reports(options.results)
        for bar in BARS:
            print(f"{shown(bar.ratio(reports)):>4} x  {bar.label}  (tools/bench {bar.report})")
        draw(options.output, reports)
    except (OSError, KeyError, ImportError) as error:
        print(f"tools/bench chart: {error}", file=sys.stderr)
        return 1
    print(f"The chart is in {options.output}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
