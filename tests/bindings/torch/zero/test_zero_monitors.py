# SPDX-License-Identifier: Apache-2.0
"""Monitors of a config write the scalars of each step on rank 0, and never end a run."""

from __future__ import annotations

import contextlib
import csv
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import meron
from meron import zero
from meron.zero import monitors, reports
from model import RANK, RANKS


def made(**options: Any) -> Any:
    torch.manual_seed(0)
    settings = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.5}},
        "zero_optimization": {"stage": 1},
        **options,
    }
    model = torch.nn.Linear(2, 1, bias=False)
    return zero.initialize(model=model, config=settings)[0]


def train(engine: Any, losses: list[float]) -> None:
    """A micro-batch for each loss, whose value does not depend on the weights."""
    for value in losses:
        loss = engine(torch.ones(2, 2)).sum()
        engine.backward(loss - loss.detach() + value)
        engine.step()


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """The texts that the log gets within."""
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler, logger = Keep(), logging.getLogger("meron.zero")
    logger.addHandler(handler)
    try:
        yield texts
    finally:
        logger.removeHandler(handler)


def rows(folder: Path, name: str) -> list[list[str]]:
    with (folder / "job" / f"Train_Samples_{name}.csv").open(newline="") as file:
        return list(csv.reader(file))


def block(folder: Path, **more: Any) -> Any:
    return {"enabled": True, "output_path": str(folder), "job_name": "job", **more}


@pytest.mark.ranks(1, 2)
def test_csv_files_have_loss_and_rate_of_each_step(tmp_path: Path) -> None:
    engine = made(csv_monitor=block(tmp_path / "csv"), gradient_accumulation_steps=2)
    assert engine.monitor.enabled and engine.monitor.writes == (RANK == 0)
    train(engine, [1.0, 3.0, 5.0])
    engine.zero_grad()  # the loss of the third micro-batch is dropped with its gradient
    engine.monitor.write_events([("mine/a b", torch.tensor(7), 1)])
    engine.destroy()
    if RANK:
        return
    samples = str(4 * RANKS)
    assert rows(tmp_path / "csv", "train_loss") == [["step", "train_loss"], [samples, "2.0"]]
    assert rows(tmp_path / "csv", "lr") == [["step", "lr"], [samples, "0.5"]]
    assert not (tmp_path / "csv" / "job" / "Train_Samples_loss_scale.csv").exists()
    assert (tmp_path / "csv" / "job" / "mine_a_b.csv").read_text().split() == ["step,a", "b", "1,7"]


@pytest.mark.ranks(1, 2)
def test_the_loss_scale_is_written_under_fp16(tmp_path: Path) -> None:
    engine = made(csv_monitor=block(tmp_path), fp16={"enabled": True, "initial_scale_power": 4})
    loss = engine(torch.ones(2, 2).half()).float().sum()
    engine.backward(loss * torch.tensor(float("inf")))
    engine.step()
    engine.destroy()
    if RANK == 0:
        assert rows(tmp_path, "loss_scale") == [["step", "loss_scale"], [str(2 * RANKS), "16.0"]]
        assert rows(tmp_path, "lr")[1][1] == "0.5"


class Recorder(types.ModuleType):
    """A package of a monitor that records its calls."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **named: Any) -> Any:
            self.calls.append((name, args, named))
            return self

        return call


def test_packages_get_the_values_of_their_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("wandb", "comet_ml", "torch.utils.tensorboard")
    found = {name: Recorder(name) for name in names}
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    engine = made(
        wandb={"enabled": True, "team": "t", "group": "g"},
        comet={"enabled": True, "experiment_name": "e", "samples_log_interval": 4},
        tensorboard={"enabled": True, "output_path": "a", "job_name": "b"},
    )
    train(engine, [1.0, 2.0, 3.0])
    engine.destroy()
    wandb, comet, board = (found[name].calls for name in names)
    assert wandb[0] == ("init", (), {"project": "deepspeed", "group": "g", "entity": "t"})
    assert wandb[1] == ("log", ({"Train/Samples/train_loss": 1.0},), {"step": 2, "commit": None})
    assert wandb[2][1] == ({"Train/Samples/lr": 0.5},)
    assert comet[0][0] == "start" and comet[0][2]["mode"] is None
    assert comet[1] == ("set_name", ("e",), {})
    steps = [call[2]["step"] for call in comet if call[0] == "log_metric"]
    assert steps == [2, 2, 6, 6]  # every fourth sample
    assert board[0] == ("SummaryWriter", (), {"log_dir": "a/b"})
    assert board[1] == ("add_scalar", ("Train/Samples/train_loss", 1.0, 2), {})
    assert ("flush", (), {}) in board


@pytest.mark.ranks(1, 2)
def test_monitors_that_cannot_start_are_a_warning_of_rank_0(
    tmp_path: Path,
) -> None:
    absent = dict.fromkeys(("wandb", "comet_ml", "torch.utils.tensorboard"))
    (tmp_path / "file").write_text("")
    with logged() as texts, mock.patch.dict(sys.modules, absent):
        engine = made(
            wandb={"enabled": True},
            comet={"enabled": True},
            tensorboard={"enabled": True},
            csv_monitor=block(tmp_path / "file"),
        )
    train(engine, [1.0])
    assert engine.global_steps == 1 and not engine.monitor.writes
    engine.destroy()
    for name in ("wandb", "comet", "tensorboard"):
        told = [text for text in texts if text.startswith(f"{name} is enabled")]
        assert len(told) == (RANK == 0), texts
    assert sum("csv_monitor cannot start" in text for text in texts) == (RANK == 0)


def test_a_monitor_that_fails_is_switched_off(tmp_path: Path) -> None:
    engine = made(csv_monitor=block(tmp_path))
    train(engine, [1.0])
    for file in (tmp_path / "job").iterdir():
        file.unlink()
    (tmp_path / "job").rmdir()
    with logged() as texts:
        train(engine, [2.0, 3.0])
    assert engine.global_steps == 3
    assert sum("csv_monitor is switched off" in text for text in texts) == 1
    engine.destroy()


def test_the_loss_of_a_step_that_fails_is_dropped(tmp_path: Path) -> None:
    engine = made(csv_monitor=block(tmp_path))
    loss = engine(torch.ones(2, 2)).sum()
    engine.backward(loss * torch.tensor(float("nan")))
    with pytest.raises(meron.NonFiniteError):
        engine.step()
    with pytest.raises(RuntimeError, match="boom"):
        Boom.apply(engine(torch.ones(2, 2)).sum()).backward()
    engine.zero_grad()
    train(engine, [4.0])
    engine.destroy()
    assert rows(tmp_path, "train_loss") == [["step", "train_loss"], ["2", "4.0"]]


class Boom(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("boom")


def test_a_plain_backward_gives_no_loss(tmp_path: Path) -> None:
    engine = made(csv_monitor=block(tmp_path))
    engine(torch.ones(2, 2)).sum().backward()
    engine.step()
    engine.destroy()
    assert rows(tmp_path, "lr")[1:] and not list((tmp_path / "job").glob("*loss*"))


@pytest.mark.ranks(1, 2)
def test_other_instruments_are_one_warning() -> None:
    reports.warned.clear()
    with logged() as texts:
        for _ in range(2):
            engine = made(comms_logger={"enabled": True}, flops_profiler={"enabled": True})
            train(engine, [1.0])
            engine.destroy()
    for name in ("comms_logger", "flops_profiler"):
        assert sum(text.startswith(f"{name} of the config") for text in texts) == (RANK == 0)


def test_monitors_are_made_of_config_classes(tmp_path: Path) -> None:
    pytest.importorskip("pydantic", reason="config classes: pydantic is not installed")
    from meron.zero.config import DeepSpeedConfig, DeepSpeedMonitorConfig

    table = {"train_batch_size": 2, "csv_monitor": block(tmp_path), "wandb": {}}
    config = DeepSpeedConfig(table).monitor_config
    monitor = monitors.CsvMonitor(config.csv_monitor)
    assert (monitor.enabled, monitor.output_path, monitor.job_name) == (True, str(tmp_path), "job")
    assert config.enabled and not DeepSpeedMonitorConfig().enabled
    wandb = monitors.WandbMonitor(config.wandb)
    assert not wandb.enabled and wandb.project == DeepSpeedMonitorConfig().wandb.project
    assert monitors.MonitorMaster(config).csv_monitor is not None
