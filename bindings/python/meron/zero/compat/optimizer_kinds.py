# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's classes of engine optimizers, for isinstance() alone.

Meron's engine has one class of optimizer at all stages (meron.zero.zero_optimizer). These classes
have as instances the optimizers of engines whose config DeepSpeed would give such an optimizer.
"""

from __future__ import annotations

from typing import Any

import torch

from meron.zero.compat.refused import refuse
from meron.zero.zero_optimizer import DeepSpeedOptimizer, ZeroOptimizer, engine_of_optimizer

ADVICE = "Call deepspeed.initialize, which returns the optimizer of a model and a config."


def stage_and_dtype(optimizer: Any) -> tuple[int, torch.dtype | None]:
    """The stage and dtype of an optimizer's engine; (-1, None) if it has no engine."""
    if not isinstance(optimizer, ZeroOptimizer):
        return -1, None
    engine = engine_of_optimizer(optimizer)
    return (-1, None) if engine is None else (engine.config.stage, engine.config.dtype)


class Kind(type):
    """Metaclass of classes whose isinstance() tests the stage and dtype of the engine."""

    stages: tuple[int, ...]
    dtype: torch.dtype | None

    def __instancecheck__(cls, instance: Any) -> bool:
        stage, dtype = stage_and_dtype(instance)
        return stage in cls.stages and cls.dtype in (None, dtype)

    def __call__(cls, *_arguments: Any, **_named: Any) -> Any:
        refuse(cls.__name__, ADVICE)


class ZeROOptimizer(DeepSpeedOptimizer, metaclass=Kind):
    """The optimizer of an engine at stage 1, 2 or 3. A call raises UnsupportedError."""

    stages, dtype = (1, 2, 3), None


class DeepSpeedZeroOptimizer_Stage3(DeepSpeedOptimizer, metaclass=Kind):
    """The optimizer of an engine at stage 3. A call raises UnsupportedError."""

    stages, dtype = (3,), None


class DeepSpeedZeroOptimizer(DeepSpeedOptimizer, metaclass=Kind):
    """The optimizer of an engine at stage 1 or 2. A call raises UnsupportedError."""

    stages, dtype = (1, 2), None


class BF16_Optimizer(DeepSpeedOptimizer, metaclass=Kind):
    """The optimizer of an engine at stage 0 with bf16. A call raises UnsupportedError."""

    stages, dtype = (0,), torch.bfloat16


class FP16_Optimizer(DeepSpeedOptimizer, metaclass=Kind):
    """The optimizer of an engine at stage 0 with fp16. A call raises UnsupportedError."""

    stages, dtype = (0,), torch.float16


__all__ = [
    "BF16_Optimizer",
    "DeepSpeedZeroOptimizer",
    "DeepSpeedZeroOptimizer_Stage3",
    "FP16_Optimizer",
    "ZeROOptimizer",
]
