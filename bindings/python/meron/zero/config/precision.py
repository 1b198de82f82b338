# SPDX-License-Identifier: Apache-2.0
"""The dtype that a config's gradients are written and accumulated in. Pure data.

Stages 2 and 3 sum every micro-batch in f32. Stages 0 and 1 keep whole gradients on each rank, to
which micro-batches are added, and which travel as they are: one dtype for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from meron import errors

if TYPE_CHECKING:
    from meron.zero.config.block import Block
    from meron.zero.config.model import Config

ACCUMULATE = "data_types.grad_accum_dtype"
TRAVEL = "communication_data_type"


def take_gradient_dtypes(config: Config, top: Block) -> None:
    """Sets `gradient_dtype` and `accumulation_dtype`; needs the stage and the params' dtype.

    Raises UnsupportedError for sums in 16 bits at stages 2 and 3.
    """
    travel = top.dtype(TRAVEL)
    if top.flag("fp32_allreduce", False):
        if travel not in (None, torch.float32):
            raise errors.argument(
                f"fp32_allreduce is true, and {TRAVEL} another dtype",
                subject="fp32_allreduce",
                advice=f"Remove it: it is the old name of {TRAVEL} fp32.",
            )
        travel = torch.float32
    asked = top.block("data_types").dtype("grad_accum_dtype")
    config.accumulation_dtype = asked
    if config.stage >= 2:
        if asked not in (None, torch.float32):
            raise errors.UnsupportedError(
                f"{ACCUMULATE}: stage {config.stage} sums gradients in fp32",
                subject=ACCUMULATE,
                advice="Remove it, or write fp32.",
            )
        config.gradient_dtype = travel
        return
    config.gradient_dtype = whole_gradients(config, travel, asked)
    for key, dtype in ((TRAVEL, travel), (ACCUMULATE, asked)):
        if dtype not in (None, config.gradient_dtype):
            config.without_effect.append(key)


def whole_gradients(
    config: Config, travel: torch.dtype | None, asked: torch.dtype | None
) -> torch.dtype | None:
    """The dtype of whole gradients; None is the params'. What is asked for wins where it loses
    nothing."""
    if asked is None and config.stage == 0 and config.dtype == torch.bfloat16:
        asked = torch.float32  # as in DeepSpeed
    if travel is None:
        return asked
    accumulated = asked or config.dtype or torch.float32
    return travel if travel == accumulated else torch.float32
