# SPDX-License-Identifier: Apache-2.0
"""Learning rates over steps, under the names of a config's `scheduler` block.

Each is a function of the number of steps taken. `engine.step` calls `step` after every step of the
optimizer that was not skipped. Numbers that make no schedule (steps below zero, a list that does
not fit the param groups) raise ArgumentError that names the param.
"""

from __future__ import annotations

import inspect
import logging
import math
from typing import Any

import torch

from meron import errors
from meron.zero.schedule_names import *  # noqa: F403
from meron.zero.schedule_values import (
    check_kind,
    check_total,
    current_rates,
    number,
    positive,
    warmup,
    whole,
)

logger = logging.getLogger("meron.zero")

SECOND_BETA = 0.99  # that OneCycle sets


class Schedule:
    """A schedule of learning rates; `rates()` gives them for `last_batch_iteration`."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int = -1) -> None:
        self.optimizer = optimizer
        self.last_batch_iteration = whole(last_batch_iteration, "last_batch_iteration", -1)
        if self.last_batch_iteration == -1:
            self.set(self.first_rates())
        else:  # it goes on at the next step
            self._last_lr = current_rates(optimizer)

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
            if isinstance(group["lr"], torch.Tensor):  # who holds it sees the change
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self._last_lr = list(rates)

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

    def check_state(self, state: dict[str, Any]) -> None:
        """ArgumentError for a state that `load_state_dict` does not take. Changes nothing."""
        whole(state.get("last_batch_iteration"), "last_batch_iteration", -1)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        self.last_batch_iteration = int(state["last_batch_iteration"])
        self.set(self.get_lr())


class WarmupLR(Schedule):
    """From warmup_min_lr to warmup_max_lr in warmup_num_steps, and then level. warmup_max_lr
    is the optimizer's own rates by default."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ) -> None:
        self.optimizer = optimizer
        self.min_lrs = self.per_group(warmup_min_lr, "warmup_min_lr")
        if warmup_max_lr is None:
            warmup_max_lr = current_rates(optimizer)
        self.max_lrs = self.per_group(warmup_max_lr, "warmup_max_lr")
        self.delta_lrs = [high - low for low, high in zip(self.min_lrs, self.max_lrs)]
        self.warmup_num_steps = max(2, whole(warmup_num_steps, "warmup_num_steps", 1))
        self.warmup_type = check_kind(warmup_type)
        super().__init__(optimizer, last_batch_iteration)

    def first_rates(self) -> list[float]:
        return self.min_lrs

    def factor(self) -> float:
        return warmup(self.last_batch_iteration, self.warmup_num_steps, self.warmup_type)

    def rates(self) -> list[float]:
        factor = self.factor()
        return [low + (high - low) * factor for low, high in zip(self.min_lrs, self.max_lrs)]


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
        self.total_num_steps = whole(total_num_steps, "total_num_steps", 1)
        super().__init__(
            optimizer,
            warmup_min_lr,
            warmup_max_lr,
            warmup_num_steps,
            warmup_type,
            last_batch_iteration,
        )
        check_total("WarmupDecayLR", int(warmup_num_steps), self.total_num_steps)

    def factor(self) -> float:
        step = self.last_batch_iteration
        if step < self.warmup_num_steps:
            return warmup(step, self.warmup_num_steps, self.warmup_type)
        return max(
            0.0,
            (self.total_num_steps - step) / max(1.0, self.total_num_steps - self.warmup_num_steps),
        )


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
        self.org_lrs = current_rates(optimizer)
        self.total_num_steps = whole(total_num_steps, "total_num_steps", 1)
        self.warmup_min_ratio = number(warmup_min_ratio, "warmup_min_ratio")
        self.cos_min_ratio = number(cos_min_ratio, "cos_min_ratio")
        self.warmup_num_steps = max(2, whole(warmup_num_steps, "warmup_num_steps", 1))
        self.warmup_type = check_kind(warmup_type)
        super().__init__(optimizer, last_batch_iteration)
        check_total("WarmupCosineLR", int(warmup_num_steps), self.total_num_steps)

    def first_rates(self) -> list[float]:
        return [0.0] * len(self.org_lrs)

    def get_lr_ratio(self) -> float:
        """The factor of the optimizer's own rates."""
        if self.last_batch_iteration < 0:
            return 0.0
        step = self.last_batch_iteration
        if step < self.warmup_num_steps:
            return self.warmup_min_ratio + (1 - self.warmup_min_ratio) * warmup(
                step, self.warmup_num_steps, self.warmup_type
            )
        along = (step - self.warmup_num_steps + 1) / max(
            1, self.total_num_steps - self.warmup_num_steps
        )
        cosine = (1 + math.cos(math.pi * min(along, 1.0))) / 2
        return max(0.0, self.cos_min_ratio + (1 - self.cos_min_ratio) * cosine)

    def rates(self) -> list[float]:
        ratio = self.get_lr_ratio()
        return [full * ratio for full in self.org_lrs]


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
        self.min_lr = self.per_group(lr_range_test_min_lr, "lr_range_test_min_lr")
        self.step_size = positive(lr_range_test_step_size, "lr_range_test_step_size")
        self.step_rate = number(lr_range_test_step_rate, "lr_range_test_step_rate")
        self.staircase = lr_range_test_staircase
        super().__init__(optimizer, last_batch_iteration)

    def first_rates(self) -> list[float]:
        return self.min_lr

    def rates(self) -> list[float]:
        intervals = (self.last_batch_iteration + 1) / self.step_size
        factor = 1 + self.step_rate * (math.floor(intervals) if self.staircase else intervals)
        return [low * factor for low in self.min_lr]


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
        self.min_lrs = self.per_group(cycle_min_lr, "cycle_min_lr")
        self.max_lrs = self.per_group(cycle_max_lr, "cycle_max_lr")
        self.first_step_size = positive(cycle_first_step_size, "cycle_first_step_size")
        self.second_step_size = (
            self.first_step_size
            if cycle_second_step_size is None
            else number(cycle_second_step_size, "cycle_second_step_size")
        )
        self.first_stair_count = whole(cycle_first_stair_count, "cycle_first_stair_count", 0)
        self.second_stair_count = (
            self.first_stair_count
            if cycle_second_stair_count is None
            else whole(cycle_second_stair_count, "cycle_second_stair_count", 0)
        )
        self.decay_step_size = number(decay_step_size, "decay_step_size")
        self.decay_lr_rate = number(decay_lr_rate, "decay_lr_rate")
        self.decay_mom_rate = number(decay_mom_rate, "decay_mom_rate", low=-math.inf)
        low_momentum = self.per_group(cycle_min_mom, "cycle_min_mom", 1.0)
        high_momentum = self.per_group(cycle_max_mom, "cycle_max_mom", 1.0)
        self.min_moms = [(momentum, SECOND_BETA) for momentum in low_momentum]
        self.max_moms = [(momentum, SECOND_BETA) for momentum in high_momentum]
        self.total_size = self.first_step_size + self.second_step_size
        self.cycle_momentum = cycle_momentum and "betas" in optimizer.defaults
        if cycle_momentum and not self.cycle_momentum:
            logger.warning(
                "OneCycle leaves the momentum of %s as it is: it has no betas",
                type(optimizer).__name__,
            )
        super().__init__(optimizer, last_batch_iteration)

    def height(self) -> float:
        """Where in the cycle: 0 at its ends, 1 at its top."""
        step = (self.last_batch_iteration + 1) % self.total_size
        if step <= self.first_step_size:
            part, stairs = step / self.first_step_size, self.first_stair_count
        else:
            part, stairs = (
                (self.first_step_size + self.second_step_size - step) / self.second_step_size,
                self.second_stair_count,
            )
        return math.floor(part * stairs + 1e-9) / stairs if stairs > 0 else part

    def decay(self, rate: float) -> float:
        past = self.last_batch_iteration - self.total_size + 1
        return 1 + rate * past / self.decay_step_size if self.decay_step_size else 1.0

    def in_cycle(self) -> bool:
        return self.last_batch_iteration < self.total_size

    def first_rates(self) -> list[float]:
        return self.min_lrs

    def rates(self) -> list[float]:
        if not self.in_cycle():
            return [low / self.decay(self.decay_lr_rate) for low in self.min_lrs]
        height = self.height()
        return [low + (high - low) * height for low, high in zip(self.min_lrs, self.max_lrs)]

    def set(self, rates: list[float]) -> None:
        super().set(rates)
        if not self.cycle_momentum:
            return
        # As in DeepSpeed, groups begin with the lowest momentum, get_mom() with the highest.
        first = self.last_batch_iteration < 0
        momenta = self.min_moms if first else self.get_mom() or []
        for group, betas in zip(self.optimizer.param_groups, momenta):
            group["betas"] = betas

    def get_mom(self) -> list[tuple[float, float]] | None:
        """The betas of the param groups; None where the momentum does not cycle."""
        if not self.cycle_momentum:
            return None
        pairs = zip(self.min_moms, self.max_moms)
        return [(self.momentum_between(low, high), second) for (low, second), (high, _) in pairs]

    def momentum_between(self, low: float, high: float) -> float:
        if self.in_cycle():
            return high - (high - low) * self.height()
        return high * self.decay(self.decay_mom_rate)


SCHEDULES: dict[str, type[Schedule]] = {
    kind.__name__: kind for kind in (WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle)
}


def scheduler_class(kind: str) -> Any:
    """The class of a config's schedule: one of the above, or of torch.optim.lr_scheduler."""
    base = torch.optim.lr_scheduler.LRScheduler
    found: Any = SCHEDULES.get(kind) or getattr(torch.optim.lr_scheduler, kind, None)
    if not (isinstance(found, type) and issubclass(found, (Schedule, base))) or found is base:
        raise errors.argument(
            f"unknown scheduler {kind!r}: {', '.join(SCHEDULES)}, and those of "
            "torch.optim.lr_scheduler are known",
            subject="scheduler.type",
        )
    return found


def make_scheduler(optimizer: torch.optim.Optimizer, kind: str, params: dict[str, Any]) -> Any:
    """The schedule of a config, by its class and params."""
    found = scheduler_class(kind)
    try:
        return found(optimizer, **params)
    except TypeError as error:
        raise errors.argument(f"scheduler {kind}: {error}", "scheduler.params") from None


def check_block(block: tuple[str, dict[str, Any]] | None) -> None:
    """ArgumentError for a schedule of a config, or an argument of it, that is unknown or missing.
    Local: before anything is sharded."""
    if block is None:
        return
    kind, params = block
    try:
        inspect.signature(scheduler_class(kind)).bind(None, **params)
    except TypeError as error:
        raise errors.argument(f"scheduler {kind}: {error}", "scheduler.params") from None
