# SPDX-License-Identifier: Apache-2.0
"""Keys of a training run: batches, optimizer, scheduler, checkpoints, reports."""

from __future__ import annotations

from .kinds import Choice, Flag, Kind, Number, OldSwitch, Table, Text, Whole
from .precision import GRADIENTS
from .rows import Section, idle, works

BATCHES = (
    works(
        "train_batch_size",
        Whole(1),
        None,
        "samples of a step: micro-batch x accumulation steps x ranks. Any two of the three "
        "determine the third, and none is required",
    ),
    works("train_micro_batch_size_per_gpu", Whole(1), None, "samples of a micro-batch"),
    works("gradient_accumulation_steps", Whole(1), None, "micro-batches of a step"),
    works(
        "managed_gradient_accumulation",
        Flag(),
        True,
        "false: the caller decides when an accumulation is complete",
    ),
    works(
        "gradient_clipping",
        Number(),
        1.0,
        "the norm that gradients are scaled to at most; 0 is off",
        own=0.0,
        why="a loop of PyTorch does not clip. The package `deepspeed` of the drop-in, and "
        "`initialize(deepspeed_defaults=True)`, clip at 1.0",
    ),
    works(
        "dataloader_drop_last", Flag(), False, "the loader of `training_data` drops a short batch"
    ),
)

BLOCKS = (
    works("zero_optimization", OldSwitch(), None, "true is stage 1"),
    works("optimizer", Table(), None, "the optimizer that `initialize` makes", nullable=True),
    works("scheduler", Table(), None, "the scheduler that `initialize` makes", nullable=True),
    works("fp16", Table(), None, "fp16 and its loss scale", nullable=True),
    works("bf16", Table(), None, "bf16", also=("bfloat16",), nullable=True),
    works("data_types", Table(), None, "dtypes of parameters, buffers and sums", nullable=True),
    works("torch_autocast", Table(), None, "autocast around `engine(x)`", nullable=True),
    works("aio", Table(), None, "how files on NVMe are read and written", nullable=True),
    works("checkpoint", Table(), None, "how checkpoints are written", nullable=True),
    works(
        "activation_checkpointing",
        Table(),
        None,
        "`initialize` passes it to `meron.checkpointing.configure`",
        nullable=True,
    ),
)

REPORTS = (
    works(
        "wall_clock_breakdown",
        Flag(),
        False,
        "rank 0 prints the times of forward, backward and step, every `steps_per_print` steps",
    ),
    works(
        "memory_breakdown",
        Flag(),
        False,
        "rank 0 prints its memory, every `steps_per_print` steps",
    ),
    works(
        "steps_per_print",
        Number(over=True, infinite=True),
        None,
        "how often rank 0 reports: the above, and a line of the log `meron.zero` at the level "
        "INFO. For the breakdowns null and inf count as 10: accelerate writes inf",
        nullable=True,
    ),
    works("dump_state", Flag(), False, "rank 0 prints the config and what became of it"),
    works(
        "log_level",
        Choice("debug", "info", "warning", "error", "critical"),
        None,
        "the level of the log `meron.zero`",
        nullable=True,
    ),
)

OTHERS = (
    idle("zero_allow_untested_optimizer", Flag(), False, "any elementwise optimizer runs"),
    idle("zero_force_ds_cpu_optimizer", Flag(), True, "the engine's optimizers run on the host"),
    idle("sparse_gradients", Flag(), False, "sparse gradients are added as dense ones"),
    idle("disable_allgather", Flag(), False, "gathers are chosen by the stage"),
    idle("disable_python_gc", Flag(), False, "call `gc.disable()` where you want it"),
    idle("vocabulary_size", Kind(), None, "it is used for a warning alone"),
    idle("timers", Kind(), None, "`wall_clock_breakdown` prints times"),
    idle("pipeline", Kind(), None, "it configures a `PipelineModule`, and there is none"),
    idle("datastates_ckpt", Kind(), None, "checkpoints have one format and one writer"),
    idle("use_data_before_expert_parallelism", Flag(), False, "there is no expert parallelism"),
    idle("dataloader", Kind(), None, "the loader is made by `initialize`, or is yours"),
)

CHECKPOINT = (
    works(
        "tag_validation",
        Choice("Ignore", "Warn", "Fail"),
        "Warn",
        "what happens if ranks pass different tags: rank 0's counts, silently or with a warning, "
        "or all raise",
    ),
    works("use_node_local_storage", Flag(), False, "each node saves the files of its ranks"),
    works(
        "load_universal",
        Flag(),
        False,
        "`load_checkpoint` without a tag takes the one in the file `latest_universal`, if there is "
        "one. Any checkpoint loads at any number of ranks",
    ),
    works(
        "write_model_states",
        Flag(),
        False,
        "Meron's own key: `save_checkpoint` also writes `mp_rank_00_model_states.pt`, for scripts "
        "that read weights by `torch.load`",
    ),
    idle("parallel_write", Kind(), None, "each rank writes its own file at all times"),
    idle("writer", Kind(), None, "each rank writes its own file by io_uring or threads"),
    idle("checkpoint_serialization", Flag(), True, "checkpoints are not pickled"),
)

ACTIVATIONS = (
    works("partition_activations", Flag(), False, "activations are cut over model-parallel ranks"),
    works("cpu_checkpointing", Flag(), False, "activations reside in host memory"),
    works("contiguous_memory_optimization", Flag(), False, "activations share one buffer"),
    works("number_checkpoints", Whole(1), None, "checkpointed segments", nullable=True),
    works("synchronize_checkpoint_boundary", Flag(), False, "the device is synchronised"),
    works("profile", Flag(), False, "times are logged"),
)

SECTIONS = (
    Section(
        "optimizer",
        "Optimizer",
        (
            works("type", Text(), None, "its name", nullable=True),
            works("params", Table(), None, "its arguments", nullable=True),
            idle("legacy_fusion", Flag(), False, "the engine has one fused step"),
        ),
        lenient=True,
    ),
    Section(
        "scheduler",
        "Scheduler",
        (
            works("type", Text(), None, "its name", nullable=True),
            works("params", Table(), None, "its arguments", nullable=True),
        ),
        lenient=True,
    ),
    Section("checkpoint", "Checkpoints", CHECKPOINT, lenient=True),
    Section("activation_checkpointing", "Activation checkpointing", ACTIVATIONS, lenient=True),
)
TOP = BATCHES + GRADIENTS + BLOCKS + REPORTS + OTHERS
