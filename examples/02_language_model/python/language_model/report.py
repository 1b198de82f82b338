# SPDX-License-Identifier: Apache-2.0
"""Output for people, and the JSON file. Everything here runs on rank 0 alone."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common.plot import plot

from .model import Floats


@dataclass
class Figures:
    """Counters of one rank in training, and the predictions of the plan, in bytes."""

    mapped: int  # in all steps together, as are the two below
    copied: int
    reduced: int
    planned_mapped: int  # in one step, as are the two below
    planned_copied: int
    planned_reduced: int
    peak: int
    planned_peak: int
    arena_pages: int
    between_nodes: bool  # some of the peers share no memory with this rank

    def bytes_as_planned(self, steps: int) -> bool:
        return (self.mapped, self.copied, self.reduced) == (
            steps * self.planned_mapped,
            steps * self.planned_copied,
            steps * self.planned_reduced,
        )

    def memory_difference(self) -> float:
        return self.peak / self.planned_peak - 1 if self.planned_peak else 0.0

    def as_planned(self, steps: int) -> bool:
        """Bytes are equal, and peak memory is within 5 %.

        Between nodes, messages in flight are not part of the plan's memory.
        """
        difference = self.memory_difference()
        above = difference <= 0.05 or self.between_nodes
        return self.bytes_as_planned(steps) and difference >= -0.05 and above


@dataclass
class Summary:
    options: Namespace
    ranks: int
    transport: str
    plan: dict[str, Any]
    parameters: int
    units: int
    text_bytes: int
    steps: int  # that are taken
    losses: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # one per step
    seconds: float = 0.0
    figures: list[Figures] = field(default_factory=list)  # one per rank

    @property
    def as_planned(self) -> bool:
        return all(figures.as_planned(self.steps) for figures in self.figures)

    @property
    def loss_first(self) -> float:
        return float(self.losses[0])

    @property
    def loss_last(self) -> float:
        """The mean over the last twentieth of the steps."""
        count = max(1, len(self.losses) // 20)
        return float(np.mean(self.losses[-count:], dtype=np.float64))


def print_begin(summary: Summary) -> None:
    print(
        f"{summary.parameters:,} parameters ({summary.options.dtype}) in {summary.units} units "
        f"over {summary.ranks} rank{'' if summary.ranks == 1 else 's'}, "
        f"plan {summary.options.plan}, transport {summary.transport}; "
        f"{summary.text_bytes:,} bytes of text",
        flush=True,
    )


def print_summary(summary: Summary) -> None:
    options = summary.options
    steps = summary.steps
    rate = steps / summary.seconds
    examples = rate * options.batch * options.accumulate * summary.ranks
    first, last = summary.loss_first, summary.loss_last
    print(
        f"\nloss    {first:.3f} at first, {last:.3f} at last: {100 * last / first:.1f} % of its "
        f"start\nspeed   {rate:.1f} steps/s, {examples:.0f} examples/s, {summary.seconds:.1f} s in "
        "all\n"
    )

    def row(rank: object, what: str, *cells: object) -> None:
        shown = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        print(f"  {rank!s:<5}{what:<9}" + "".join(f"{cell:>18}" for cell in shown))

    row("", "", "gathered", "gathered", "reduced", "peak memory")
    row("rank", "", "in place, B/step", "copied, B/step", "B/step", "B")
    for rank, f in enumerate(summary.figures):
        counted = (f.mapped, f.copied, f.reduced)
        planned = (f.planned_mapped, f.planned_copied, f.planned_reduced)
        equal = (c == steps * p for c, p in zip(counted, planned, strict=True))
        row(rank, "counted", *(c // steps for c in counted), f.peak)
        row("", "plan", *planned, f.planned_peak)
        verdicts = ("equal" if e else "DIFFERS" for e in equal)
        row("", "", *verdicts, f"{100 * f.memory_difference():+.1f} %")


def as_json(summary: Summary) -> dict[str, Any]:
    options = summary.options
    return {
        "example": "02_language_model",
        "language": "python",
        "ranks": summary.ranks,
        "transport": summary.transport,
        "plan": summary.plan,
        "parameters": summary.parameters,
        "units": summary.units,
        "dtype": options.dtype,
        "text_bytes": summary.text_bytes,
        "steps": summary.steps,
        "batch": options.batch,
        "accumulate": options.accumulate,
        "width": options.width,
        "layers": options.layers,
        "context": options.context,
        "learning_rate": options.lr,
        "seed": options.seed,
        "seconds": round(summary.seconds, 3),
        "steps_per_second": round(summary.steps / summary.seconds, 3),
        "loss_first": summary.loss_first,
        "loss_last": summary.loss_last,
        "bytes_equal": all(f.bytes_as_planned(summary.steps) for f in summary.figures),
        "per_rank": [
            {
                "rank": rank,
                "gather_mapped_bytes": {"counted": f.mapped, "plan_per_step": f.planned_mapped},
                "gather_copied_bytes": {"counted": f.copied, "plan_per_step": f.planned_copied},
                "reduce_bytes": {"counted": f.reduced, "plan_per_step": f.planned_reduced},
                "peak_bytes": {"counted": f.peak, "plan": f.planned_peak},
                "arena_pages_bytes": f.arena_pages,
            }
            for rank, f in enumerate(summary.figures)
        ],
        "losses": [float(loss) for loss in summary.losses],
    }


def write_json(summary: Summary, path: str) -> None:
    Path(path).write_text(json.dumps(as_json(summary), indent=2) + "\n")


def draw(summary: Summary, path: str) -> None:
    plot([as_json(summary)], Path(path))
