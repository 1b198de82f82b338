# SPDX-License-Identifier: Apache-2.0
"""The keys of DeepSpeed's JSON config, and what becomes of each here.

A key that nobody knows is an error that names the nearest known one: a misspelt key that is
silently ignored costs more than a start that fails.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from meron import errors

# Read by config.py.
USED = "used"
# Tells DeepSpeed how to do what Meron does in another way; any value, without effect.
WITHOUT_EFFECT = "without effect"


class Off:
    """A key of something that Meron does not have: only values that leave it off are accepted.

    block_is_off: a block that does not say whether it is on leaves it off.
    """

    def __init__(self, *values: Any, advice: str = "", block_is_off: bool = False) -> None:
        self.values = values
        self.advice = advice
        self.block_is_off = block_is_off

    def accepts(self, value: Any) -> bool:
        if isinstance(value, Mapping):
            # A block is off when it says so, or when it says nothing, or all that is in it is off.
            switch = next((key for key in ("enabled", "device") if key in value), None)
            if switch is not None:
                return value[switch] in (False, None, "none")
            return self.block_is_off or all(
                self.accepts(item) if isinstance(item, Mapping) else item in (False, None)
                for item in value.values()
            )
        return any(
            value is off or (value == off and type(value) is type(off)) for off in self.values
        )


BLOCK_OFF = Off(None, False)

ZERO: dict[str, Any] = {
    "stage": USED,
    "stage3_prefetch_bucket_size": USED,
    "prefetch_bucket_size": USED,
    "stage3_param_persistence_threshold": USED,
    "param_persistence_threshold": USED,
    "stage3_model_persistence_threshold": USED,
    "model_persistence_threshold": USED,
    "stage3_max_live_parameters": USED,
    "max_live_parameters": USED,
    "stage3_max_reuse_distance": USED,
    "max_reuse_distance": USED,
    "stage3_module_granularity_threshold": USED,
    "leaf_module": USED,
    "override_module_apply": USED,
    "enable_sanity_checks": USED,
    # save_16bit_model gathers at every stage.
    "stage3_gather_16bit_weights_on_model_save": USED,
    "stage3_gather_fp16_weights_on_model_save": WITHOUT_EFFECT,
    "gather_16bit_weights_on_model_save": USED,
    # Gradients are written where peers read them, gathered parameters are mapped: there are no
    # buckets, staging buffers or streams to tune.
    "contiguous_gradients": WITHOUT_EFFECT,
    "reduce_scatter": WITHOUT_EFFECT,
    "reduce_bucket_size": WITHOUT_EFFECT,
    "use_multi_rank_bucket_allreduce": WITHOUT_EFFECT,
    "allgather_partitions": WITHOUT_EFFECT,
    "allgather_bucket_size": WITHOUT_EFFECT,
    "overlap_comm": WITHOUT_EFFECT,
    "load_from_fp32_weights": WITHOUT_EFFECT,
    "sub_group_size": USED,
    "round_robin_gradients": WITHOUT_EFFECT,
    "stage3_use_all_reduce_for_fetch_params": WITHOUT_EFFECT,
    "stage3_allgather_sequential": WITHOUT_EFFECT,
    "ignore_unused_parameters": WITHOUT_EFFECT,
    "legacy_stage1": WITHOUT_EFFECT,
    "memory_efficient_linear": WITHOUT_EFFECT,
    "pipeline_loading_checkpoint": WITHOUT_EFFECT,
    "log_trace_cache_warnings": WITHOUT_EFFECT,
    "save_muon_momentum_buffer_in_memory": WITHOUT_EFFECT,
    "cpu_offload_use_pin_memory": WITHOUT_EFFECT,
    "allgather_size": WITHOUT_EFFECT,
    "zero_quantized_weights": USED,
    "zero_quantized_nontrainable_weights": USED,
    "zero_quantized_gradients": USED,
    "zeropp_loco_param": USED,
    "zero_hpz_partition_size": USED,
    "mics_shard_size": USED,
    # A gather between nodes brings each byte in once per node, which shares it, at all times.
    "mics_hierarchical_params_gather": WITHOUT_EFFECT,
    "elastic_checkpoint": Off(False, None),
    "offload_param": USED,
    "offload_optimizer": USED,
    # State lies in host memory in any case.
    "cpu_offload": WITHOUT_EFFECT,
    "cpu_offload_params": WITHOUT_EFFECT,
    "cpu_offload_param": WITHOUT_EFFECT,
    "zenflow": BLOCK_OFF,
}

OFFLOAD_PARAM: dict[str, Any] = {
    **dict.fromkeys(("device", "nvme_path", "buffer_count", "buffer_size", "max_in_cpu"), USED),
    "pin_memory": WITHOUT_EFFECT,
}
OFFLOAD_OPTIMIZER: dict[str, Any] = {
    **dict.fromkeys(
        ("device", "nvme_path", "buffer_count", "ratio", "pipeline_read", "pipeline_write"), USED
    ),
    # Memory is pinned where that is allowed, states are written once at the start, threads are the
    # context's.
    **dict.fromkeys(("pin_memory", "pipeline", "fast_init", "cpuadam_cores_perc"), WITHOUT_EFFECT),
    "super_offload": Off(None, False),
}
AIO: dict[str, Any] = {
    **dict.fromkeys(
        (
            "block_size",
            "queue_depth",
            "intra_op_parallelism",
            "thread_count",
            "single_submit",
            "overlap_events",
        ),
        USED,
    ),
    "use_gds": Off(None, False),
}
LOCO = dict.fromkeys(("err_beta", "reset_T"), USED)
LEAF_MODULE = dict.fromkeys(("classes", "names", "name_suffixes"), USED)

FP16: dict[str, Any] = {
    "enabled": USED,
    "auto_cast": USED,
    "loss_scale": USED,
    "initial_scale_power": USED,
    "loss_scale_window": USED,
    "hysteresis": USED,
    "consecutive_hysteresis": USED,
    "min_loss_scale": USED,
    "fp16_master_weights_and_grads": Off(False, None),
}
BF16: dict[str, Any] = {
    "enabled": USED,
    "check_grad_overflow": USED,
    "immediate_grad_update": WITHOUT_EFFECT,
    "bf16_master_weights_and_grads": Off(False, None),
    "bf16_optimizer_states": Off(False, None),
}
DATA_TYPES: dict[str, Any] = {
    "grad_accum_dtype": USED,
    "param_dtype": USED,
    "buffer_dtype": USED,
}
CHECKPOINT: dict[str, Any] = {
    "tag_validation": USED,
    "load_universal": Off(
        False, None, advice="Remove it: any checkpoint loads at any number of ranks."
    ),
    "use_node_local_storage": USED,
    "parallel_write": WITHOUT_EFFECT,
    "writer": WITHOUT_EFFECT,
}
OPTIMIZER = {"type": USED, "params": USED, "legacy_fusion": Off(False, None)}
SCHEDULER = {"type": USED, "params": USED}

TOP: dict[str, Any] = {
    "train_batch_size": USED,
    "train_micro_batch_size_per_gpu": USED,
    "gradient_accumulation_steps": USED,
    "managed_gradient_accumulation": USED,
    "gradient_clipping": USED,
    "zero_optimization": USED,
    "optimizer": USED,
    "scheduler": USED,
    "fp16": USED,
    "bf16": USED,
    "bfloat16": USED,
    "data_types": USED,
    "communication_data_type": USED,
    "dataloader_drop_last": USED,
    "seq_parallel_communication_data_type": WITHOUT_EFFECT,
    "sparse_gradients": WITHOUT_EFFECT,
    "zero_allow_untested_optimizer": WITHOUT_EFFECT,
    "zero_force_ds_cpu_optimizer": WITHOUT_EFFECT,
    "steps_per_print": WITHOUT_EFFECT,
    "wall_clock_breakdown": Off(False, None),
    "memory_breakdown": Off(False, None),
    "dump_state": Off(False, None),
    "aio": USED,
    "disable_allgather": WITHOUT_EFFECT,
    "fp32_allreduce": USED,
    "autotuning": BLOCK_OFF,
    "prescale_gradients": Off(False, None),
    "gradient_predivide_factor": Off(1.0, 1, None),
    "gradient_allreduce_op": Off("mean", None),
    "sequence_parallel_size": Off(1, None),
    "activation_checkpointing": Off(
        None, False, advice="Wrap the parts in torch.utils.checkpoint instead."
    ),
    "checkpoint": USED,
    "compile": Off(None, False, advice="Call torch.compile on the model instead."),
    **dict.fromkeys(
        (
            "amp",
            "comet",
            "comms_logger",
            "compression_training",
            "csv_monitor",
            "curriculum_learning",
            "data_efficiency",
            "data_sampling",
            "eigenvalue",
            "elasticity",
            "expert_parallel",
            "flops_profiler",
            "graph_harvesting",
            "hybrid_engine",
            "nebula",
            "pipeline",
            "progressive_layer_drop",
            "quantize_training",
            "sparse_attention",
            "tensor_parallel",
            "tensorboard",
            "timers",
            "torch_autocast",
            "wandb",
            "weight_quantization",
        ),
        BLOCK_OFF,
    ),
}

# Blocks whose own keys are checked, by path.
BLOCKS: dict[str, dict[str, Any]] = {
    "": TOP,
    "zero_optimization": ZERO,
    "zero_optimization.offload_param": OFFLOAD_PARAM,
    "zero_optimization.offload_optimizer": OFFLOAD_OPTIMIZER,
    "zero_optimization.leaf_module": LEAF_MODULE,
    "checkpoint": CHECKPOINT,
    "aio": AIO,
    "zero_optimization.zeropp_loco_param": LOCO,
    "fp16": FP16,
    "bf16": BF16,
    "bfloat16": BF16,
    "data_types": DATA_TYPES,
    "optimizer": OPTIMIZER,
    "scheduler": SCHEDULER,
}


def without_auto(value: Any) -> Any:
    """The config without values that are "auto": their defaults apply. But for `ratio`, which has
    no meaning to fill in for others."""
    if isinstance(value, Mapping):
        return {
            key: without_auto(item)
            for key, item in value.items()
            if item != "auto" or key == "ratio"
        }
    return value


def check_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys that are there and have no effect.

    Raises ArgumentError naming all unknown keys, UnsupportedError naming all unsupported ones.
    """
    unknown: list[str] = []
    unsupported: list[tuple[str, Any, str]] = []
    idle: list[str] = []
    visit("", config, unknown, unsupported, idle)
    if unknown:
        raise errors.argument(
            f"{len(unknown)} unknown config key{'s' * (len(unknown) > 1)}: " + ", ".join(unknown),
            subject=unknown[0].split(" ")[0],
            advice="Correct or remove them.",
        )
    if unsupported:
        listed = ", ".join(f"{path} = {value!r}" for path, value, _ in unsupported)
        advice = next(
            (advice for _, _, advice in unsupported if advice), "Remove it, or switch it off."
        )
        raise errors.UnsupportedError(
            f"Meron does not have yet: {listed}", subject=unsupported[0][0], advice=advice
        )
    return idle


def visit(
    path: str,
    block: Mapping[str, Any],
    unknown: list[str],
    unsupported: list[tuple[str, Any, str]],
    idle: list[str],
) -> None:
    known = BLOCKS[path]
    for key, value in block.items():
        full = f"{path}.{key}" if path else key
        use = known.get(key)
        if use is None:
            unknown.append(full + nearest(key, path))
            continue
        if isinstance(use, Off) and not use.accepts(value):
            unsupported.append((full, value, use.advice))
        if use is WITHOUT_EFFECT and value is not None:
            idle.append(full)
        if full in BLOCKS and isinstance(value, Mapping):
            # Of a block that is off nothing has an effect, as in DeepSpeed.
            visit(full, value, unknown, unsupported, [] if isinstance(use, Off) else idle)


def nearest(key: str, path: str) -> str:
    """What the key may have been meant to be: here, or in another block."""
    close = difflib.get_close_matches(str(key), BLOCKS[path], 1, 0.6)
    if not close:
        for other, known in BLOCKS.items():
            if key in known:
                place = f"in {other}" if other else "at the top level"
                return f" (it belongs {place})"
    if not close:
        everywhere = {name: other for other, known in BLOCKS.items() for name in known}
        close = difflib.get_close_matches(str(key), everywhere, 1, 0.6)
        if close and everywhere[close[0]]:
            return f" (did you mean {everywhere[close[0]]}.{close[0]}?)"
    return f" (did you mean {close[0]}?)" if close else ""
