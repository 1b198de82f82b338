# SPDX-License-Identifier: Apache-2.0
"""Rank 0's report of a run: the config, times, memory, and a line of the log every few steps."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from meron.torch.sharding import Sharding
from meron.zero.config import Config
from meron.zero.config.model import Reports

logger = logging.getLogger("meron.zero")

Method = TypeVar("Method", bound=Callable[..., Any])
DEFAULT_EVERY = 10  # steps between two breakdowns, where the config gives no number
PHASES = ("forward", "backward", "step")
MIB = 1 << 20
warned: set[str] = set()  # features that this process has logged as ignored


def timed(phase: str) -> Callable[[Method], Method]:
    """A method of an engine whose time counts as a phase's, where the engine reports."""

    def wrap(method: Method) -> Method:
        @functools.wraps(method)
        def call(engine: Any, *args: Any, **kwargs: Any) -> Any:
            reporter: Reporter | None = engine._reporter
            if reporter is None:
                return method(engine, *args, **kwargs)
            steps = engine.global_steps
            with reporter.phase(phase):
                result = method(engine, *args, **kwargs)
            if engine.global_steps != steps:
                reporter.stepped(engine)
            return result

        return cast("Method", call)

    return wrap


class Reporter:
    """Of one engine: the time of its phases since the last report.

    It is on rank 0 alone. A backward() of the caller's own counts as other time.
    """

    def __init__(self, reports: Reports, sharding: Sharding) -> None:
        self.reports = reports
        self.context = sharding.context
        self.device = sharding.torch_device
        finite = reports.every is not None and math.isfinite(reports.every)
        self.every = max(int(reports.every or 0), 1) if finite else DEFAULT_EVERY
        self.logs = finite
        self.begun: float | None = None  # of the steps of the next report
        self.times = dict.fromkeys(PHASES, 0.0)
        self.steps = 0

    @staticmethod
    def of(reports: Reports, sharding: Sharding) -> Reporter | None:
        """The reporter of rank 0; None on other ranks, or if the config enables no report."""
        finite = reports.every is not None and math.isfinite(reports.every)
        if sharding.context.rank or not (finite or reports.times or reports.memory):
            return None
        return Reporter(reports, sharding)

    def now(self) -> float:
        """Seconds. If times are printed, waits for the device's queued work first."""
        if self.reports.times and self.device.type != "cpu":
            synchronize = getattr(getattr(torch, self.device.type, None), "synchronize", None)
            if synchronize is not None:
                synchronize(self.device)
        return time.perf_counter()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = self.now()
        if self.begun is None:
            self.begun = begun
        try:
            yield
        finally:
            self.times[name] += self.now() - begun

    def stepped(self, engine: Any) -> None:
        """After an update, taken or skipped."""
        self.steps += 1
        if engine.global_steps % self.every:
            return
        if self.logs:
            logger.info("%s", progress(engine))
        lines = []
        if self.reports.times:
            lines += self.table()
        if self.reports.memory:
            lines += self.memory()
        if lines:
            first = engine.global_steps - self.steps + 1
            write(f"meron.zero on rank 0, steps {first} to {engine.global_steps}", lines)
        self.times = dict.fromkeys(PHASES, 0.0)
        self.steps = 0
        self.begun = self.now()

    def table(self) -> list[str]:
        """The mean time of a step by phase, and its share."""
        begun = self.now() if self.begun is None else self.begun
        total = max(self.now() - begun, 1e-9)
        rows = {**self.times, "other": max(total - sum(self.times.values()), 0.0), "total": total}
        return [f"{'phase':<10}{'ms a step':>12}{'share':>8}"] + [
            f"{name:<10}{1e3 * spent / self.steps:>12.2f}{spent / total:>8.0%}"
            for name, spent in rows.items()
        ]

    def memory(self) -> list[str]:
        stats = self.context.stats()
        now, most = process_memory()
        held = {
            "process": now,
            "process, most": most,
            "parameters": stats.param_bytes,
            "gradients": stats.gradient_bytes + stats.caller_gradient_bytes,
            "optimizer": stats.optimizer_bytes,
            "staging": stats.staging_bytes,
            "engine, most": stats.peak_bytes,
            "device": stats.device_bytes,
            "nvme": stats.nvme_bytes,
        }
        return [f"{'memory':<16}{'MiB':>10}"] + [
            f"{name:<16}{size / MIB:>10.1f}" for name, size in held.items()
        ]


def process_memory() -> tuple[int, int]:
    """Bytes of this process that are in memory: now, and at most so far. 0 where the system does
    not tell."""
    found = {"VmRSS": 0, "VmHWM": 0}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
    return found["VmRSS"], found["VmHWM"]


def progress(engine: Any) -> str:
    """A line about the last step of an engine."""
    rates = ", ".join(f"{float(rate):.4g}" for rate in engine.get_lr())
    norm = engine.get_global_grad_norm()
    parts = [f"step {engine.global_steps}", f"lr {rates}"]
    if norm is not None:
        parts.append(f"gradient norm {norm:.4g}")
    parts.append(f"skipped {engine.skipped_steps}")
    if engine.loss_scaler is not None:
        parts.append(f"loss scale {engine.cur_scale:g}")
    return ", ".join(parts)


def write(title: str, lines: list[str]) -> None:
    """Prints in one piece, beside what other ranks print."""
    sys.stdout.write("\n".join([title, *(f"  {line}" for line in lines)]) + "\n")
    sys.stdout.flush()


def announce(config: Config, rank: int) -> None:
    """Sets the level of the log. Rank 0 also warns of unknown keys and ignored features, and prints
    the config if it says so."""
    if config.reports.log_level is not None:
        logger.setLevel(config.reports.log_level.upper())
    if rank:
        return
    if config.unknown:
        logger.warning("unknown keys of the config are ignored: %s", ", ".join(config.unknown))
    for path, advice in config.warned:
        if path not in warned:
            warned.add(path)
            logger.warning("%s of the config is not supported, and is ignored. %s", path, advice)
    if config.reports.config:
        text = json.dumps(config.table, indent=2, default=str)
        plan = json.dumps(json.loads(config.plan().json()))
        idle = ", ".join(config.without_effect) or "none"
        lines = [*text.splitlines(), f"plan: {plan}", f"keys without effect: {idle}"]
        write("meron.zero: the config", lines)
