# SPDX-License-Identifier: Apache-2.0
"""Output for people, and the JSON file. Only rank 0 shows anything."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.plot import plot

from .recipe import Losses

Curve = NDArray[np.float64]


@dataclass
class Figures:
    """Counters of one rank in training, and the predictions of the plan, in bytes."""

    param: int  # held by this rank, as are the three below
    gradient: int
    optimizer: int
    peak: int
    planned_param: int
    planned_gradient: int
    planned_optimizer: int
    planned_peak: int
    gathered: int  # from other ranks, in all steps together, as is the one below
    reduced: int
    planned_gathered: int  # in one step, if every use of a block gathers it, as is the one below
    planned_reduced: int
    on_device: int  # rows of tier device; the memory above is the host's
    planned_on_device: int
    process_peak: int  # most memory of the process, with what torch keeps
    activations: int  # most inputs of blocks at a time, with --activation-checkpointing
    device_peak: int  # of a GPU's memory that torch has handed out, Meron's included
    between_nodes: bool  # some of the peers share no memory with this rank

    def memory_difference(self) -> float:
        """Of the host's peak, relative to the plan's."""
        return self.peak / self.planned_peak - 1

    def as_planned(self, steps: int) -> bool:
        """Reduced bytes are equal, and those on the device; gathered ones no more; peak memory is
        within 5 %, where all of it is the host's.

        Between nodes, messages in flight are not part of the plan's memory.
        """
        moved = (
            self.reduced == steps * self.planned_reduced
            and self.gathered <= steps * self.planned_gathered
        )
        if self.planned_on_device:
            return moved and self.on_device == self.planned_on_device
        above = self.memory_difference() <= 0.05 or self.between_nodes
        return moved and above and self.memory_difference() >= -0.05


@dataclass
class Summary:
    options: Namespace
    ranks: int
    transport: str
    plan: dict[str, Any]
    parameters: int
    text_bytes: int
    losses: Curve = field(default_factory=lambda: np.zeros(0))  # one per step
    micro_losses: Losses | None = None
    seconds: float = 0.0
    step_seconds: float = 0.0  # the median
    figures: list[Figures] = field(default_factory=list)  # one per rank
    twin: Curve | None = None  # the losses of plain PyTorch
    equal_bits: bool = False  # of every micro-batch's loss

    @property
    def as_planned(self) -> bool:
        return all(figures.as_planned(self.options.steps) for figures in self.figures)

    @property
    def loss_first(self) -> float:
        return float(self.losses[0])

    @property
    def loss_last(self) -> float:
        """The mean over the last twentieth of the steps."""
        return float(self.losses[-max(1, len(self.losses) // 20) :].mean())

    @property
    def tokens_per_second(self) -> float:
        options = self.options
        tokens = options.steps * options.accumulate * self.ranks * options.batch * options.context
        return tokens / self.seconds

    @property
    def twin_difference(self) -> float:
        """The largest, relative."""
        assert self.twin is not None
        return float((np.abs(self.losses - self.twin) / self.twin).max())


def print_begin(summary: Summary) -> None:
    options = summary.options
    where = "" if options.device == "cpu" else f" on {options.device}"
    print(
        f"{summary.parameters:,} parameters ({options.dtype}) over {summary.ranks} "
        f"rank{'' if summary.ranks == 1 else 's'}{where}, plan {options.plan}, transport "
        f"{summary.transport}, API {options.api}; {summary.text_bytes:,} bytes of text",
        flush=True,
    )


def print_summary(summary: Summary) -> None:
    steps = summary.options.steps
    first, last = summary.loss_first, summary.loss_last
    print(
        f"\nloss    {first:.3f} at first, {last:.3f} at last: {100 * last / first:.1f} % of its "
        f"start\nspeed   {summary.tokens_per_second:.0f} tokens/s, "
        f"{steps / summary.seconds:.2f} steps/s, {summary.seconds:.1f} s in all"
    )
    if summary.twin is not None:
        verdict = (
            "all losses have equal bits"
            if summary.equal_bits
            else f"losses differ by at most {summary.twin_difference:.1e}, relative"
        )
        print(f"twin    one process of plain PyTorch, in f32: {verdict}")

    def row(rank: object, what: str, *cells: object) -> None:
        shown = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells]
        print(f"  {rank!s:<5}{what:<8}" + "".join(f"{cell:>15}" for cell in shown))

    peaks = ", ".join(f"{figures.process_peak / 2**20:,.0f}" for figures in summary.figures)
    kept = ""
    if summary.options.activation_checkpointing:
        kept = f"; {summary.figures[0].activations / 2**20:,.1f} MiB of inputs of blocks"
    print(f"memory  {peaks} MiB at most, by process{kept}")
    if any(figures.device_peak for figures in summary.figures):
        peaks = ", ".join(f"{figures.device_peak / 2**20:,.0f}" for figures in summary.figures)
        print(f"GPU     {peaks} MiB at most, by rank")
    print("\nBytes that each rank holds, and moves per step:\n")
    device = any(figures.on_device for figures in summary.figures)
    host = ("parameters", "gradients", "optimizer", "host's peak" if device else "peak")
    row("rank", "", *host, "gathered", "reduced", *["on the device"][:device])
    for rank, f in enumerate(summary.figures):
        row(
            rank,
            "counted",
            *(f.param, f.gradient, f.optimizer, f.peak),
            *(f.gathered // steps, f.reduced // steps),
            *[f.on_device][:device],
        )
        row(
            "",
            "plan",
            *(f.planned_param, f.planned_gradient, f.planned_optimizer, f.planned_peak),
            *(f"<= {f.planned_gathered:,}", f.planned_reduced),
            *[f.planned_on_device][:device],
        )
    if device:
        print("\nThe host's peak is of the beginning, when values come to the devices.")
    if summary.plan["param"]["tier"] == "host":
        whole = summary.parameters * (2 if summary.options.dtype == "bf16" else 4)
        share = summary.figures[0].param / whole
        print(f"\nRank 0 holds {100 * share:.1f} % of the parameters between uses.")


def as_json(summary: Summary) -> dict[str, Any]:
    options = summary.options
    names = {name: f"{name}_bytes" for name in ("param", "gradient", "optimizer", "peak")}
    names["on_device"] = "device_bytes"
    result = {
        "example": "03_gpt",
        "language": "torch",
        "api": options.api,
        "ranks": summary.ranks,
        "transport": summary.transport,
        "plan": summary.plan,
        "parameters": summary.parameters,
        "dtype": options.dtype,
        "device": options.device,
        "text_bytes": summary.text_bytes,
        "steps": options.steps,
        "batch": options.batch,
        "accumulate": options.accumulate,
        "width": options.width,
        "layers": options.layers,
        "heads": options.heads,
        "context": options.context,
        "learning_rate": options.lr,
        "clip": options.clip,
        "activation_checkpointing": sorted(options.activation_checkpointing or ()),
        "seed": options.seed,
        "seconds": round(summary.seconds, 3),
        "step_seconds": round(summary.step_seconds, 6),
        "tokens_per_second": round(summary.tokens_per_second, 1),
        "loss_first": summary.loss_first,
        "loss_last": summary.loss_last,
        "as_planned": summary.as_planned,
        "per_rank": [
            {
                "rank": rank,
                **{
                    key: {"counted": getattr(f, name), "plan": getattr(f, f"planned_{name}")}
                    for name, key in names.items()
                },
                "device_peak_bytes": f.device_peak,
                "process_peak_bytes": f.process_peak,
                "activation_bytes": f.activations,
                "gather_bytes": {"counted": f.gathered, "plan_per_step": f.planned_gathered},
                "reduce_bytes": {"counted": f.reduced, "plan_per_step": f.planned_reduced},
            }
            for rank, f in enumerate(summary.figures)
        ],
        "losses": summary.losses.tolist(),
    }
    if summary.twin is not None:
        result["twin"] = {
            "equal_bits": summary.equal_bits,
            "largest_relative_difference": summary.twin_difference,
            "losses": summary.twin.tolist(),
        }
    return result


def write_json(summary: Summary, path: str) -> None:
    Path(path).write_text(json.dumps(as_json(summary), indent=2) + "\n")


def draw(summary: Summary, path: str) -> None:
    plot([as_json(summary)], Path(path))
