# SPDX-License-Identifier: Apache-2.0
"""Trains a language model on the bytes of a text, partitioned over the ranks.

Exit code: 0, 1 (something was not as planned), 2 (bad input).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

import meron

from . import report, text
from .train import Trainer


class BadInput(Exception):
    """What is wrong with what the user gave, and what to do."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}: --help lists the options")


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if value.isdecimal() and least <= int(value) <= most:
            return int(value)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")

    return read


def rate(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if 0 < number < math.inf:
        return number
    raise argparse.ArgumentTypeError("must be a number above 0")


def dtype(value: str) -> str:
    if value in ("f32", "bf16", "f16"):
        return value
    raise argparse.ArgumentTypeError("must be f32, bf16 or f16")


def parse_options(arguments: list[str]) -> Namespace:
    parser = Parser(
        usage="meron run -n RANKS -- python3 main.py [options]",
        description="Trains a language model on the bytes of a text, partitioned over the ranks.",
        add_help=False,
        allow_abbrev=False,
    )
    count, size = whole(1, 10**8), whole(1, 65536)
    known: list[tuple[str, str, dict[str, Any]]] = [
        (
            "--data",
            f"text to train on (default: {text.DEFAULT_FOLDER})",
            {"nargs": "+", "action": "extend", "metavar": "FILE"},
        ),
        ("--plan", "zero0, zero1, zero2, zero3 or a JSON file", {"default": "zero3"}),
        ("--steps", "optimizer steps", {"type": count, "default": 400}),
        ("--batch", "examples per micro-batch and rank", {"type": size, "default": 64}),
        ("--accumulate", "micro-batches per step and rank", {"type": size, "default": 1}),
        ("--width", "values that flow from layer to layer", {"type": size, "default": 512}),
        (
            "--layers",
            "residual blocks of two matrices each",
            {"type": whole(0, 1000), "default": 4},
        ),
        (
            "--context",
            "bytes that the model sees; must divide the width",
            {"type": size, "default": 16},
        ),
        ("--lr", "peak learning rate", {"type": rate, "default": 0.002}),
        ("--dtype", "of the parameters: f32, bf16 or f16", {"type": dtype, "default": "f32"}),
        (
            "--seed",
            "of the initial values and the choice of examples",
            {"type": whole(0, 10**9), "default": 1},
        ),
        ("--json", "write all figures and the loss curve there", {"metavar": "FILE"}),
        ("--plot", "draw the loss curve there", {"metavar": "FILE.png"}),
        ("--quiet", "print nothing but errors", {"action": "store_true"}),
        ("--help", "this text", {"action": "store_true"}),
    ]
    for name, meaning, how in known:
        if "type" in how:
            how["metavar"] = {"--lr": "RATE", "--dtype": "DTYPE"}.get(name, "N")
        if "default" in how:
            meaning += f" (default: {how['default']})"
        parser.add_argument(name, help=meaning, **how)
    options = parser.parse_args(arguments)
    options.data = options.data or []
    if options.width % options.context:
        next_width = (options.width // options.context + 1) * options.context
        raise BadInput(
            f"--width {options.width} is no multiple of --context {options.context}: take "
            f"{next_width}, for example"
        )
    options.usage = parser.format_help()
    return options


def load_plan(name: str) -> meron.Plan:
    """A preset's name, or a file of JSON."""
    try:
        if "." not in name and "/" not in name:
            return meron.Plan.preset(name)
        return meron.Plan.parse(Path(name).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"--plan: cannot read {name}: {error}; name zero0, zero1, zero2, zero3 or a JSON file"
        ) from error
    except meron.Error as error:
        raise BadInput(f"--plan {name}: {error}") from error


def load_text(options: Namespace) -> NDArray[np.uint8]:
    try:
        data = text.load(options.data)
    except text.NoText as reason:
        raise BadInput(
            f"--data: {reason}; name files that have text in them, or leave --data out to train on "
            f"the licences in {text.DEFAULT_FOLDER}"
        ) from reason
    if len(data) > options.context:
        return data
    raise BadInput(
        f"--data: the text has {len(data)} bytes, and one example takes {options.context + 1}; "
        "name more text, or lower --context"
    )


def try_outputs(options: Namespace) -> None:
    for option, path in (("--json", options.json), ("--plot", options.plot)):
        try:
            if path:
                Path(path).open("ab").close()
        except OSError as error:
            raise BadInput(f"{option}: cannot write {path}: {error.strerror}") from error


def collect_figures(
    context: meron.Context, before: meron.Stats, accumulate: int
) -> list[report.Figures]:
    """What each rank counted since `before` and what its plan predicts, from all to all."""
    after = context.stats()
    plan = context.predict(micro_batches=accumulate, gathers_per_micro_batch=2)
    mine = report.Figures(
        mapped=after.gather_mapped_bytes - before.gather_mapped_bytes,
        copied=after.gather_copied_bytes - before.gather_copied_bytes,
        reduced=after.reduce_bytes - before.reduce_bytes,
        planned_mapped=plan.gather_mapped_bytes,
        planned_copied=plan.gather_copied_bytes,
        planned_reduced=plan.reduce_bytes,
        peak=after.peak_bytes,
        planned_peak=plan.peak_bytes,
        arena_pages=after.arena_pages_bytes,
    )
    figures = []
    for rank in range(context.world_size):
        numbers = np.array(astuple(mine), np.uint64)
        context.world.broadcast(numbers, root=rank)
        figures.append(report.Figures(*(int(number) for number in numbers)))
    return figures


def run(
    context: meron.Context, plan: meron.Plan, options: Namespace, data: NDArray[np.uint8]
) -> report.Summary:
    """Trains; rank 0 reports."""
    trainer = Trainer(context, data, options)
    speaks = context.rank == 0 and not options.quiet
    summary = report.Summary(
        options=options,
        ranks=context.world_size,
        transport=context.transport,
        plan=json.loads(plan.json()),
        parameters=trainer.parameter_count(),
        units=len(trainer.units),
        text_bytes=len(data),
    )
    if speaks:
        report.print_begin(summary)

    before = context.stats()
    summary.losses, summary.seconds = trainer.train(report.Progress(options.steps, speaks))
    summary.figures = collect_figures(context, before, options.accumulate)

    if speaks:
        report.print_summary(summary)
    if context.rank == 0:
        if not summary.as_planned:
            print("language_model: counters and plan differ", file=sys.stderr, flush=True)
        if options.json:
            report.write_json(summary, options.json)
    return summary


def main() -> int:
    try:
        return start(sys.argv[1:])
    except meron.Error as error:
        print(f"language_model: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def start(arguments: list[str]) -> int:
    # What the user gave is looked at before the ranks meet, and complained about after: every rank
    # finds the same fault, and one of them is to say so.
    problem = plan = summary = None
    try:
        options = parse_options(arguments)
        if not options.help:
            plan = load_plan(options.plan)
            data = load_text(options)
            try_outputs(options)
    except BadInput as error:
        problem = str(error)

    with meron.open(plan=plan or "zero3") as context:
        if problem is not None:
            if context.rank == 0:
                print(f"language_model: {problem}", file=sys.stderr, flush=True)
        elif plan is None:
            if context.rank == 0:
                print(options.usage, end="", flush=True)
        else:
            summary = run(context, plan, options, data)
        # `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first.
        context.world.barrier()

    if summary is None:
        return 0 if problem is None else 2
    if context.rank == 0 and options.plot:
        report.draw(summary, options.plot)
    return 0 if summary.as_planned else 1
