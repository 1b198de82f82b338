# SPDX-License-Identifier: Apache-2.0
"""Example 04: what does not fit into memory trains to the same bits from a drive."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, needs_torch

# The folder that tests run in is on a drive; one for temporary files need not be.
DRIVE = Path.cwd()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    script = ROOT / "examples/04_offload/train.py"
    command = [sys.executable, "-B", str(script), *map(str, arguments)]
    # The example finds the package of its checkout by itself.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
    )


def trained(folder: Path, *arguments: object) -> tuple[dict[str, Any], str]:
    file = folder / "run.json"
    before = sorted(DRIVE.iterdir())
    done = run("--drive", DRIVE, "--json", file, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(DRIVE.iterdir()) == before
    result: dict[str, Any] = json.loads(file.read_text())
    assert result["equal_bits"] is True
    return result, done.stdout


@functools.cache
def trained_by(ranks: int) -> tuple[dict[str, Any], str]:
    """Two steps: the second has the states that the first has left on the drive."""
    with tempfile.TemporaryDirectory() as folder:
        return trained(Path(folder), "-n", ranks, "--steps", 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_it_trains_under_two_fifths_of_its_states(ranks: int) -> None:
    result, text = trained_by(ranks)
    assert result["held_bytes"] <= result["limit_bytes"] == int(0.4 * result["states_bytes"])
    assert len(result["losses"]) == 2
    if os.geteuid() != 0 and not result["enforced"]:
        pytest.skip("memory cgroups take root: the limit was compared, not enforced")
    if result["enforced"]:
        assert "MiB left of its limit" in text  # what it was told without the drive
        assert 0 < result["used_bytes"] <= result["limit_bytes"]


def test_with_params_on_the_drive_too(tmp_path: Path) -> None:
    states, _ = trained_by(2)
    both, _ = trained(tmp_path, "--steps", 2, "--params")
    assert both["losses"] == states["losses"]


@needs_torch
def test_with_pytorch(tmp_path: Path) -> None:
    result, _ = trained(tmp_path, "--lang", "torch", "--steps", 2)
    assert len(result["losses"]) == 2
    assert result["held_bytes"] < 0.6 * result["states_bytes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--drive", "/nowhere"), "no such folder"),
        (("-n", "0"), "at least 1"),
        (("--params", "--lang", "torch"), "offload_param"),
        (("--lang", "cobol"), "invalid choice"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
