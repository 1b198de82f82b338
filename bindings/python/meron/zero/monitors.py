# SPDX-License-Identifier: Apache-2.0
"""Monitors: rank 0 writes scalars of a run for TensorBoard, Weights & Biases or Comet, or as CSV.

A monitor never ends a run. One that cannot start or write is switched off, with a warning.

An event is (name, value, samples), such as ("Train/Samples/lr", 0.001, 64).
"""

from __future__ import annotations

import csv
import importlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from meron.zero import comm

logger = logging.getLogger("meron.zero")

Event = tuple[str, Any, int]
PREFIX = "Train/Samples/"


class Monitor:
    """The base of all monitors. `enabled` and the other values are those of the config's block."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.enabled = bool(config.enabled)
        self.writes = self.enabled and comm.known_rank() == 0

    def write_events(self, event_list: Iterable[Event]) -> None:
        raise NotImplementedError


class TensorBoardMonitor(Monitor):
    """Writes by torch.utils.tensorboard in output_path/job_name. Raises ImportError without the
    package tensorboard."""

    def __init__(self, tensorboard_config: Any) -> None:
        super().__init__(tensorboard_config)
        self.output_path = tensorboard_config.output_path
        self.job_name = tensorboard_config.job_name
        self.summary_writer: Any = None
        if self.writes:
            tensorboard = importlib.import_module("torch.utils.tensorboard")
            self.summary_writer = tensorboard.SummaryWriter(log_dir=folder_of(self))

    def write_events(self, event_list: Iterable[Event], flush: bool = True) -> None:
        if self.summary_writer is None:
            return
        for name, value, samples in event_list:
            self.summary_writer.add_scalar(name, value, samples)
        if flush:
            self.flush()

    def flush(self) -> None:
        if self.summary_writer is not None:
            self.summary_writer.flush()


class WandbMonitor(Monitor):
    """Writes by wandb.log. Raises ImportError without the package wandb."""

    def __init__(self, wandb_config: Any) -> None:
        super().__init__(wandb_config)
        self.group = wandb_config.group
        self.team = wandb_config.team
        self.project = wandb_config.project
        if self.writes:
            self.wandb = importlib.import_module("wandb")
            self.wandb.init(project=self.project, group=self.group, entity=self.team)

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: Any = None) -> Any:
        return self.wandb.log(data, step=step, commit=commit) if self.writes else None

    def write_events(self, event_list: Iterable[Event]) -> None:
        for name, value, samples in event_list:
            self.log({name: value}, step=samples)


class CsvMonitor(Monitor):
    """Appends to a file of each name in output_path/job_name, with the columns step and value."""

    def __init__(self, csv_config: Any) -> None:
        super().__init__(csv_config)
        self.output_path = csv_config.output_path
        self.job_name = csv_config.job_name
        self.filenames: list[str] = []
        self.log_dir = folder_of(self) if self.writes else None
        if self.log_dir is not None:
            os.makedirs(self.log_dir, exist_ok=True)

    def write_events(self, event_list: Iterable[Event]) -> None:
        if self.log_dir is None:
            return
        for name, value, samples in event_list:
            file_name = name.replace("/", "_").replace(" ", "_")
            path = Path(self.log_dir) / f"{file_name}.csv"
            with path.open("a", newline="") as file:
                writer = csv.writer(file)
                if file_name not in self.filenames:
                    self.filenames.append(file_name)
                    writer.writerow(["step", name.rpartition("/")[2]])
                writer.writerow([samples, value])


class CometMonitor(Monitor):
    """Writes by comet_ml, a value of each name in `samples_log_interval` samples. Raises
    ImportError without the package comet_ml."""

    def __init__(self, comet_config: Any) -> None:
        super().__init__(comet_config)
        self.samples_log_interval = comet_config.samples_log_interval
        self.experiment: Any = None
        self._written: dict[str, int] = {}  # samples of the last value, by the name
        if self.writes:
            names = ("api_key", "project", "workspace", "experiment_key", "mode", "online")
            options = {name: getattr(comet_config, name) for name in names}
            self.experiment = importlib.import_module("comet_ml").start(**options)
            if comet_config.experiment_name is not None:
                self.experiment.set_name(comet_config.experiment_name)

    def write_events(self, event_list: Iterable[Event]) -> None:
        if self.experiment is None:
            return
        for name, value, samples in event_list:
            last = self._written.get(name)
            if last is None or samples - last >= self.samples_log_interval:
                self._written[name] = samples
                self.experiment.log_metric(name=name, value=value, step=samples)


def folder_of(monitor: Any) -> str:
    return os.path.join(monitor.output_path or "", monitor.job_name or "")


class MonitorMaster:
    """All monitors of a config, on rank 0.

    Attributes:
        enabled: True on all ranks if the config enables a monitor.
        tb_monitor, wandb_monitor, csv_monitor, comet_monitor: None if they do not write.
    """

    KINDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
        "tensorboard": ("tb_monitor", TensorBoardMonitor),
        "wandb": ("wandb_monitor", WandbMonitor),
        "csv_monitor": ("csv_monitor", CsvMonitor),
        "comet": ("comet_monitor", CometMonitor),
    }

    def __init__(self, monitor_config: Any) -> None:
        self.monitor_config = monitor_config
        self.enabled = False
        for name, (attribute, kind) in self.KINDS.items():
            block = getattr(monitor_config, name, None)
            enabled = block is not None and bool(block.enabled)
            self.enabled |= enabled
            started = enabled and comm.known_rank() == 0
            setattr(self, attribute, self._start(name, kind, block) if started else None)

    @property
    def writes(self) -> bool:
        """True if a monitor of this rank writes."""
        return any(getattr(self, attribute) is not None for attribute, _ in self.KINDS.values())

    def write_events(self, event_list: Iterable[Event]) -> None:
        """Writes events by each monitor. One that fails is switched off, with a warning."""
        events = [(name, as_number(value), samples) for name, value, samples in event_list]
        for name, (attribute, _) in self.KINDS.items():
            monitor = getattr(self, attribute)
            if monitor is None:
                continue
            try:
                monitor.write_events(events)
            except Exception as error:  # of a package, a service or a drive
                logger.warning("%s is switched off: %s: %s", name, type(error).__name__, error)
                setattr(self, attribute, None)

    @staticmethod
    def _start(name: str, kind: Callable[[Any], Any], block: Any) -> Any:
        try:
            return kind(block)
        except ImportError as error:
            logger.warning(
                "%s is enabled in the config, and its package is not installed (%s): nothing is "
                "written there",
                name,
                error,
            )
        except Exception as error:  # of a package, a service or a drive
            logger.warning(
                "%s cannot start, so nothing is written there: %s: %s",
                name,
                type(error).__name__,
                error,
            )
        return None


def as_number(value: Any) -> Any:
    """A tensor of one element as its number."""
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


class RunEvents:
    """Collects the scalars of an engine's steps, for its monitors.

    Each step of the optimizer gives the mean loss of its micro-batches on this rank, the learning
    rate, and the loss scale under fp16.
    """

    def __init__(self, monitor: MonitorMaster) -> None:
        self.monitor = monitor
        self._loss: torch.Tensor | None = None

    def add_loss(self, loss: torch.Tensor) -> None:
        """A micro-batch's loss, divided by the accumulation steps."""
        if self.monitor.writes:
            loss = loss.detach().float()
            self._loss = loss if self._loss is None else self._loss + loss

    def drop_loss(self) -> None:
        self._loss = None

    def write_step(self, engine: Any) -> None:
        """After a step of the optimizer, taken or skipped."""
        loss, self._loss = self._loss, None
        if not self.monitor.writes:
            return
        values = {} if loss is None else {"train_loss": loss}
        rates = engine.get_lr()
        if rates:
            values["lr"] = rates[0]
        if engine.loss_scaler is not None:
            values["loss_scale"] = engine.cur_scale
        samples = engine.global_samples
        self.monitor.write_events([(PREFIX + name, each, samples) for name, each in values.items()])
