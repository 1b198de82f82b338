# SPDX-License-Identifier: Apache-2.0
"""The block zero_optimization, besides its offload blocks."""

from __future__ import annotations

import sys

from .kinds import Feature, Flag, Kind, Number, Table, Whole, Words
from .rows import Key, Section, idle, refused, works

NO_BUCKETS = "gradients are written where peers read them: there are no buckets"
NO_GATHER_BUCKETS = "gathered parameters are mapped or read in place: there are no buckets"
ANY_WORLD = "a checkpoint loads at any number of ranks"
SCHEDULE = "the schedule's default applies, which `Context.schedule` documents"

# Classes that are leaves, with all their experts, if the config names no other ones.
KNOWN_MIXTURES = (
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
)


def limit(name: str, default: int, says: str) -> Key:
    """A limit of the schedule."""
    return works(f"stage3_{name}", Whole(), default, says, own=None, why=SCHEDULE, also=(name,))


STAGE = (
    works("stage", Whole(0, 3), 0, "the plan `zero0` to `zero3`"),
    limit("prefetch_bucket_size", 50_000_000, "`prefetch_elements` of the schedule"),
    limit("max_live_parameters", 10**9, "`max_live_elements`"),
    limit("max_reuse_distance", 10**9, "`max_reuse_elements`"),
    limit("param_persistence_threshold", 100_000, "`persist_elements`"),
    limit("model_persistence_threshold", sys.maxsize, "`persist_total_elements`"),
    works(
        "stage3_module_granularity_threshold",
        Whole(),
        0,
        "modules with fewer parameters per module than this are leaf modules; 0 is off",
        also=("module_granularity_threshold",),
    ),
    works("leaf_module", Table(), None, "modules that are gathered as one unit", nullable=True),
    works(
        "stage3_gather_16bit_weights_on_model_save",
        Flag(),
        False,
        "the answer of `zero_gather_16bit_weights_on_model_save()`; `save_16bit_model` gathers and "
        "saves in any case",
        own=True,
        why="a save that writes nothing and returns False is easily missed",
        also=("gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save"),
    ),
    works("override_module_apply", Flag(), True, "`Module.apply` within `zero.Init` gathers"),
    works(
        "enable_sanity_checks",
        Flag(),
        False,
        "a change within `GatheredParameters` without `modifier_rank` raises",
    ),
    works(
        "sub_group_size",
        Whole(1),
        10**9,
        "`sub_group` of states on NVMe, at most 8 Mi elements",
        own=None,
        why="pieces of 8 Mi elements keep a drive busy",
        wide=Whole(),
    ),
)

NODES = (
    works("mics_shard_size", Whole(-1), -1, "the plan `mics(N)`; -1 is off"),
    works("zero_hpz_partition_size", Whole(0), 1, "the plan `hpz(N)`; 1 is off"),
    works("zero_quantized_weights", Flag(), False, "parameters travel between nodes in int8"),
    works(
        "zero_quantized_nontrainable_weights", Flag(), False, "frozen parameters are int8 at rest"
    ),
    works("zero_quantized_gradients", Flag(), False, "gradients travel between nodes in int4"),
    works("zeropp_loco_param", Table(), None, "error feedback of int4 gradients", nullable=True),
    idle(
        "mics_hierarchical_params_gather",
        Flag(),
        False,
        "gathers between nodes are hierarchical at all times",
    ),
)


def tuning(name: str, kind: Kind, default: object, why: str, *also: str, **others: bool) -> Key:
    return idle(name, kind, default, why, also=also, **others)


OTHERS = (
    tuning("contiguous_gradients", Flag(), True, NO_BUCKETS),
    tuning("reduce_scatter", Flag(), True, "each rank reads its shard of all gradients"),
    tuning("reduce_bucket_size", Whole(1), 500_000_000, NO_BUCKETS),
    tuning("use_multi_rank_bucket_allreduce", Flag(), True, NO_BUCKETS),
    tuning("allgather_partitions", Flag(), True, NO_GATHER_BUCKETS),
    tuning("allgather_bucket_size", Whole(), 500_000_000, NO_GATHER_BUCKETS, "allgather_size"),
    tuning(
        "overlap_comm", Flag(), None, "gathers and reductions overlap at all times", nullable=True
    ),
    tuning("load_from_fp32_weights", Flag(), True, "checkpoints hold f32 values, which are loaded"),
    tuning("elastic_checkpoint", Flag(), False, ANY_WORLD),
    tuning("round_robin_gradients", Flag(), False, "every rank owns a part of each tensor"),
    tuning("parameter_alignment", Flag(), False, "each parameter begins at an aligned address"),
    tuning("compute_grad_norm", Flag(), True, "the step computes the norm in the same pass"),
    tuning(
        "stage3_use_all_reduce_for_fetch_params",
        Flag(),
        False,
        NO_GATHER_BUCKETS,
        "use_all_reduce_for_fetch_params",
    ),
    tuning("stage3_allgather_sequential", Flag(), False, NO_GATHER_BUCKETS, "allgather_sequential"),
    tuning("ignore_unused_parameters", Flag(), True, "unused parameters are no error"),
    tuning("legacy_stage1", Flag(), False, "there is one stage 1"),
    tuning(
        "memory_efficient_linear",
        Flag(),
        True,
        "autograd saves a reference to a parameter, which is gathered again for the backward",
    ),
    tuning(
        "pipeline_loading_checkpoint",
        Flag(),
        False,
        "each rank reads its own shards: loading needs no turns",
    ),
    tuning("log_trace_cache_warnings", Flag(), False, "there is no trace to invalidate"),
    tuning("save_muon_momentum_buffer_in_memory", Flag(), False, "there is no Muon optimizer"),
    tuning(
        "cpu_offload_use_pin_memory",
        Flag(),
        None,
        "memory is pinned within the system's limit",
        nullable=True,
    ),
    works(
        "cpu_offload",
        Flag(),
        None,
        'the old name of `offload_optimizer` with `"device": "cpu"`',
        nullable=True,
    ),
    works(
        "cpu_offload_param",
        Flag(),
        None,
        'the old name of `offload_param` with `"device": "cpu"`',
        also=("cpu_offload_params",),
        nullable=True,
    ),
    refused(
        "zenflow",
        Feature(switch=""),
        None,
        'Offload the optimizer by `offload_optimizer` with `"device": "cpu"`: the step runs on the '
        "host and overlaps reading, updating and writing.",
        nullable=True,
    ),
    works("offload_param", Table(), None, "the tier of parameters", nullable=True),
    works("offload_optimizer", Table(), None, "the tier of optimizer states", nullable=True),
)

SECTIONS = (
    Section("zero_optimization", "Stages, schedule, nodes", STAGE + NODES + OTHERS),
    Section(
        "zero_optimization.leaf_module",
        "Leaf modules",
        (
            works("classes", Words(), list(KNOWN_MIXTURES), "classes, by name or dotted name"),
            works("names", Words(), [], "names of modules"),
            works("name_suffixes", Words(), [], "ends of names of modules"),
        ),
    ),
    Section(
        "zero_optimization.zeropp_loco_param",
        "Error feedback",
        (
            works("err_beta", Number(0, 1, under=True), 0.8, "how much of the loss is added"),
            works("reset_T", Whole(1, 2**30), 1024, "the loss is forgotten after so many steps"),
        ),
    ),
)
