# SPDX-License-Identifier: Apache-2.0
"""One rank of tools/bench lightning: Lightning's Trainer, which pauses for a loop over meron.zero.

The last line of rank 0 is JSON: for each arm the milliseconds of every step, and the bytes that the
rank holds for it between steps.
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

import torch
from lightning.pytorch import LightningModule, Trainer

import meron.zero
from meron.lightning import MeronStrategy

sys.path.insert(1, str(Path(__file__).resolve().parents[2] / "examples" / "03_gpt"))

from gpt.model import GPT, loss_of

SHAPE = {"width": 256, "layers": 4, "heads": 4, "context": 64}  # 3.3 million parameters
BATCH = 4
WARM = 3  # steps of each arm before the first that counts


def batches(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(int(os.environ["MERON_RANK"]))
    shape = (BATCH, SHAPE["context"] + 1)
    return [torch.randint(256, shape, generator=generator) for _ in range(count)]


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=1e-4)


def held_bytes(*engines: Any) -> int:
    """Bytes that this rank holds now, in all contexts of some engines."""
    every = [engine.sharding.context.stats() for engine in engines]
    contexts = {id(engine.sharding.context): stats for engine, stats in zip(engines, every)}
    return sum(
        stats.param_bytes + stats.gradient_bytes + stats.optimizer_bytes + stats.staging_bytes
        for stats in contexts.values()
    )


class Loop:
    """The training by hand."""

    def __init__(self, stage: int) -> None:
        model = GPT(**SHAPE)
        config = {"zero_optimization": {"stage": stage}}
        meron.zero.Init(module=model, config_dict_or_path=config)
        self.engine = meron.zero.initialize(model=model, optimizer=adamw(model), config=config)[0]
        self.ms: list[float] = []

    def turn(self, data: list[torch.Tensor]) -> None:
        meron.zero.comm.barrier()
        for batch in data:
            begin = time.perf_counter()
            loss = loss_of(self.engine, batch)
            self.engine.backward(loss)
            self.engine.step()
            self.ms.append(1e3 * (time.perf_counter() - begin))


class Fitted(LightningModule):
    """The training by a Trainer. A step lasts from the end of the one before, or of a pause, to its
    own: so hooks, loader and progress count."""

    def __init__(self, loop: Loop, data: list[torch.Tensor], alone: int) -> None:
        super().__init__()
        self.gpt = GPT(**SHAPE)
        self.__dict__["loop"] = loop  # no part of the module
        self.data = data
        self.alone, self.held = alone, 0
        self.mark = 0.0
        self.ms: list[float] = []

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        return loss_of(self.gpt, batch)

    def configure_optimizers(self) -> Any:
        return adamw(self)

    def on_train_batch_end(self, _outputs: Any, _batch: Any, index: int) -> None:
        now = time.perf_counter()
        done = index + 1 - WARM
        if done > 0:
            self.ms.append(1e3 * (now - self.mark))
        if done >= 0 and done % len(self.data) == 0:
            self.held = held_bytes(self.loop.engine, self.trainer.strategy.engine) - self.alone
            self.loop.turn(self.data)
            meron.zero.comm.barrier()
            now = time.perf_counter()
        self.mark = now


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of a turn")
    parser.add_argument("--rounds", type=int, required=True)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    first = Loop(given.stage)  # has the buffers of a context too, which all models share
    first.turn(batches(WARM))
    shared = held_bytes(first.engine)
    loop = Loop(given.stage)
    loop.turn(batches(WARM))
    loop.ms.clear()
    alone = held_bytes(first.engine, loop.engine)
    module = Fitted(loop, batches(given.steps), alone)
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        strategy=MeronStrategy(stage=given.stage),
        accelerator="cpu",
        devices=int(os.environ["MERON_WORLD_SIZE"]),
        max_epochs=1,
        use_distributed_sampler=False,
        **dict.fromkeys(quiet, False),
    )
    data = batches(WARM + given.steps * given.rounds)
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
    if os.environ["MERON_RANK"] == "0":
        held = {"loop": alone - shared, "fit": module.held}
        print(json.dumps({"loop": loop.ms, "fit": module.ms, "bytes": held}), flush=True)


if __name__ == "__main__":
    main()
