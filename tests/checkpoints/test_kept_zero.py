# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that meron.zero of earlier versions wrote: a run continues with their bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from cases import VERSIONS, expected_of, folder_of
from torch_model import Model, bits_of
from zero_cases import CASES, CLIENT, RANK, SAVED, SEED, Records, Run, plain

from meron.zero import weight_files, zero_to_fp32

KEPT = [(version, name) for version in VERSIONS for name in CASES]
kept = pytest.mark.parametrize(("version", "name"), KEPT)
TAG = f"global_step{SAVED}"


def load(folder: Path, name: str) -> Run:
    run = Run(CASES[name])
    run.train(4, 5)  # what a load replaces
    path, client = run.engine.load_checkpoint(folder)
    assert path == str(folder / TAG)
    assert plain(client) == plain(CLIENT)
    return run


def resume(folder: Path, name: str, expected: Records) -> None:
    run = load(folder, name)
    assert run.record() == expected["saved"]
    run.train(SAVED, SAVED + 1)
    assert run.record() == expected["next"]


@kept
@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_engine_continues_with_the_bits_of_the_one_that_was_saved(
    version: str, name: str, count: int
) -> None:
    ranks.call(count, resume, folder_of(version, name), name, expected_of(version, name))


def load_and_save(folder: Path, name: str, target: Path) -> None:
    run = load(folder, name)
    state = torch.get_rng_state()
    found = torch.rand(5)
    torch.manual_seed(SEED + RANK)
    assert torch.equal(torch.rand(5), found)
    torch.set_rng_state(state)
    run.engine.save_checkpoint(target, client_state=CLIENT)


@kept
def test_what_is_loaded_is_saved_again_without_a_difference(
    version: str, name: str, tmp_path: Path
) -> None:
    """The saved random numbers of each rank, too."""
    ranks.call(2, load_and_save, folder_of(version, name), name, tmp_path)
    assert command("diff", folder_of(version, name), tmp_path, "--json")["equal"]


def masters_of(version: str, name: str) -> dict[str, str]:
    """Bits of the f32 weights, tied ones under both names."""
    bits = expected_of(version, name)["saved"]["bits"]
    found = {key.removesuffix(".master"): bits[key] for key in bits if key.endswith(".master")}
    return {**found, "last.weight": found["first.weight"]}


def assert_bits(weights: dict[str, torch.Tensor], wanted: dict[str, str]) -> None:
    found = {name: bits_of(weights[name]) for name in weights if name != "passes"}
    assert found == wanted


@kept
def test_the_functions_of_zero_to_fp32_read_the_masters(
    version: str, name: str, tmp_path: Path
) -> None:
    folder, wanted = folder_of(version, name), masters_of(version, name)
    assert_bits(zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(folder), wanted)
    model = zero_to_fp32.load_state_dict_from_zero_checkpoint(Model(), folder, TAG)
    assert_bits(model.state_dict(), wanted)
    for safe, file in ((False, "pytorch_model.bin"), (True, "model.safetensors")):
        zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(
            folder, tmp_path, safe_serialization=safe
        )
        if safe:
            weights = dict(weight_files.read_weights(tmp_path / file))
            del wanted["last.weight"]  # is written once
        else:
            weights = torch.load(tmp_path / file, weights_only=True)
        assert_bits(weights, wanted)


@kept
def test_the_script_zero_to_fp32_reads_the_masters_without_meron(
    version: str, name: str, tmp_path: Path
) -> None:
    folder = folder_of(version, name)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MERON_LIBRARY")}
    script = tmp_path / "zero_to_fp32.py"  # alone, as save_checkpoint writes it
    script.write_bytes(Path(zero_to_fp32.__file__).read_bytes())
    subprocess.run([sys.executable, script, folder, tmp_path], check=True, env=environment)
    weights = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    assert_bits(weights, masters_of(version, name))


@kept
def test_the_command_reads_exports_and_reshards(version: str, name: str, tmp_path: Path) -> None:
    folder, wanted = folder_of(version, name), masters_of(version, name)
    del wanted["last.weight"]  # is written once
    command("verify", folder, "--json")
    (listed,) = command("list", folder, "--json")
    assert (listed["name"], listed["complete"]) == (TAG, True)
    inspected = command("inspect", folder, "--json")
    assert (inspected["step"], inspected["world"]) == (SAVED, 2)
    command("export", folder, tmp_path / "model", "--dtype", "f32")
    assert_bits(dict(weight_files.read_weights(tmp_path / "model" / "model.safetensors")), wanted)
    command("reshard", folder, tmp_path / "run" / TAG, "--ranks", "3")
    assert command("diff", folder, tmp_path / "run", "--json")["equal"]
    ranks.call(1, resume_resharded, tmp_path / "run", name, expected_of(version, name))


def resume_resharded(folder: Path, name: str, expected: Records) -> None:
    assert load(folder, name).record() == expected["saved"]


def command(*words: object) -> Any:
    """The output of `meron checkpoint`, as JSON if that is asked for."""
    done = subprocess.run(
        [os.environ["MERON_COMMAND"], "checkpoint", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if "--json" in words else {}
