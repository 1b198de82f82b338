# SPDX-License-Identifier: Apache-2.0
"""The loss scale and the autocast that a config asks for. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class Fp16:
    """A loss scale, as fp16 needs it.

    Attributes:
        late: so many clean steps more than a window come before the scale grows for the first time:
            one in DeepSpeed, none in torch.amp.GradScaler.
    """

    loss_scale: float = 0.0  # 0: dynamic
    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: float = 1.0
    auto_cast: bool = False
    late: int = 1


@dataclass
class Autocast:
    """torch.autocast around a model. dtype: None is the default of the device."""

    dtype: torch.dtype | None = None

    @property
    def scaling(self) -> Fp16 | None:
        """The loss scale of torch.amp.GradScaler, which gradients of fp16 operators need."""
        if self.dtype is not torch.float16:
            return None
        return Fp16(loss_scale_window=2000, hysteresis=1, min_loss_scale=2.0**-149, late=0)
