# SPDX-License-Identifier: Apache-2.0
"""The same training with meron.zero, in DeepSpeed's words: a config, an engine that has the loop's
verbs, and AdamW by Meron. A script for DeepSpeed gets here by changing its import."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch

import meron
from common.progress import Progress
from meron import zero
from meron.zero.config import parse

from .examples import Examples
from .model import loss_of
from .recipe import Losses, Trained, build, checkpointed, gathered, learning_rate, torch_device


def zero_block(plan: str) -> dict[str, Any]:
    """A plan's name in DeepSpeed's keys."""
    name, _, size = plan.rstrip(")").partition("(")
    ranks = int(size or 0)
    if name == "mics":
        return {"stage": 3, "mics_shard_size": ranks}
    if name == "hpz":
        return {"stage": 3, "zero_hpz_partition_size": ranks}
    if name == "zeropp":
        return {
            "stage": 3,
            "zero_hpz_partition_size": ranks,
            "zero_quantized_weights": True,
            "zero_quantized_gradients": True,
            "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 1024},
        }
    return {"stage": int(name.removeprefix("zero"))}


def zero_optimization(options: Namespace) -> dict[str, Any]:
    block = zero_block(options.plan)
    if options.nvme is not None:
        block["offload_optimizer"] = {
            "device": "nvme",
            "nvme_path": options.nvme,
            "buffer_count": 4,  # a small model: little beside its states
        }
    return block


def config_of(options: Namespace) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "gradient_clipping": options.clip,
        "zero_optimization": zero_optimization(options),
        "bf16": {"enabled": options.dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": options.lr, "weight_decay": 0.01}},
    }


def plan_of(options: Namespace) -> meron.Plan:
    """The plan that the config becomes, with the states' tier."""
    return parse(config_of(options)).plan()


def train(
    context: meron.Context, options: Namespace, examples: Examples, progress: Progress
) -> Trained:
    rank, ranks, accumulate = context.rank, context.world_size, options.accumulate
    losses, device = Losses.of(options, ranks), torch_device(options)

    def make_schedule(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate(options.steps))

    engine, optimizer, *_ = zero.initialize(
        model=checkpointed(build(options), options),
        config=config_of(options),
        lr_scheduler=make_schedule,
        device=options.device,
    )

    context = engine.sharding.context  # its own where the config puts rows on the device
    before = gathered(context)
    with progress:
        for step in range(options.steps):
            for turn in range(accumulate):
                number = (step * accumulate + turn) * ranks + rank
                loss = loss_of(engine, examples[number].to(device))
                engine.backward(loss)
                engine.step()  # updates after the last micro-batch of the step
                losses.values[step, turn, rank] = loss.item()
            progress(step + 1, losses.values[step, :, rank].mean())
    return Trained(context, losses, engine, optimizer, optimizer_bytes=0, gathered_before=before)
