# SPDX-License-Identifier: Apache-2.0
"""Learning rates over steps, under the names of a config's `scheduler` block.

Each is a function of the number of steps taken. `engine.step` calls `step` after every step of the
optimizer that was not skipped. Numbers that make no schedule (steps below zero, a list that does
not fit the param groups) raise ArgumentError that names the param.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import torch

from meron import errors

logger = logging.getLogger("meron.zero")


class Schedule:
    """A schedule of learning rates; `rates()` gives them for `last_batch_iteration`."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int = -1) -> None:
        self.optimizer = optimizer
        self.last_batch_iteration = whole(last_batch_iteration, "last_batch_iteration", -1)
        if self.last_batch_iteration == -1:
            self.set(self.first_rates())
        else:  # it goes on at the next step
            self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def rates(self) -> list[float]:
        raise NotImplementedError

    def first_rates(self) -> list[float]:
        return self.rates()

    def per_group(self, value: Any, name: str, below: float = math.inf) -> list[float]:
        """One number of at least 0 for all param groups, or one each."""
        count = len(self.optimizer.param_groups)
        values = list(value) if isinstance(value, (list, tuple)) else [value] * count
        if len(values) != count:
            raise errors.argument(
                f"{name} has {len(values)} values for {count} param groups",
                name,
                "Give one number for all groups, or a list with one for each.",
            )
        return [number(item, name, below) for item in values]

    def set(self, rates: list[float]) -> None:
        groups = len(self.optimizer.param_groups)
        if groups != len(rates):
            raise errors.StateError(
                f"the optimizer has {groups} param groups, and had {len(rates)} when this "
                f"{type(self).__name__} was made",
                operation="step",
                advice="Make the schedule after all groups were added.",
            )
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        self._last_lr = rates

    def step(self, last_batch_iteration: int | None = None) -> None:
        """Sets the rates after one more step, or those of step `last_batch_iteration`: 0, 1, ...

        Raises ArgumentError for a negative step, with nothing changed.
        """
        if last_batch_iteration is None:
            self.last_batch_iteration += 1
        else:
            self.last_batch_iteration = whole(last_batch_iteration, "last_batch_iteration", 0)
        self.set(self.rates())

    def get_lr(self) -> list[float]:
        return self.first_rates() if self.last_batch_iteration < 0 else self.rates()

    def get_last_lr(self) -> list[float]:
        return list(self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last_batch_iteration = whole(state["last_batch_iteration"], "last_batch_iteration", -1)
        self.set(self.get_lr())


def warmup(step: int, steps: int, kind: str) -> float:
    """From 0 at step 0 to 1 at step `steps`, by a logarithm or a line."""
    if step >= steps:
        return 1.0
    return math.log(step + 1) / math.log(steps) if kind == "log" else step / steps


def number(value: Any, name: str, below: float = math.inf, low: float = 0.0) -> float:
    """A number of at least `low` and less than `below`."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and low <= found < below):
        limit = "a finite number" if below == math.inf else f"a number below {below:g}"
        least = f", {low:g} or more" if math.isfinite(low) else ""
        raise errors.argument(f"{name} is {value!r}: it must be {limit}{least}", name)
    return found


def whole(value: Any, name: str, low: int) -> int:
    """A whole number of at least `low`; 1e3 is one too."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or value != int(value) or value < low:
        raise errors.argument(
            f"{name} is {value!r}: it must be a whole number, {low} or more", name
        )
    return int(value)


def positive(value: Any, name: str) -> float:
    if not number(value, name):
        raise errors.argument(f"{name} is {value!r}: it must be above 0", name)
    return float(value)


def check_total(kind: str, warmup: int, total: int) -> None:
    """Warns of a schedule that ends before its warm-up does."""
    if total < warmup:
        logger.warning("%s warms up for %d steps, of %d in total", kind, warmup, total)


def check_kind(kind: str) -> str:
    if kind not in ("log", "linear"):
        raise errors.argument(f"warmup_type {kind!r}: log and linear are known", "warmup_type")
    return kind


class WarmupLR(Schedule):
    """From warmup_min_lr to warmup_max_lr in warmup_num_steps, and then level."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        self.optimizer = optimizer
        self.low = self.per_group(warmup_min_lr, "warmup_min_lr")
        self.high = self.per_group(warmup_max_lr, "warmup_max_lr")
        self.steps = max(2, whole(warmup_num_steps, "warmup_num_steps", 1))
        self.kind = check_kind(warmup_type)
        super().__init__(optimizer, last_batch_iteration)

    def first_rates(self) -> list[float]:
        return self.low

    def factor(self) -> float:
        return warmup(self.last_batch_iteration, self.steps, self.kind)

    def rates(self) -> list[float]:
        factor = self.factor()
        return [low + (high - low) * factor for low, high in zip(self.low, self.high)]


class WarmupDecayLR(WarmupLR):
    """The same, and then down to 0 at total_num_steps, along a line."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total_num_steps: int,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        self.total = whole(total_num_steps, "total_num_steps", 1)
        super().__init__(
            optimizer,
            warmup_min_lr,
            warmup_max_lr,
            warmup_num_steps,
            warmup_type,
            last_batch_iteration,
        )
        check_total("WarmupDecayLR", int(warmup_num_steps), self.total)

    def factor(self) -> float:
        step = self.last_batch_iteration
        if step < self.steps:
            return warmup(step, self.steps, self.kind)
        return max(0.0, (self.total - step) / max(1.0, self.total - self.steps))


class WarmupCosineLR(Schedule):
    """Up to the optimizer's own rates, then down along half a cosine."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total_num_steps: int,
        warmup_min_ratio: float = 0.0,
        warmup_num_steps: int = 1000,
        cos_min_ratio: float = 0.0001,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        self.full = [group["lr"] for group in optimizer.param_groups]
        self.total = whole(total_num_steps, "total_num_steps", 1)
        self.warmup_low = number(warmup_min_ratio, "warmup_min_ratio")
        self.low = number(cos_min_ratio, "cos_min_ratio")
        self.steps = max(2, whole(warmup_num_steps, "warmup_num_steps", 1))
        self.kind = check_kind(warmup_type)
        super().__init__(optimizer, last_batch_iteration)
        check_total("WarmupCosineLR", int(warmup_num_steps), self.total)

    def first_rates(self) -> list[float]:
        return [0.0] * len(self.full)

    def ratio(self) -> float:
        step = self.last_batch_iteration
        if step < self.steps:
            return self.warmup_low + (1 - self.warmup_low) * warmup(step, self.steps, self.kind)
        along = (step - self.steps + 1) / max(1, self.total - self.steps)
        cosine = (1 + math.cos(math.pi * min(along, 1.0))) / 2
        return max(0.0, self.low + (1 - self.low) * cosine)

    def rates(self) -> list[float]:
        ratio = self.ratio()
        return [full * ratio for full in self.full]


class LRRangeTest(Schedule):
    """Ever higher rates, to find out which ones train (arXiv 1803.09820)."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        lr_range_test_min_lr: float | list[float] = 1e-3,
        lr_range_test_step_size: int = 2000,
        lr_range_test_step_rate: float = 1.0,
        lr_range_test_staircase: bool = False,
        last_batch_iteration: int = -1,
    ) -> None:
        self.optimizer = optimizer
        self.low = self.per_group(lr_range_test_min_lr, "lr_range_test_min_lr")
        self.size = positive(lr_range_test_step_size, "lr_range_test_step_size")
        self.rate = number(lr_range_test_step_rate, "lr_range_test_step_rate")
        self.stairs = lr_range_test_staircase
        super().__init__(optimizer, last_batch_iteration)

    def first_rates(self) -> list[float]:
        return self.low

    def rates(self) -> list[float]:
        intervals = (self.last_batch_iteration + 1) / self.size
        factor = 1 + self.rate * (math.floor(intervals) if self.stairs else intervals)
        return [low * factor for low in self.low]


class OneCycle(Schedule):
    """Up and down once between two rates, the momentum the other way, then decay
    (arXiv 1803.09820)."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        cycle_min_lr: float,
        cycle_max_lr: float,
        decay_lr_rate: float = 0.0,
        cycle_first_step_size: int = 2000,
        cycle_second_step_size: int | None = None,
        cycle_first_stair_count: int = 0,
        cycle_second_stair_count: int | None = None,
        decay_step_size: int = 0,
        cycle_momentum: bool = True,
        cycle_min_mom: float | list[float] = 0.8,
        cycle_max_mom: float | list[float] = 0.9,
        decay_mom_rate: float = 0.0,
        last_batch_iteration: int = -1,
    ) -> None:
        self.optimizer = optimizer
        self.low = self.per_group(cycle_min_lr, "cycle_min_lr")
        self.high = self.per_group(cycle_max_lr, "cycle_max_lr")
        self.first = positive(cycle_first_step_size, "cycle_first_step_size")
        self.second = (
            self.first
            if cycle_second_step_size is None
            else positive(cycle_second_step_size, "cycle_second_step_size")
        )
        self.first_stairs = whole(cycle_first_stair_count, "cycle_first_stair_count", 0)
        self.second_stairs = (
            self.first_stairs
            if cycle_second_stair_count is None
            else whole(cycle_second_stair_count, "cycle_second_stair_count", 0)
        )
        self.decay_steps = number(decay_step_size, "decay_step_size")
        self.decay_lr = number(decay_lr_rate, "decay_lr_rate")
        self.decay_momentum = number(decay_mom_rate, "decay_mom_rate", low=-math.inf)
        self.low_momentum = self.per_group(cycle_min_mom, "cycle_min_mom", 1.0)
        self.high_momentum = self.per_group(cycle_max_mom, "cycle_max_mom", 1.0)
        self.momentum = cycle_momentum and "betas" in optimizer.defaults
        if cycle_momentum and not self.momentum:
            logger.warning(
                "OneCycle leaves the momentum of %s as it is: it has no betas",
                type(optimizer).__name__,
            )
        super().__init__(optimizer, last_batch_iteration)

    def height(self) -> float:
        """Where in the cycle: 0 at its ends, 1 at its top."""
        step = (self.last_batch_iteration + 1) % (self.first + self.second)
        if step <= self.first:
            part, stairs = step / self.first, self.first_stairs
        else:
            part, stairs = (self.first + self.second - step) / self.second, self.second_stairs
        return math.floor(part * stairs + 1e-9) / stairs if stairs > 0 else part

    def decay(self, rate: float) -> float:
        past = self.last_batch_iteration - (self.first + self.second) + 1
        return 1 + rate * past / self.decay_steps if self.decay_steps else 1.0

    def in_cycle(self) -> bool:
        return self.last_batch_iteration < self.first + self.second

    def first_rates(self) -> list[float]:
        return self.low

    def rates(self) -> list[float]:
        if not self.in_cycle():
            return [low / self.decay(self.decay_lr) for low in self.low]
        height = self.height()
        return [low + (high - low) * height for low, high in zip(self.low, self.high)]

    def set(self, rates: list[float]) -> None:
        super().set(rates)
        if not self.momentum:
            return
        for group, low, high in zip(
            self.optimizer.param_groups, self.low_momentum, self.high_momentum
        ):
            group["betas"] = (self.momentum_between(low, high), 0.99)

    def momentum_between(self, low: float, high: float) -> float:
        if self.last_batch_iteration < 0:
            return low
        if self.in_cycle():
            return high - (high - low) * self.height()
        return high * self.decay(self.decay_momentum)


SCHEDULES: dict[str, type[Schedule]] = {
    kind.__name__: kind for kind in (WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle)
}


def make_scheduler(optimizer: torch.optim.Optimizer, kind: str, params: dict[str, Any]) -> Any:
    """The schedule of a config: one of the above, or of torch.optim.lr_scheduler."""
    base = torch.optim.lr_scheduler.LRScheduler
    found: Any = SCHEDULES.get(kind) or getattr(torch.optim.lr_scheduler, kind, None)
    if not (isinstance(found, type) and issubclass(found, (Schedule, base))) or found is base:
        raise errors.argument(
            f"unknown scheduler {kind!r}: {', '.join(SCHEDULES)}, and those of "
            "torch.optim.lr_scheduler are known",
            subject="scheduler.type",
        )
    try:
        return found(optimizer, **params)
    except TypeError as error:
        raise errors.argument(f"scheduler {kind}: {error}", "scheduler.params") from None
