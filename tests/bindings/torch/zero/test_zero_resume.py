# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of engines that are loaded at another world size and stage."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks
import torch
from adam_engine import ADAM, assert_same, made, state, steps

from meron import zero
from model import Model, config

pytestmark = pytest.mark.parametrize("count", [3, 1])


def saved_values(folder: Path) -> tuple[list[torch.Tensor], list[torch.Tensor], list[float]]:
    """Saves a trained engine. Returns its states, its weights and its learning rates."""
    engine = made(bf16={"enabled": True})
    steps(engine, 0, 3)
    engine.save_checkpoint(folder, client_state={"ranks": 2})
    return state(engine), list(zero.full_state_dict(engine).values()), engine.get_lr()


def resume(
    folder: Path, states: list[torch.Tensor], weights: list[torch.Tensor], rate: list[float]
) -> None:
    for stage in (3, 1):
        engine = made(seed=7, stage=stage, bf16={"enabled": True})
        path, client = engine.load_checkpoint(folder)
        assert path is not None and client == {"ranks": 2}
        assert_same(state(engine), states)
        assert_same(list(zero.full_state_dict(engine).values()), weights)
        assert engine.get_lr() == rate and engine.global_steps == 3
        steps(engine, 3, 4)
        engine.destroy()


def resume_within_init(folder: Path, states: list[torch.Tensor]) -> None:
    settings = config(3, **ADAM, bf16={"enabled": True})
    with zero.Init(config_dict_or_path=settings):
        model = Model()
    engine = zero.initialize(model=model, config=settings)[0]
    engine.load_checkpoint(folder)
    assert_same(state(engine), states)


def test_resumes_at_another_world_size(count: int, tmp_path: Path) -> None:
    values = ranks.call(2, saved_values, tmp_path)[0]
    ranks.call(count, resume, tmp_path, *values)


def test_a_model_built_within_init_resumes_at_another_world_size(
    count: int, tmp_path: Path
) -> None:
    states = ranks.call(2, saved_values, tmp_path)[0][0]
    ranks.call(count, resume_within_init, tmp_path, states)
