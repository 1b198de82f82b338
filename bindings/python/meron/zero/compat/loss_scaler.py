# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.fp16.loss_scaler: the loss scale of meron.zero as objects of its own.

For training loops that scale losses themselves. An engine has its own scale, which
`engine.cur_scale` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from meron import errors
from meron.zero.config import Fp16
from meron.zero.loss_scale import LossScale

# Keys of the dict from which CreateLossScaler makes a DynamicLossScaler.
INITIAL_LOSS_SCALE = "init_scale"
SCALE_WINDOW = "scale_window"
DELAYED_SHIFT = "delayed_shift"
CONSECUTIVE_HYSTERESIS = "consecutive_hysteresis"
MIN_LOSS_SCALE = "min_scale"


def to_python_float(t: Any) -> float:
    """The number in a tensor of one element, or in a sequence of one."""
    return float(t.item() if hasattr(t, "item") else t[0])


class LossScalerBase:
    """A loss scale: the factor of a loss before its backward.

    Attributes:
        cur_scale: the factor; it may be set.
        dynamic: whether update_scale changes it.
    """

    dynamic = False

    def __init__(self, cur_scale: float) -> None:
        self.cur_scale = cur_scale

    @property
    def loss_scale(self) -> float:
        """The factor of the next loss."""
        return self.cur_scale

    def scale_gradient(self, module: Any, grad_in: Iterable[Any], grad_out: Any) -> tuple[Any, ...]:
        """The gradients times the scale, as a backward hook of a module returns them."""
        return tuple(None if grad is None else self.loss_scale * grad for grad in grad_in)

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the scale."""
        return loss * self.loss_scale

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        """The backward pass of the scaled loss."""
        self.scale_loss(loss).backward(retain_graph=retain_graph)

    def update_scale(self, overflow: bool) -> None:
        """After each step, taken or skipped. A fixed scale stays."""


class LossScaler(LossScalerBase):
    """A fixed loss scale."""

    def __init__(self, scale: float = 1) -> None:
        super().__init__(scale)

    def has_overflow(self, params: Any) -> bool:
        """False: nothing is checked under a fixed scale, as in DeepSpeed."""
        return False


class DynamicLossScaler(LossScalerBase):
    """A loss scale that overflows halve and clean steps double, in meron.zero.loss_scale's
    sequences, which are DeepSpeed's. It stays within f32.

    Args:
        init_scale: the first scale.
        scale_window: it doubles after that many clean steps past the first one, and after every
            further window.
        min_scale: the floor.
        delayed_shift: the hysteresis: overflows until the scale is halved.
        consecutive_hysteresis: every clean step restores the hysteresis.
        raise_error_at_min_scale: False keeps the scale at the floor, at an overflow there.
        dtype: of the gradients; without effect, as it chooses DeepSpeed's words in its log.

    Attributes:
        cur_iter, last_overflow_iter: steps until now, and the last of them that overflowed (-1:
            none); both may be set, to resume.
        cur_hysteresis: what is left of the hysteresis.
    """

    dynamic = True
    scale_factor = 2.0

    def __init__(
        self,
        init_scale: float = 2.0**32,
        scale_window: int = 1000,
        min_scale: float = 1,
        delayed_shift: int = 1,
        consecutive_hysteresis: bool = False,
        raise_error_at_min_scale: bool = True,
        dtype: torch.dtype = torch.half,
    ) -> None:
        options = Fp16(
            loss_scale_window=scale_window,
            hysteresis=delayed_shift,
            consecutive_hysteresis=consecutive_hysteresis,
            min_loss_scale=min_scale,
        )
        for name, value, least in (
            ("init_scale", init_scale, 0),
            ("scale_window", scale_window, 0),
            ("delayed_shift", delayed_shift, 0),
        ):
            if not value > least:
                raise errors.argument(f"{name} is {value!r}: it must be above {least}", name)
        self.scaler = LossScale(options)
        super().__init__(init_scale)
        self.cur_iter = 0
        self.last_overflow_iter = -1
        self.raise_error_at_min_scale = raise_error_at_min_scale
        self.dtype = dtype

    @property
    def cur_scale(self) -> float:
        return self.scaler.value

    @cur_scale.setter
    def cur_scale(self, value: float) -> None:
        self.scaler.value = float(value)

    @property
    def cur_hysteresis(self) -> int:
        return self.scaler.left

    @cur_hysteresis.setter
    def cur_hysteresis(self, value: int) -> None:
        self.scaler.left = value

    @property
    def scale_window(self) -> int:
        return self.scaler.window

    @property
    def min_scale(self) -> float:
        return self.scaler.floor

    @property
    def delayed_shift(self) -> int:
        return self.scaler.hysteresis

    @property
    def consecutive_hysteresis(self) -> bool:
        return self.scaler.consecutive

    def has_overflow_serial(self, params: Iterable[torch.Tensor]) -> bool:
        """Whether a gradient of some params holds NaN or infinity, on this rank. Local."""
        return any(
            param.grad is not None and not bool(torch.isfinite(param.grad).all())
            for param in params
        )

    has_overflow = has_overflow_serial

    def update_scale(self, overflow: bool) -> None:
        """After each step, taken or skipped.

        Raises NonFiniteError for an overflow at the floor, unless raise_error_at_min_scale is off.
        """
        self.scaler.clean = self.cur_iter - self.last_overflow_iter - 1
        try:
            self.scaler.update(bool(overflow))
        except errors.NonFiniteError:
            if self.raise_error_at_min_scale:
                raise
        finally:
            if overflow:
                self.last_overflow_iter = self.cur_iter
            self.cur_iter += 1


def CreateLossScaler(
    dtype: torch.dtype,
    static_loss_scale: float,
    dynamic_scaling: bool,
    dynamic_loss_args: dict[str, Any] | None,
) -> LossScalerBase:
    """A loss scale for a dtype: 1 for others than fp16.

    Args:
        dynamic_loss_args: those of DynamicLossScaler, by the keys of this module.

    Raises ArgumentError for a dynamic scale without its arguments.
    """
    if dtype != torch.half:
        return LossScaler(1.0)
    if not dynamic_scaling:
        return LossScaler(static_loss_scale)
    if dynamic_loss_args is None:
        raise errors.argument(
            "a dynamic loss scale has no arguments",
            subject="dynamic_loss_args",
            advice="Pass a dict with init_scale, scale_window, min_scale, delayed_shift and "
            "consecutive_hysteresis.",
        )
    return DynamicLossScaler(dtype=dtype, **dynamic_loss_args)


__all__ = [
    "CONSECUTIVE_HYSTERESIS",
    "DELAYED_SHIFT",
    "INITIAL_LOSS_SCALE",
    "MIN_LOSS_SCALE",
    "SCALE_WINDOW",
    "CreateLossScaler",
    "DynamicLossScaler",
    "LossScaler",
    "LossScalerBase",
    "to_python_float",
]
