# SPDX-License-Identifier: Apache-2.0
"""One rank of tools/bench lightning: Lightning's Trainer, which pauses for loops without it.

The last line of rank 0 is JSON: for each arm the milliseconds of every step; on Meron, also the
milliseconds of the Trainer's step within the strategy, and the bytes that the rank holds between
steps.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer

import meron.zero
from meron.lightning import MeronEnvironment, MeronStrategy

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "examples" / "03_gpt"))

from gpt.model import GPT, loss_of

SHAPE = {"width": 256, "layers": 4, "heads": 4, "context": 64}  # 3.3 million parameters
WARM = 3  # steps of each arm before the first that counts


def batches(count: int, rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(int(os.environ["MERON_RANK"]))
    shape = (rows, SHAPE["context"] + 1)
    return [torch.randint(256, shape, generator=generator) for _ in range(count)]


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def held_bytes(engine: Any) -> int:
    """Bytes that this rank holds now in the context of an engine, which others share."""
    stats = engine.sharding.context.stats()
    return int(
        stats.param_bytes + stats.gradient_bytes + stats.optimizer_bytes + stats.staging_bytes
    )


class Loop:
    """The training by hand, over meron.zero."""

    def __init__(self, stage: int, warm: list[torch.Tensor]) -> None:
        model = GPT(**SHAPE)
        config = {"zero_optimization": {"stage": stage}}
        meron.zero.Init(module=model, config_dict_or_path=config)
        self.engine = meron.zero.initialize(model=model, optimizer=adamw(model), config=config)[0]
        self.ms: list[float] = []
        self.turn(warm)
        self.ms.clear()

    def turn(self, data: list[torch.Tensor]) -> None:
        meron.zero.comm.barrier()
        for batch in data:
            begin = time.perf_counter()
            self.step(batch)
            self.ms.append(1e3 * (time.perf_counter() - begin))

    def step(self, batch: torch.Tensor) -> None:
        loss = loss_of(self.engine, batch)
        self.engine.backward(loss)
        self.engine.step()


class PlainLoop(Loop):
    """The training by hand, over torch's DistributedDataParallel."""

    def __init__(self, warm: list[torch.Tensor]) -> None:
        self.model = torch.nn.parallel.DistributedDataParallel(GPT(**SHAPE))
        self.optimizer = adamw(self.model)
        self.ms = []
        self.turn(warm)
        self.ms.clear()

    def step(self, batch: torch.Tensor) -> None:
        loss = loss_of(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def timed(name: str) -> Any:
    """A method of the strategy's whose time counts."""

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return getattr(super(Timed, self), name)(*arguments, **named)
        finally:
            self.spent += 1e3 * (time.perf_counter() - begin)

    return call


class Timed(MeronStrategy):  # type: ignore[misc,valid-type]
    """Attributes: `spent`, milliseconds within the strategy and its optimizers since the last step.
    The rest of a step is Lightning's own."""

    spent = 0.0
    batch_to_device = timed("batch_to_device")
    training_step = timed("training_step")
    backward = timed("backward")
    step = timed("step")

    def drop_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """zero_grad, whose time counts."""
        begin = time.perf_counter()
        optimizer.zero_grad()
        self.spent += 1e3 * (time.perf_counter() - begin)


class Fitted(LightningModule):
    """The training by a Trainer. A step lasts from the end of the one before, or of a pause, to its
    own: so hooks, loader and progress count."""

    def __init__(self, loops: list[Loop], data: list[torch.Tensor]) -> None:
        super().__init__()
        self.gpt = GPT(**SHAPE)
        self.__dict__["loops"] = loops  # no parts of the module
        self.data = data
        self.held = 0  # bytes, of the loops too
        self.turns = 0
        self.mark = 0.0
        self.ms: list[float] = []
        self.within: list[float] = []

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        return loss_of(self.gpt, batch)

    def configure_optimizers(self) -> Any:
        return adamw(self)

    def optimizer_zero_grad(self, epoch: int, index: int, optimizer: Any) -> None:
        if isinstance(self.trainer.strategy, Timed):
            self.trainer.strategy.drop_gradients(optimizer)
        else:
            super().optimizer_zero_grad(epoch, index, optimizer)

    def on_train_start(self) -> None:
        if not self.loops:  # torch's processes have met now
            self.loops.append(PlainLoop(self.data[:WARM]))

    def on_train_batch_end(self, _outputs: Any, _batch: Any, index: int) -> None:
        now = time.perf_counter()
        done = index + 1 - WARM
        if done > 0:
            self.ms.append(1e3 * (now - self.mark))
        if isinstance(self.trainer.strategy, Timed):
            self.within += [self.trainer.strategy.spent] if done > 0 else []
            self.trainer.strategy.spent = 0.0
        if done >= 0 and done % len(self.data) == 0:
            self.pause()
            now = time.perf_counter()
        self.mark = now

    def pause(self) -> None:
        if isinstance(self.trainer.strategy, Timed):
            self.held = held_bytes(self.trainer.strategy.engine)
        self.turns += 1
        for loop in self.loops[:: 1 if self.turns % 2 else -1]:
            loop.turn(self.data)
        meron.zero.comm.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, help="of ZeRO; without it the Trainer is on DDP")
    parser.add_argument("--steps", type=int, required=True, help="of a turn")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True, help="of a batch")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    loops: list[Loop] = []
    held: list[int] = []
    data = batches(given.steps, given.rows)
    for _ in range(2 if given.stage is not None else 0):
        loops.append(Loop(given.stage, batches(WARM, given.rows)))
        held.append(held_bytes(loops[-1].engine))  # the first has what models of a context share
    module = Fitted(loops, data)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        strategy="ddp" if given.stage is None else Timed(stage=given.stage),
        accelerator="cpu",
        devices=int(os.environ["MERON_WORLD_SIZE"]),
        plugins=[] if given.stage is not None else [MeronEnvironment()],
        max_epochs=1,
        use_distributed_sampler=False,
        **dict.fromkeys(quiet, False),
    )
    every = batches(WARM + given.steps * given.rounds, given.rows)
    trainer.fit(module, torch.utils.data.DataLoader(every, batch_size=None))
    if os.environ["MERON_RANK"] == "0":
        arms = {
            "loop": loops[0].ms,
            "again": loops[-1].ms,
            "fit": module.ms,
            "within": module.within,
        }
        after = dict(zip(("loop", "fit"), np.diff([*held, module.held]).tolist()))
        print(json.dumps({**arms, "bytes": after}), flush=True)


if __name__ == "__main__":
    main()
