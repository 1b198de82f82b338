# SPDX-License-Identifier: Apache-2.0
"""One run, from the command line to the summary.

Exit code: 0, 1 (something was not as planned), 2 (bad input).
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

import meron
from common import text
from common.command_line import BadInput, load_plan, try_outputs
from common.progress import Progress

from . import options as command_line
from . import report
from .checkpoints import Saver, resume
from .pretrained import publish, start_from
from .train import Trainer


def collect_figures(
    context: meron.Context, before: meron.Stats, accumulate: int
) -> list[report.Figures]:
    """Exchanges the counters of all ranks since `before`, and the predictions of their plans."""
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
        between_nodes=plan.inter_node_gather_bytes + plan.inter_node_reduce_bytes > 0,
    )
    figures = []
    for rank in range(context.world_size):
        numbers = np.array(astuple(mine), np.uint64)
        context.world.broadcast(numbers, root=rank)
        *counts, between_nodes = (int(number) for number in numbers)
        figures.append(report.Figures(*counts, between_nodes=between_nodes != 0))
    return figures


def run(
    context: meron.Context, plan: meron.Plan, options: Namespace, data: NDArray[np.uint8]
) -> report.Summary:
    """Trains; rank 0 reports. Raises BadInput on all ranks if there is nothing to
    resume or to start from."""
    trainer = Trainer(context, data, options)
    speaks = context.rank == 0 and not options.quiet
    if options.resume or options.published:
        loaded = resume(trainer) if options.resume else start_from(trainer)
        if speaks:
            print(loaded, flush=True)
    steps = options.steps - trainer.first
    save = Saver(trainer)
    summary = report.Summary(
        options=options,
        steps=steps,
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
    progress = Progress(steps, speaks)
    summary.losses = trainer.train(progress, save)
    save.finish()
    summary.seconds = progress.seconds
    summary.figures = collect_figures(context, before, options.accumulate)
    if options.export:
        publish(trainer)

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
    # The user's input is checked before the ranks meet, and reported after: every rank finds the
    # same error, and one rank reports it.
    problem = plan = summary = None
    try:
        options = command_line.parse(arguments)
        if not options.help:
            plan = load_plan(options.plan)
            data = np.frombuffer(text.load(options.data, options.context + 1), np.uint8)
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
            try:
                summary = run(context, plan, options, data)
            except BadInput as error:
                if context.rank == 0:
                    print(f"language_model: {error}", file=sys.stderr, flush=True)
                problem = str(error)
        # `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first.
        context.world.barrier()

    if summary is None:
        return 0 if problem is None else 2
    if context.rank == 0 and options.plot:
        report.draw(summary, options.plot)
    return 0 if summary.as_planned else 1
