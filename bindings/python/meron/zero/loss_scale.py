# SPDX-License-Identifier: Apache-2.0
"""The factor that keeps small gradients of fp16 above zero (arXiv 1710.03740)."""

from __future__ import annotations

import logging
from typing import Any

from meron import errors
from meron.zero.config import Fp16

logger = logging.getLogger("meron.zero")

LARGEST = (2 - 2.0**-23) * 2.0**127  # of f32, in which losses are scaled


class LossScale:
    """A loss scale, fixed or dynamic. It depends on the history of overflows only, which ranks
    share, so it is equal on all ranks.

    Dynamic: an overflow uses up one of `hysteresis`; from the last one on each halves the scale,
    not below the floor. A clean step is one without an overflow. At the clean step after `window`
    clean ones, and after every `window` more, the scale doubles and the hysteresis is restored
    (with `consecutive`, every clean step restores it). These are the sequences of DeepSpeed's
    DynamicLossScaler; with `Fp16.late` 0 and a hysteresis of 1, those of torch.amp.GradScaler.

    As torch's and unlike DeepSpeed's, it does not grow past f32, also if all gradients are zero for
    long: a loss times infinity would be NaN, and no number of overflows would halve it.

    Attributes:
        value: the scale of the next backward.
    """

    def __init__(self, options: Fp16) -> None:
        self.dynamic = options.loss_scale == 0
        self.value = 2.0**options.initial_scale_power if self.dynamic else options.loss_scale
        self.floor = options.min_loss_scale
        self.window = options.loss_scale_window
        self.hysteresis = options.hysteresis
        self.consecutive = options.consecutive_hysteresis
        self.late = options.late
        self.left = self.hysteresis
        self.clean = 0  # steps since the last overflow or growth

    def update(self, overflow: bool) -> None:
        """After a step, taken or skipped.

        Raises NonFiniteError for an overflow at the floor of a dynamic scale.
        """
        if not self.dynamic:
            return
        if not overflow:
            self.clean += 1
            if self.consecutive:
                self.left = self.hysteresis
            past = self.clean - self.late
            if past > 0 and past % self.window == 0:
                if self.value * 2 <= LARGEST:
                    self.value *= 2
                self.left = self.hysteresis
            return
        self.clean = 0
        if self.left > 1:
            self.left -= 1
            return
        if self.value == self.floor:
            raise errors.NonFiniteError(
                f"gradients overflow at the smallest loss scale, {self.value:g}",
                advice="Training has diverged: lower the learning rate, or use bf16.",
            )
        self.value = max(self.value / 2, self.floor)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "left": self.left, "clean": self.clean}

    @staticmethod
    def check_state(state: Any) -> None:
        """ArgumentError for a state that `load_state_dict` does not take. Changes nothing."""
        own: dict[str, Any] = state if isinstance(state, dict) else {}
        value = own.get("value", 0)
        counts = [own.get("left", -1), own.get("clean", -1)]
        right = type(value) in (int, float) and value > 0  # NaN is not
        if not right or any(type(count) is not int or count < 0 for count in counts):
            raise errors.argument(
                f"the state of the loss scale is {state!r:.100}",
                subject="loss_scale",
                advice="Load a checkpoint that Meron has saved.",
            )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.resume(state["value"])
        self.left, self.clean = state["left"], state["clean"]

    def resume(self, value: float) -> None:
        """Takes the scale of a checkpoint. One that f32 does not hold, as earlier versions and
        DeepSpeed could reach, becomes the largest power of two that it holds; the log says so."""
        self.value = value
        if value > LARGEST:
            self.value = 2.0**127
            logger.warning(
                "the checkpoint's loss scale, %g, is too large for f32: it is %g now",
                value,
                self.value,
            )
