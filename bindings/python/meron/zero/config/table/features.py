# SPDX-License-Identifier: Apache-2.0
"""Top-level keys of what Meron does not have: a config that switches one on is refused, or warned
of if the feature changes no result."""

from __future__ import annotations

from .kinds import Feature
from .rows import Key, refused, warned

CURRICULUM = "Choose the batches in your own `DataLoader` or sampler."
COMPRESSION = "Quantise or prune the model before `initialize`, or the saved weights after it."
PARALLEL = "Use data parallelism (stages 1 to 3), which needs no change of the model."


def feature(name: str, advice: str, kind_name: str = "block", **options: object) -> Key:
    kind = Feature(kind_name, **options)  # type: ignore[arg-type]
    return refused(name, kind, None, advice, nullable=True)


def passed_over(name: str, advice: str) -> Key:
    """A feature that changes no result. Rank 0 warns, and the run continues without it."""
    return warned(name, Feature(), None, advice, nullable=True)


TOP = (
    feature("amp", "Use `bf16`, `fp16` or `torch_autocast`."),
    passed_over("flops_profiler", "Use `torch.profiler`, or `torch.utils.flop_counter`."),
    passed_over("comms_logger", "Read `engine.sharding.context.stats()`."),
    feature("autotuning", "Run `meron plan`, which predicts memory and traffic of each plan."),
    feature(
        "compile",
        "Remove it, and call `torch.compile` on parts of the model.",
        switch="deepcompile",
    ),
    feature("elasticity", "Start as many ranks as there are: any checkpoint loads there."),
    feature("hybrid_engine", "Call `engine(x)` on all ranks alike."),
    feature("nebula", "Save by `engine.save_checkpoint`."),
    feature("compression_training", COMPRESSION),
    feature("quantize_training", COMPRESSION),
    feature("weight_quantization", COMPRESSION, switch=""),
    feature("eigenvalue", COMPRESSION),
    feature("sparse_attention", "Use an attention of the model's own.", switch=""),
    feature("progressive_layer_drop", "Drop layers in the model's own forward."),
    feature("graph_harvesting", "Use `torch.cuda.graphs` in the model.", "bool"),
    feature("curriculum_learning", CURRICULUM),
    feature("data_efficiency", CURRICULUM),
    feature("data_sampling", CURRICULUM),
    feature("tensor_parallel", PARALLEL, switch="autotp_size", idle=(0, 1)),
    feature("expert_parallel", "Make each mixture a leaf module (`leaf_module`)."),
    feature("sequence_parallel_size", PARALLEL, "int", off=(1,)),
)
