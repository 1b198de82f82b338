# SPDX-License-Identifier: Apache-2.0
"""Models beside each other in one process, and calls that are refused, with the Trainer."""

from __future__ import annotations

import gc
import weakref

import torch
from modules import WORLD, Gan, Regression, fit, layers, raises, run_cases
from torch import nn

import meron.checkpointing
import meron.torch as mt
import meron.zero
from meron.lightning import MeronStrategy


def case_checkpointing_flags() -> None:
    meron.checkpointing.configure(contiguous_checkpointing=True)
    fit("meron_stage_1")
    assert meron.checkpointing.state.settings.contiguous  # the caller's own stay
    fit(MeronStrategy(synchronize_checkpoint_boundary=True))
    settings = meron.checkpointing.state.settings
    assert settings.synchronize and not settings.contiguous
    meron.checkpointing.configure(deepspeed_config={})


def case_steps_that_are_refused() -> None:
    class Unwrapped(Regression):
        def on_before_optimizer_step(self, optimizer: object) -> None:
            if len(self.losses) == 2:
                with meron.zero.unwrap_model_for_generation(self):
                    self.trainer.strategy.step(optimizer)

    raises("StateError", "unwrap_model_for_generation", lambda: fit("meron_stage_3", Unwrapped()))

    class Foreign(Regression):
        def on_before_optimizer_step(self, optimizer: object) -> None:
            other = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
            self.trainer.strategy.step(other)

    raises("MisconfigurationException", "SGD is none of", lambda: fit("meron", Foreign()))

    class Toggled(Gan):
        def update(self, optimizer: object, loss: torch.Tensor) -> None:
            raise ValueError("while one optimizer is toggled")

    module = Toggled()
    raises("ValueError", "toggled", lambda: fit("meron_stage_2", module))
    assert all(param.requires_grad for param in module.parameters())


def held_bytes() -> int:
    """Bytes that this rank holds of models, after all ranks have freed those that were dropped."""
    gc.collect()
    mt.shard(nn.Linear(1, 1))  # here ranks agree on them
    stats = meron.zero.comm.any_world().stats()
    return stats.param_bytes + stats.gradient_bytes + stats.optimizer_bytes


def of_the_trainer() -> nn.Module:
    return fit("meron_stage_3", Regression(late=True))[0]


def of_the_engine() -> nn.Module:
    config = {"optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 3}}
    engine = meron.zero.initialize(model=layers(), config=config)[0]
    engine.backward(engine(torch.ones(2, 16)).sum())
    engine.step()
    return engine


def case_models_that_are_dropped_are_freed() -> None:
    """Teacher and student in one process, by two Trainers and by two engines."""
    for train in (of_the_trainer, of_the_engine):
        before = held_bytes()
        teacher, student = train(), train()
        assert held_bytes() > before + 4 * 2 * 1000 // WORLD
        dropped = [weakref.ref(teacher), weakref.ref(student)]
        del teacher
        middle = held_bytes()
        assert dropped[0]() is None and dropped[1]() is not None
        del student
        assert before <= held_bytes() < middle and dropped[1]() is None
        assert held_bytes() <= before + 64, (train, held_bytes(), before)


if __name__ == "__main__":
    run_cases(dict(globals()))
