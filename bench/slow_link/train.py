# SPDX-License-Identifier: Apache-2.0
"""One rank: trains a GPT under each plan in turn, and rank 0 prints all figures as JSON."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from counters import repeated, say, summed
from plans import ARMS, Arm
from shape import CONTEXT, HEADS, LAYERS, WIDTH

import meron
import meron.torch as mt

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "03_gpt"))
from gpt.model import GPT, Block, loss_of

ROUNDING = 8  # bytes, where predicted_bytes divides what the plan says of all units
WARM_UP = 2  # the first records the order of units, the second follows it
# Sequences of a micro-batch, and how long they are.
CASES = {"small": (1, 8), "usual": (8, CONTEXT)}
# As where the model is larger than memory: two blocks are on their way ahead of use, and nothing is
# kept whole from its forward to its backward (FSDP's reshard_after_forward).
BLOCK = 12 * WIDTH * WIDTH
LIMITS = {
    "prefetch_elements": 2 * BLOCK,
    "max_live_elements": 4 * BLOCK,
    "max_reuse_elements": 0,
    "persist_elements": 0,
}


def train(arm: Arm, case: str, seconds: float, least: int) -> Any:
    """Figures of some steps; a context of its own, which is gone afterwards."""
    with meron.open(plan=arm.plan, threads=1) as context:
        figures = train_in(context, arm, case, seconds, least)
        gc.collect()  # tensors in the context's memory would keep it open
    return figures


def train_in(context: meron.Context, arm: Arm, case: str, seconds: float, least: int) -> Any:
    rows, length = CASES[case]
    torch.manual_seed(1)
    module = GPT(WIDTH, LAYERS, HEADS, CONTEXT)
    batch = torch.randint(0, 256, (rows, length + 1))
    bf16 = mt.MixedPrecision(torch.bfloat16)
    # All ranks have equal values: none has to be sent.
    mt.shard(module, units=Block, mp=bf16, context=context, broadcast=False, **LIMITS)
    optimizer = mt.AdamW(module)

    def step() -> None:
        for left in reversed(range(arm.micro_batches)):
            mt.set_is_last_backward(module, left == 0)
            loss_of(module, batch).backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    figures = repeated(context, step, seconds, least)
    parts = predicted_bytes(context, module, arm.micro_batches)
    predicted = sum(summed(context, [float(part) for part in parts])) / context.world_size
    figures["predicted"] = predicted
    counted = figures["gathered"] + figures["reduced"]
    figures["as_predicted"] = abs(counted - predicted) <= ROUNDING
    figures["elements"] = sum(param.numel() for param in module.parameters())
    return figures


def predicted_bytes(
    context: meron.Context, module: torch.nn.Module, micro_batches: int
) -> tuple[int, int]:
    """Bytes between nodes of gathers, and of reductions. All units are gathered twice in a
    micro-batch, except the last block, whose backward follows its forward at once."""
    once, twice = (
        context.predict(micro_batches, gathers_per_micro_batch=gathers) for gathers in (1, 2)
    )
    elements = [sum(param.numel() for param in block.parameters()) for block in module.blocks]
    whole = sum(param.numel() for param in module.parameters())
    second = twice.inter_node_gather_bytes - once.inter_node_gather_bytes
    kept = second * elements[-1] // whole
    return once.inter_node_gather_bytes + second - kept, once.inter_node_reduce_bytes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", required=True, help="JSON: pairs of a case and an arm")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--least", type=int, default=3, help="steps, however long they take")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    series = []
    for _ in range(options.rounds):
        for case, name in json.loads(options.jobs):
            figures = train(ARMS[name], case, options.seconds, options.least)
            series.append({"case": case, "arm": name, **figures})
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        say({"series": series})


if __name__ == "__main__":
    main()
