# SPDX-License-Identifier: Apache-2.0
"""deepspeed.utils.bwc: what an mpu says about tensor and pipeline parallelism, under any of the
names that it may have for it."""

from __future__ import annotations

from typing import Any

TENSOR = ("tensor_model_parallel", "slice_parallel", "model_parallel")
PIPELINE = ("pipeline_model_parallel", "pipe_parallel")


def asked(mpu: Any, kinds: tuple[str, ...], what: str, without: Any) -> Any:
    """The result of the first method that the mpu has; `without`, if it has none."""
    for kind in kinds:
        method = getattr(mpu, f"get_{kind}_{what}", None)
        if method is not None:
            return method()
    return without


def bwc_tensor_model_parallel_rank(mpu: Any = None) -> int:
    """This rank's number in tensor parallelism; 0 without it."""
    return int(asked(mpu, TENSOR, "rank", 0))


def bwc_tensor_model_parallel_world_size(mpu: Any = None) -> int:
    """The number of ranks of tensor parallelism; 1 without it."""
    return int(asked(mpu, TENSOR, "world_size", 1))


def bwc_tensor_model_parallel_group(mpu: Any = None) -> Any:
    """The group of tensor parallelism, or None."""
    return asked(mpu, TENSOR, "group", None)


def bwc_pipeline_parallel_world_size(mpu: Any = None) -> int:
    """The number of pipeline stages; 1 without it."""
    return int(asked(mpu, PIPELINE, "world_size", 1))


def bwc_pipeline_parallel_group(mpu: Any = None) -> Any:
    """The group of pipeline stages, or None."""
    return asked(mpu, PIPELINE, "group", None)


__all__ = [
    "bwc_pipeline_parallel_group",
    "bwc_pipeline_parallel_world_size",
    "bwc_tensor_model_parallel_group",
    "bwc_tensor_model_parallel_rank",
    "bwc_tensor_model_parallel_world_size",
]
