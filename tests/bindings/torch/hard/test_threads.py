# SPDX-License-Identifier: Apache-2.0
"""Threads other than the main one use a sharded model, in the same order on all ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import meron
import meron.torch as mt
import meron.zero
from meron.torch.api import shardings_below

pytestmark = pytest.mark.ranks(2)
LIMIT = 60  # seconds until a thread counts as deadlocked
X = torch.ones(4, 16)


class Work:
    """A model and its optimizer."""

    def __init__(self) -> None:
        self.context = mt.context_for(meron.Plan.preset("zero3"), timeout=20.0)
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.ReLU()) for _ in range(4)))
        mt.shard(self.model, units=nn.Sequential, context=self.context)
        self.optimizer = mt.AdamW(self.model, lr=1e-2)

    def step(self) -> float:
        loss = self.model(X).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def steps(self, count: int) -> list[float]:
        return [self.step() for _ in range(count)]


class Thread(threading.Thread):
    """Runs a function, and keeps its value or exception."""

    def __init__(self, body: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(daemon=True)
        self.body, self.arguments = body, arguments
        self.value: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.value = self.body(*self.arguments)
        except BaseException as error:  # `joined` makes it available
            self.error = error

    def joined(self) -> Thread:
        self.join(LIMIT)
        assert not self.is_alive(), "a thread is deadlocked"
        return self


def test_threads_take_turns() -> None:
    """Forward, backward and step on different threads, one at a time, compute the same losses."""
    here, there = Work(), Work()
    expected = here.steps(4)
    found = [there.step()]
    thread = Thread(there.steps, 2).joined()
    assert thread.error is None, thread.error
    found += thread.value
    loss = there.model(X).square().mean()
    for part in (loss.backward, there.optimizer.step, there.optimizer.zero_grad):
        thread = Thread(part).joined()
        assert thread.error is None, thread.error
    assert [*found, loss.item()] == expected
    for work in (here, there):
        work.context.close()


def test_runs_a_forward_of_another_thread_within_a_forward() -> None:
    work, plain = Work(), Work()
    begun, seen = threading.Event(), []

    def evaluate() -> float:
        with torch.no_grad():
            return work.model(X).sum().item()

    def hook(*_: Any) -> None:
        if not begun.is_set():
            begun.set()
            seen.append(Thread(evaluate))
            seen[0].joined()

    work.model[1].register_forward_pre_hook(hook)
    assert work.steps(3) == plain.steps(3)
    assert seen[0].error is None and seen[0].value != 0
    for each in (work, plain):
        each.context.close()


def test_saves_in_the_background_while_training(tmp_path: Path) -> None:
    work, plain = Work(), Work()
    handle = mt.save(tmp_path, "background", work.model, work.optimizer, background=True)
    assert work.steps(20) == plain.steps(20)
    waiting = Thread(handle.wait).joined()  # any thread may wait
    assert waiting.error is None, waiting.error
    for each in (work, plain):
        each.context.close()


def test_each_thread_has_its_own_error_text() -> None:
    work = Work()
    work.step()
    (sharding,) = shardings_below(work.model)

    def texts() -> set[str]:
        seen = set()
        memory = sharding.residency.memory(SimpleNamespace(index=1 << 20))  # no unit has this index
        for _ in range(500):
            memory.entered = True
            try:
                memory.leave()
            except meron.errors.Error as error:
                seen.add(str(error))
        return seen

    threads = [Thread(texts) for _ in range(4)]
    seen = set.union(*(thread.joined().value for thread in threads))
    assert len(seen) == 1 and "leave" in seen.pop(), seen
    work.context.close()


def test_engine_trains_on_another_thread(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": 3},
    }
    engine = meron.zero.initialize(model=model, config=config)[0]

    def train() -> float:
        loss = engine(X).square().mean()
        engine.backward(loss)
        engine.step()
        return loss.item()

    losses = [train()]
    thread = Thread(lambda: [train(), train()]).joined()
    assert thread.error is None, thread.error
    losses += thread.value
    assert len(set(losses)) == 3 and engine.global_steps == 3, losses
    step = Thread(engine.step).joined()  # there was no backward
    assert isinstance(step.error, meron.Error) and "backward" in str(step.error), repr(step.error)
    thread = Thread(engine.save_checkpoint, f"{tmp_path}/engine").joined()
    assert thread.error is None, thread.error
    engine.destroy()
