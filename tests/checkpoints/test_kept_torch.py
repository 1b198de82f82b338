# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that meron.torch of earlier versions wrote: a run continues with their bits."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import ranks
import torch
from cases import VERSIONS, expected_of, folder_of
from torch_cases import CASES, EXTRA, NAME, RANK, SAVED, SEED, TENSORS, Records, Run, save

import meron
import meron.torch as mt

KEPT = [(version, name) for version in VERSIONS for name in CASES]
kept = pytest.mark.parametrize(("version", "name"), KEPT)


def load(folder: Path, name: str) -> Run:
    run = Run(CASES[name])
    run.train(0, 1)  # what a load replaces
    loaded = mt.load(folder, None, run.model, run.optimizer, scheduler=run.scheduler)
    assert (loaded.step, loaded.extra) == (SAVED, EXTRA)
    assert loaded.tensors.keys() == TENSORS.keys()
    for key, tensor in TENSORS.items():
        assert torch.equal(loaded.tensors[key], tensor), key
    return run


def resume(folder: Path, name: str, expected: Records) -> None:
    run = load(folder, name)
    assert run.record() == expected["saved"]
    run.train(SAVED, SAVED + 1)
    found, wanted = run.record(), expected["next"]
    if not CASES[name].exact:
        assert_close(found["bits"], wanted["bits"])
        del found["bits"]
    assert {key: wanted[key] for key in found} == found


def assert_close(found: dict[str, str], wanted: dict[str, str]) -> None:
    """Bits of f32, but for an integer."""
    assert found.keys() == wanted.keys()
    assert found["passes"] == wanted["passes"]
    for name in found.keys() - {"passes"}:
        ours, theirs = (
            np.frombuffer(bytes.fromhex(bits), "<f4") for bits in (found[name], wanted[name])
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7, err_msg=name)


@kept
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_continues_with_the_bits_of_the_one_that_was_saved(
    version: str, name: str, count: int
) -> None:
    ranks.call(count, resume, folder_of(version, name), name, expected_of(version, name))


def load_and_save(folder: Path, name: str, target: Path) -> None:
    run = load(folder, name)
    found = torch.rand(5)
    torch.manual_seed(SEED + RANK)
    before = torch.get_rng_state()
    assert torch.equal(torch.rand(5), found)
    torch.set_rng_state(before)
    save(run, target)


@kept
def test_what_is_loaded_is_saved_again_without_a_difference(
    version: str, name: str, tmp_path: Path
) -> None:
    """Masters and random numbers too."""
    ranks.call(2, load_and_save, folder_of(version, name), name, tmp_path)
    command = [os.environ["MERON_COMMAND"], "checkpoint", "diff", "--json"]
    done = subprocess.run(
        [*command, folder_of(version, name), tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)


@kept
def test_values_are_read_without_a_context(version: str, name: str) -> None:
    saved = expected_of(version, name)["saved"]["bits"]
    with meron.open_checkpoint(folder_of(version, name), NAME) as opened:
        for tensor in ("layers.0.weight", "layers.1.bias", "frozen"):
            assert np.ascontiguousarray(opened.read(tensor)).tobytes().hex() == saved[tensor]
