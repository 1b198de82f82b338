# SPDX-License-Identifier: Apache-2.0
"""Models beside each other in one process, and steps that are rejected, with the Trainer."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from modules import WORLD, Gan, Regression, fit, layers
from torch import nn

import meron
import meron.checkpointing
import meron.torch as mt
import meron.zero
from meron.lightning import MeronStrategy

pytestmark = pytest.mark.ranks(2)


def test_config_sets_activation_checkpointing() -> None:
    meron.checkpointing.configure(contiguous_checkpointing=True)
    fit("meron_stage_1")
    assert meron.checkpointing.state.settings.contiguous  # the caller's settings are kept
    fit(MeronStrategy(synchronize_checkpoint_boundary=True))
    settings = meron.checkpointing.state.settings
    assert settings.synchronize and not settings.contiguous
    meron.checkpointing.configure(deepspeed_config={})


def test_rejects_steps_out_of_place() -> None:
    class Unwrapped(Regression):
        def on_before_optimizer_step(self, optimizer: object) -> None:
            if len(self.losses) == 2:
                with meron.zero.unwrap_model_for_generation(self):
                    self.trainer.strategy.step(optimizer)

    with pytest.raises(meron.StateError, match="unwrap_model_for_generation"):
        fit("meron_stage_3", Unwrapped())

    class Foreign(Regression):
        def on_before_optimizer_step(self, optimizer: object) -> None:
            other = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
            self.trainer.strategy.step(other)

    with pytest.raises(MisconfigurationException, match="SGD is none of"):
        fit("meron", Foreign())

    class Toggled(Gan):
        def update(self, optimizer: object, loss: torch.Tensor) -> None:
            raise ValueError("while one optimizer is toggled")

    module = Toggled()
    with pytest.raises(ValueError, match="toggled"):
        fit("meron_stage_2", module)
    assert all(param.requires_grad for param in module.parameters())


def held_bytes() -> int:
    """Returns the bytes of models on this rank, after all ranks have freed dropped models."""
    gc.collect()
    mt.shard(nn.Linear(1, 1))  # ranks agree here on models to free
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


def test_dropped_models_are_freed() -> None:
    """Teacher and student in one process, by two Trainers and by two engines."""
    of_the_trainer()  # allocates buffers that the context keeps
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
        assert held_bytes() <= before + 64
