# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that meron.lightning of earlier versions wrote: a run continues with their bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from cases import VERSIONS, expected_of, folder_of
from lightning_cases import CASES, FILE, MINE, SAVED, Module, batches, record, trainer
from torch_cases import Records
from torch_model import bits_of

from meron.lightning import convert_zero_checkpoint_to_fp32_state_dict, load_from_checkpoint

KEPT = [(version, name) for version in VERSIONS for name in CASES]
kept = pytest.mark.parametrize(("version", "name"), KEPT)


def resume(path: Path, name: str, expected: Records) -> None:
    strategy, *rule = CASES[name]
    module, made = Module(*rule), trainer(strategy, SAVED + 1)
    made.fit(module, batches(), ckpt_path=path)
    assert module.records == [expected["saved"]]  # when it began
    assert record(module, made) == expected["next"]
    assert_is_mine(module.restored)


def assert_is_mine(found: Any) -> None:
    assert found["count"] == MINE["count"] and torch.equal(found["sum"], MINE["sum"])


@kept
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_trainer_continues_with_the_bits_of_the_run_that_was_saved(
    version: str, name: str, count: int
) -> None:
    path = folder_of(version, name) / FILE
    ranks.call(count, resume, path, name, expected_of(version, name))


def values_of(version: str, name: str) -> dict[str, str]:
    """Bits of the saved weights and buffers."""
    saved = expected_of(version, name)["saved"]["bits"]
    states = [key for key in saved if key.rpartition(".")[0] in saved]
    return {key: saved[key] for key in saved if key not in states}


def assert_values(module: torch.nn.Module, wanted: dict[str, str]) -> None:
    assert {key: bits_of(value) for key, value in module.state_dict().items()} == wanted


@kept
def test_load_from_checkpoint_restores_values_and_hyperparameters(version: str, name: str) -> None:
    module = load_from_checkpoint(Module, folder_of(version, name) / FILE)
    assert_values(module, values_of(version, name))
    assert module.hparams["width"] == 5
    assert_is_mine(module.restored)


@kept
def test_a_consolidated_checkpoint_is_loaded_by_lightning_itself(
    version: str, name: str, tmp_path: Path
) -> None:
    single = tmp_path / "single.ckpt"
    content = convert_zero_checkpoint_to_fp32_state_dict(folder_of(version, name) / FILE, single)
    assert content["global_step"] == SAVED
    assert_is_mine(content["mine"])
    module = Module.load_from_checkpoint(single, weights_only=False)
    assert_values(module, values_of(version, name))


def resume_without_states(path: Path, name: str, wanted: dict[str, str]) -> None:
    strategy, *rule = CASES[name]
    module, made = Module(*rule), trainer(strategy, SAVED + 1)
    made.fit(module, batches(), ckpt_path=path)
    (first,) = module.records
    assert {key: first["bits"][key] for key in wanted} == wanted
    assert made.global_step == SAVED + 1


@kept
def test_a_consolidated_checkpoint_starts_a_trainer(
    version: str, name: str, tmp_path: Path
) -> None:
    single = tmp_path / "single.ckpt"
    convert_zero_checkpoint_to_fp32_state_dict(folder_of(version, name) / FILE, single)
    ranks.call(2, resume_without_states, single, name, values_of(version, name))
