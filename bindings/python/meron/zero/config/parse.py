# SPDX-License-Identifier: Apache-2.0
"""parse: DeepSpeed's JSON config becomes a Config."""

from __future__ import annotations

import sys
from typing import Any

import torch

from meron import errors
from meron.zero.config.block import Block
from meron.zero.config.keys import check_keys
from meron.zero.config.model import KNOWN_MIXTURES, Config, Fp16, LeafModules
from meron.zero.config.offload import take_offload
from meron.zero.config.precision import take_gradient_dtypes
from meron.zero.config.read import Source, read
from meron.zero.config.topology import Topology

# Keys of zero_optimization, by the limit of the schedule that they set.
LIMITS = {
    "prefetch_elements": "prefetch_bucket_size",
    "max_live_elements": "max_live_parameters",
    "max_reuse_elements": "max_reuse_distance",
    "persist_elements": "param_persistence_threshold",
    "persist_total_elements": "model_persistence_threshold",
}

FEEDBACK = (0.8, 1024)  # of zeropp_loco_param: err_beta, reset_T


def parse(source: Source) -> Config:
    """A config from a dict or the path of a JSON file.

    Raises ArgumentError for unknown keys (all of them, with the nearest known ones) and for values
    of a wrong type or range, UnsupportedError for keys that switch on what Meron does not have.
    """
    table = read(source)
    config = Config(without_effect=check_keys(table))
    top = Block("", table)
    take_zero(config, table.get("zero_optimization"), top)
    take_dtypes(config, table)
    config.train_batch_size = top.whole("train_batch_size", None, 1)
    config.micro_batch_size = top.whole("train_micro_batch_size_per_gpu", None, 1)
    config.accumulation_steps = top.whole("gradient_accumulation_steps", None, 1)
    config.managed_accumulation = top.flag("managed_gradient_accumulation", True)
    config.clipping = top.number("gradient_clipping", 0.0)
    config.drop_last = top.flag("dataloader_drop_last", False)
    config.tag_validation = take_tag_validation(top.block("checkpoint"))
    config.node_local_checkpoints = top.block("checkpoint").flag("use_node_local_storage", False)
    take_gradient_dtypes(config, top)
    config.optimizer = take_kind(top.block("optimizer"))
    config.scheduler = take_kind(top.block("scheduler"))
    return config


def take_tag_validation(block: Block) -> str:
    value = block.table.get("tag_validation", "Warn")
    if not isinstance(value, str) or value.lower() not in ("ignore", "warn", "fail"):
        raise block.wrong("tag_validation", '"Ignore", "Warn" or "Fail"')
    return value.lower()


def take_kind(block: Block) -> tuple[str, dict[str, Any]] | None:
    """What a block of `type` and `params` names."""
    kind, params = block.table.get("type"), block.block("params").table
    if isinstance(kind, str):
        return kind, dict(params)
    if kind is not None or params:
        raise errors.argument(
            f"{block.path}.type must be a name, not {kind!r}",
            subject=f"{block.path}.type",
            advice="Give it, or leave params out too.",
        )
    return None


def take_zero(config: Config, table: Any, top: Block) -> None:
    if table is None:
        return
    if isinstance(table, bool):
        config.stage = int(table)  # the oldest form
        return
    zero = Block("zero_optimization", table)
    config.stage = zero.whole("stage", 0, 0, 3) or 0
    for limit, key in LIMITS.items():
        value = zero.whole(zero.one_of(f"stage3_{key}", key), None, 0)
        if value is not None:
            # DeepSpeed's "no limit".
            config.limits[limit] = 2**64 - 1 if value >= sys.maxsize else value
    config.topology = take_topology(zero)
    config.topology.check(config.stage)
    config.offload = take_offload(zero, top)
    leaf = zero.block("leaf_module")
    config.leaf = LeafModules(
        leaf.words("classes") if leaf.table.get("classes") is not None else list(KNOWN_MIXTURES),
        leaf.words("names"),
        leaf.words("name_suffixes"),
        zero.whole("stage3_module_granularity_threshold", 0, 0) or 0,
    )
    gather = "gather_16bit_weights_on_model_save"
    config.gather_weights = zero.flag(zero.one_of(f"stage3_{gather}", gather), True)
    config.override_apply = zero.flag("override_module_apply", True)
    config.sanity_checks = zero.flag("enable_sanity_checks", False)


def take_topology(zero: Block) -> Topology:
    loco = zero.block("zeropp_loco_param")
    feedback = None
    if zero.table.get("zeropp_loco_param") is not None:
        beta = loco.number("err_beta", FEEDBACK[0])
        if beta >= 1:
            raise loco.wrong("err_beta", "a number of at least 0 and below 1")
        feedback = (beta, loco.whole("reset_T", FEEDBACK[1], 1, 2**30) or 0)
    return Topology(
        mics=max(zero.whole("mics_shard_size", -1, -1) or 0, 0),
        hpz=zero.whole("zero_hpz_partition_size", 1, 0) or 1,
        weights=zero.flag("zero_quantized_weights", False),
        frozen=zero.flag("zero_quantized_nontrainable_weights", False),
        gradients=zero.flag("zero_quantized_gradients", False),
        feedback=feedback,
    )


def take_dtypes(config: Config, table: dict[str, Any]) -> None:
    top = Block("", table)
    fp16 = top.block("fp16")
    bf16 = top.block(top.one_of("bf16", "bfloat16"))
    types = top.block("data_types")
    config.dtype = types.dtype("param_dtype")
    config.buffer_dtype = types.dtype("buffer_dtype")
    on = fp16.flag("enabled", False), bf16.flag("enabled", False)
    if all(on):
        raise errors.argument("fp16 and bf16 are both enabled", advice="Choose one.")
    if on[0]:
        config.dtype = torch.float16
        config.check_overflow = True
        config.fp16 = Fp16(
            loss_scale=fp16.number("loss_scale", 0.0),
            initial_scale_power=fp16.whole("initial_scale_power", 16, 0, 60) or 0,
            loss_scale_window=fp16.whole("loss_scale_window", 1000, 1) or 1,
            hysteresis=fp16.whole("hysteresis", 2, 1) or 1,
            consecutive_hysteresis=fp16.flag("consecutive_hysteresis", False),
            min_loss_scale=fp16.number("min_loss_scale", 1.0),
            auto_cast=fp16.flag("auto_cast", False),
        )
        if config.fp16.min_loss_scale <= 0:
            raise errors.argument("fp16.min_loss_scale must be above 0", "fp16.min_loss_scale")
    elif on[1]:
        config.dtype = torch.bfloat16
        config.check_overflow = bf16.flag("check_grad_overflow", True)
    asked = types.dtype("param_dtype")
    if any(on) and asked not in (None, config.dtype):
        raise errors.argument(
            f"data_types.param_dtype is {asked}, but {'fp16' if on[0] else 'bf16'} is enabled",
            subject="data_types.param_dtype",
            advice="Leave one of them out.",
        )
