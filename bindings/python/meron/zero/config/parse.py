# SPDX-License-Identifier: Apache-2.0
"""parse: DeepSpeed's JSON config becomes a Config."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

from meron import errors
from meron.zero.config.block import Block
from meron.zero.config.check import check_keys
from meron.zero.config.dtypes import take_dtypes, take_gradient_dtypes
from meron.zero.config.model import Activations, Config, LeafModules, Reports
from meron.zero.config.offload import take_offload
from meron.zero.config.read import Source, read
from meron.zero.config.table import BY_PATH
from meron.zero.config.table.kinds import plain
from meron.zero.config.table.monitors import NAMES as MONITORS
from meron.zero.config.topology import Topology

# Keys of zero_optimization, by the limit of the schedule that they set.
LIMITS = {
    "prefetch_elements": "prefetch_bucket_size",
    "max_live_elements": "max_live_parameters",
    "max_reuse_elements": "max_reuse_distance",
    "persist_elements": "param_persistence_threshold",
    "persist_total_elements": "model_persistence_threshold",
}


def parse(source: Source, unknown: str | None = None) -> Config:
    """A config from a dict, the path of a JSON file, or the base64 of its text.

    Args:
        unknown: the policy for unknown keys that DeepSpeed ignores, such as those of the top level:
            "raise", or "warn", which makes `initialize` warn of them on rank 0. None means "warn"
            if the name `deepspeed` is Meron's in this process, because scripts and libraries that
            were written for DeepSpeed pass their own keys; otherwise "raise".

    Raises ArgumentError for unknown keys (all of them, with the nearest known ones) and for values
    of a wrong type or range; UnsupportedError for keys that enable a feature that Meron lacks;
    ParseError for a file that is no config.
    """
    if unknown not in (None, "raise", "warn"):
        raise errors.argument(f'unknown is {unknown!r}: "raise" and "warn" are known', "unknown")
    table = read(source)
    found = check_keys(table, (unknown or policy()) == "warn")
    config = Config(
        without_effect=found.idle, unknown=found.unknown, warned=found.warned, table=table
    )
    top = Block("", table)
    take_zero(config, table.get("zero_optimization"), top)
    take_dtypes(config, top)
    config.train_batch_size = top.get("train_batch_size")
    config.micro_batch_size = top.get("train_micro_batch_size_per_gpu")
    config.accumulation_steps = top.get("gradient_accumulation_steps")
    config.managed_accumulation = top.get("managed_gradient_accumulation")
    config.clipping = top.get("gradient_clipping")
    config.sums = top.get("gradient_allreduce_op") == "sum"
    config.drop_last = top.get("dataloader_drop_last")
    checkpoint = top.block("checkpoint")
    config.tag_validation = checkpoint.get("tag_validation").lower()
    config.node_local_checkpoints = checkpoint.get("use_node_local_storage")
    config.load_universal = checkpoint.get("load_universal")
    config.write_model_states = checkpoint.get("write_model_states")
    take_gradient_dtypes(config, top)
    config.optimizer = take_kind(top.block("optimizer"))
    config.scheduler = take_kind(top.block("scheduler"))
    if top.given("activation_checkpointing"):
        config.activations = take_activations(top.block("activation_checkpointing"))
    config.monitors = take_monitors(top)
    config.reports = Reports(
        times=top.get("wall_clock_breakdown"),
        memory=top.get("memory_breakdown"),
        every=top.get("steps_per_print"),
        config=top.get("dump_state"),
        log_level=top.get("log_level"),
    )
    return config


def policy() -> str:
    """The policy for unknown keys: "warn" if the name `deepspeed` is Meron's, else "raise"."""
    module = sys.modules.get("deepspeed")
    engine = getattr(module, "DeepSpeedEngine", None)
    own = str(getattr(engine, "__module__", "")).startswith("meron.")
    return "warn" if own else "raise"


def take_kind(block: Block) -> tuple[str, dict[str, Any]] | None:
    """The `type` and `params` of a block; None if it has neither."""
    kind, params = block.get("type"), block.get("params")
    if kind is not None:
        return kind, plain(dict(params or {}))
    if params:
        raise errors.argument(
            f"{block.path}.params is given, and {block.path}.type is not",
            subject=f"{block.path}.type",
            advice="Give it, or leave params out too.",
        )
    return None


def take_monitors(top: Block) -> dict[str, dict[str, Any]]:
    """The values of each block of a monitor that is on."""
    blocks = {name: top.block(name) for name in MONITORS}
    return {
        name: {key.name: block.get(key.name) for key in BY_PATH[name].keys}
        for name, block in blocks.items()
        if block.get("enabled")
    }


def take_activations(block: Block) -> Activations:
    return Activations(**{item.name: block.get(item.name) for item in fields(Activations)})


def take_zero(config: Config, table: Any, top: Block) -> None:
    if table is None:
        return
    if isinstance(table, bool):
        config.stage = int(table)  # the oldest form
        return
    zero = Block("zero_optimization", table)
    config.stage = zero.get("stage")
    for limit, key in LIMITS.items():
        value = zero.get(f"stage3_{key}")
        if value is not None:
            # DeepSpeed's "no limit".
            config.limits[limit] = 2**64 - 1 if value >= sys.maxsize else value
    config.topology = take_topology(zero)
    config.topology.check(config.stage)
    config.offload = take_offload(zero, top)
    if config.topology.hpz > 1 and config.offload.param_path is not None:
        raise errors.argument(
            "zero_hpz_partition_size keeps a secondary partition in memory, and "
            "offload_param.device is nvme",
            subject="zero_optimization.zero_hpz_partition_size",
            advice="Leave one of them out, or offload params to cpu.",
        )
    leaf = zero.block("leaf_module")
    config.leaf = LeafModules(
        list(leaf.get("classes")),
        list(leaf.get("names")),
        list(leaf.get("name_suffixes")),
        zero.get("stage3_module_granularity_threshold"),
    )
    config.gather_weights = zero.get("stage3_gather_16bit_weights_on_model_save")
    config.override_apply = zero.get("override_module_apply")
    config.sanity_checks = zero.get("enable_sanity_checks")


def take_topology(zero: Block) -> Topology:
    loco = zero.block("zeropp_loco_param")
    feedback = None
    if zero.given("zeropp_loco_param"):
        feedback = (loco.get("err_beta"), loco.get("reset_T"))
    return Topology(
        mics=max(zero.get("mics_shard_size"), 0),
        hpz=zero.get("zero_hpz_partition_size") or 1,
        weights=zero.get("zero_quantized_weights"),
        frozen=zero.get("zero_quantized_nontrainable_weights"),
        gradients=zero.get("zero_quantized_gradients"),
        feedback=feedback,
    )
