# SPDX-License-Identifier: Apache-2.0
"""One run, from the command line to the summary.

Exit code: 0, 1 (something was not as planned), 2 (bad input).
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import astuple
from resource import RUSAGE_SELF, getrusage

import numpy as np
import torch

import meron
import meron.torch as mt
from common import text
from common.command_line import BadInput, load_plan, try_outputs
from common.progress import Progress
from meron import checkpointing

from . import engine, plain, report
from . import options as command_line
from .examples import Examples
from .recipe import Trained, count_parameters, gathered, torch_device


def train(
    context: meron.Context, options: Namespace, examples: Examples, shown: bool
) -> report.Summary:
    """Trains by the chosen API; what rank 0 is to report."""
    if options.api == "zero":
        from . import engine as way
    else:
        from . import functional as way
    summary = report.Summary(
        options=options,
        ranks=context.world_size,
        transport=context.transport,
        plan=json.loads(context.plan.json()),
        parameters=count_parameters(options),
        text_bytes=len(examples.text),
    )
    if shown:
        report.print_begin(summary)
    progress = Progress(options.steps, shown, "training")
    trained = way.train(context, options, examples, progress)
    context, losses = trained.context, trained.losses
    summary.plan = json.loads(context.plan.json())
    context.world.all_reduce(losses.values)  # each rank filled in its own
    summary.losses, summary.seconds = losses.curve(), progress.seconds
    summary.step_seconds = progress.step_seconds
    summary.figures = collect_figures(context, options, trained)
    summary.micro_losses = losses
    return summary


def collect_figures(
    context: meron.Context, options: Namespace, trained: Trained
) -> list[report.Figures]:
    """Exchanges the counters of all ranks since the open of the context, and the predictions of
    their plans.

    Torch's optimizers keep their states in torch's own memory, which is added to the engine's.
    """
    counted, optimizer_bytes = context.stats(), trained.optimizer_bytes
    plan = context.predict(micro_batches=options.accumulate, gathers_per_micro_batch=2)
    mine = report.Figures(
        param=counted.param_bytes,
        gradient=counted.gradient_bytes,
        optimizer=counted.optimizer_bytes + optimizer_bytes,
        peak=counted.peak_bytes + optimizer_bytes,
        planned_param=plan.param_bytes,
        planned_gradient=plan.gradient_bytes,
        planned_optimizer=plan.optimizer_bytes,
        planned_peak=plan.peak_bytes,
        gathered=gathered(context) - trained.gathered_before,
        reduced=counted.reduce_bytes,
        planned_gathered=plan.gather_mapped_bytes + plan.gather_copied_bytes,
        planned_reduced=plan.reduce_bytes,
        on_device=counted.device_bytes,
        planned_on_device=plan.device_bytes,
        process_peak=getrusage(RUSAGE_SELF).ru_maxrss * 1024,
        activations=checkpointing.profile_summary().peak_kept_bytes,
        device_peak=torch.cuda.max_memory_allocated() if torch.cuda.is_initialized() else 0,
        between_nodes=plan.inter_node_gather_bytes + plan.inter_node_reduce_bytes > 0,
    )
    figures = []
    for rank in range(context.world_size):
        numbers = np.array(astuple(mine), np.uint64)
        context.world.broadcast(numbers, root=rank)
        figures.append(report.Figures(*(int(value) for value in numbers)))
    return figures


def repeat_sums() -> None:
    """Equal runs on a GPU have equal losses; where torch has no such kernel it says so."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def compare(summary: report.Summary, examples: Examples, shown: bool) -> None:
    """Trains the plain twin in this process, with as many threads as the rank had."""
    options = summary.options
    progress = Progress(options.steps, shown, "comparing")
    losses = plain.train(options, examples, summary.ranks, summary.plan, progress)
    summary.twin = losses.curve()
    summary.equal_bits = bool((losses.values == summary.micro_losses.values).all())


def main() -> int:
    try:
        return start(sys.argv[1:])
    except meron.Error as error:
        print(f"gpt: {error}", file=sys.stderr)
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
            if options.nvme is not None:
                plan = engine.plan_of(options)
            data = text.load(options.data, options.context + 1)
            try_outputs(options)
    except BadInput as error:
        problem = str(error)

    device = "cpu" if problem is not None or plan is None else options.device
    context = mt.context_for(plan or meron.Plan.preset("zero3"), device=device)
    leads = context.rank == 0
    if problem is not None:
        if leads:
            print(f"gpt: {problem}", file=sys.stderr, flush=True)
    elif plan is None:
        if leads:
            print(options.usage, end="", flush=True)
    else:
        shown = leads and not options.quiet
        if torch_device(options).type == "cuda":
            repeat_sums()
        text_bytes = torch.frombuffer(data, dtype=torch.uint8)
        examples = Examples(text_bytes, options.batch, options.context, options.seed)
        summary = train(context, options, examples, shown)
    # `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first.
    context.world.barrier()
    context.close()

    if summary is None:
        return 0 if problem is None else 2
    if leads:
        if options.compare:  # the other ranks need not wait
            compare(summary, examples, shown)
        finish(summary, shown)
    return 0 if summary.as_planned else 1


def finish(summary: report.Summary, shown: bool) -> None:
    if shown:
        report.print_summary(summary)
    if not summary.as_planned:
        print("gpt: counters and plan differ", file=sys.stderr, flush=True)
    if summary.options.json:
        report.write_json(summary, summary.options.json)
    if summary.options.plot:
        report.draw(summary, summary.options.plot)
