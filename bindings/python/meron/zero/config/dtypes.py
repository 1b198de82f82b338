# SPDX-License-Identifier: Apache-2.0
"""Reads a config's dtypes: of params, values and states, and of gradients. Pure data.

Stages 2 and 3 sum every micro-batch in f32. At stages 0 and 1 each rank adds micro-batches to full
gradients and sends these unconverted: one dtype for both. If the config names none, gradients of
16-bit params are f32 from the second micro-batch on.
"""

from __future__ import annotations

import torch

from meron import errors
from meron.zero.config.block import Block
from meron.zero.config.model import Config
from meron.zero.config.precision import Autocast, Fp16

ACCUMULATE = "data_types.grad_accum_dtype"
TRAVEL = "communication_data_type"
DYNAMIC = (
    *("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis"),
    "min_loss_scale",
)


def take_dtypes(config: Config, top: Block) -> None:
    """Sets the dtypes of params, buffers, values and states, and the loss scale."""
    fp16, bf16, types = top.block("fp16"), top.block("bf16"), top.block("data_types")
    asked = types.get("param_dtype")
    config.dtype, config.buffer_dtype = asked, types.get("buffer_dtype")
    on = fp16.get("enabled"), bf16.get("enabled")
    if all(on):
        raise errors.argument("fp16 and bf16 are both enabled", advice="Choose one.")
    if on[0]:
        config.dtype = torch.float16
        config.check_overflow = True
        config.fp16 = take_scale(fp16)
    elif on[1]:
        config.dtype = torch.bfloat16
        config.check_overflow = bf16.get("check_grad_overflow")
        take_bf16(config, bf16)
    if any(on) and asked not in (None, config.dtype):
        raise errors.argument(
            f"data_types.param_dtype is {asked}, but {'fp16' if on[0] else 'bf16'} is enabled",
            subject="data_types.param_dtype",
            advice="Leave one of them out.",
        )
    autocast = top.block("torch_autocast")
    if autocast.get("enabled"):
        config.autocast = Autocast(autocast.get("dtype"))
        if config.scaling is not None:
            config.check_overflow = True


def take_scale(block: Block) -> Fp16:
    """The loss scale. The numbers of a dynamic one are not read if it is fixed."""
    scale = Fp16(loss_scale=block.get("loss_scale"), auto_cast=block.get("auto_cast"))
    if scale.loss_scale == 0:
        for name in DYNAMIC:
            setattr(scale, name, block.get(name))
    return scale


def take_bf16(config: Config, block: Block) -> None:
    config.bf16_states = block.get("bf16_optimizer_states")
    config.bf16_values = block.get("bf16_master_weights_and_grads")


def take_gradient_dtypes(config: Config, top: Block) -> None:
    """Sets `gradient_dtype` and `accumulation_dtype`; needs the stage and the params' dtype.

    Stages 2 and 3 sum in f32, also if 16 bits are asked for: it is as exact at least.
    """
    travel = top.get(TRAVEL)
    if top.get("fp32_allreduce"):
        if travel not in (None, torch.float32):
            raise errors.argument(
                f"fp32_allreduce is true, and {TRAVEL} another dtype",
                subject="fp32_allreduce",
                advice=f"Remove it: it is the old name of {TRAVEL} fp32.",
            )
        travel = torch.float32
    asked = top.block("data_types").get("grad_accum_dtype")
    config.accumulation_dtype = asked
    if config.stage >= 2:
        if asked not in (None, torch.float32):
            config.without_effect.append(ACCUMULATE)
        config.gradient_dtype = travel
        return
    config.gradient_dtype = whole_gradients(config, travel, asked)
    written = config.gradient_dtype or config.dtype or torch.float32
    for key, dtype in ((TRAVEL, travel), (ACCUMULATE, asked)):
        if dtype not in (None, written):
            config.without_effect.append(key)


def whole_gradients(
    config: Config, travel: torch.dtype | None, asked: torch.dtype | None
) -> torch.dtype | None:
    """The dtype of full gradients: the wider one of the config's. None is the params' dtype, or f32
    from the second micro-batch on."""
    if asked is None and config.stage == 0 and config.dtype == torch.bfloat16:
        asked = torch.float32  # as in DeepSpeed
    accumulated = asked or config.dtype or torch.float32
    if travel is None:
        return asked
    return asked if travel == accumulated and travel != torch.float32 else torch.float32
