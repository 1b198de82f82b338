# SPDX-License-Identifier: Apache-2.0
"""Facts about an engine: ranks, sizes, dtypes, and the outcome of its last step."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from meron.torch.sharding import Sharding
from meron.torch.unit import ShardedUnit
from meron.zero import comm
from meron.zero.config import Config
from meron.zero.loss_scale import LossScale
from meron.zero.wrapper import Wrapper


class GradientNorm(float):
    """A norm, also for callers that call `item()` on it, because DeepSpeed returns a tensor."""

    def item(self) -> float:
        return float(self)


class Facts(Wrapper):
    """Attributes: those of Engine, which sets them."""

    config: Config
    sharding: Sharding
    units: list[ShardedUnit]
    optimizer: torch.optim.Optimizer | None
    lr_scheduler: Any
    loss_scaler: LossScale | None
    micro_steps: int
    global_steps: int
    skipped_steps: int
    global_samples: int
    _accumulated: int
    _applied: bool
    _norm: float | None

    def _require_alive(self, operation: str) -> None:
        raise NotImplementedError

    def _begin_again(self) -> None:
        raise NotImplementedError

    @property
    def global_rank(self) -> int:
        return self.sharding.context.rank

    @property
    def local_rank(self) -> int:
        """The rank on this host, as the launcher says."""
        return comm.get_local_rank()

    @property
    def world_size(self) -> int:
        return self.sharding.context.world_size

    @property
    def device(self) -> torch.device:
        """Where the model computes, and takes its inputs from."""
        return self.sharding.torch_device

    def train_batch_size(self) -> int | None:
        return self.config.train_batch_size

    def train_micro_batch_size_per_gpu(self) -> int | None:
        return self.config.micro_batch_size

    def gradient_accumulation_steps(self) -> int:
        return self.config.accumulation_steps or 1

    def gradient_clipping(self) -> float:
        return self.config.clipping

    def zero_optimization(self) -> bool:
        """True if the stage is above 0."""
        return self.config.stage > 0

    def zero_optimization_stage(self) -> int:
        return self.config.stage

    def zero_optimization_partition_weights(self) -> bool:
        return self.config.stage >= 3

    def fp16_enabled(self) -> bool:
        return self.config.fp16 is not None

    def bfloat16_enabled(self) -> bool:
        return self.config.dtype == torch.bfloat16

    def torch_autocast_enabled(self) -> bool:
        return self.config.autocast is not None

    def torch_autocast_dtype(self) -> torch.dtype | None:
        """The dtype of the config's autocast; None if it is off, or uses the device's default."""
        return self.config.autocast.dtype if self.config.autocast is not None else None

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The autocast context of the model. If the config has none, an outer autocast applies."""
        if self.config.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.config.autocast.dtype)

    def dynamic_loss_scale(self) -> bool:
        return self.loss_scaler is not None and self.loss_scaler.dynamic

    @property
    def cur_scale(self) -> float:
        return self.loss_scaler.value if self.loss_scaler is not None else 1.0

    def loss_scale(self) -> float:
        return self.cur_scale

    def was_step_applied(self) -> bool:
        """True if the last step() was a boundary, and was neither skipped nor failed."""
        return self._applied

    def get_global_grad_norm(self) -> GradientNorm | None:
        """The norm of the last update's gradients, before clipping.

        inf if they held NaN or infinity, 0 if no rank had a gradient; None before the first
        update, and if the last one failed for another reason.
        """
        return None if self._norm is None else GradientNorm(self._norm)

    def get_lr(self) -> list[float]:
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return [group["lr"] for group in groups]
