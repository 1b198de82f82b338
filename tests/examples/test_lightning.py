# SPDX-License-Identifier: Apache-2.0
"""Example 07: Trainer and Fabric have DDP's losses, and resume at another number of ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

pytest.importorskip("lightning", reason="tools/setup --integrations installs it")
SMALL = ("--width", 48, "--layers", 2, "--heads", 2, "--context", 32, "--lr", 0.003)


def start(script: str, *arguments: object, ranks: int = 2) -> subprocess.CompletedProcess[str]:
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(ranks), "--timeout", "300", "--"]
    command += [sys.executable, "-B", str(ROOT / "examples/07_lightning" / script)]
    command += [str(argument) for argument in arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def train(folder: Path, script: str, *arguments: object, ranks: int = 2) -> dict[str, Any]:
    """What --json wrote."""
    file = folder / "run.json"
    done = start(script, *SMALL, "--quiet", "--json", file, *arguments, ranks=ranks)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    run: dict[str, Any] = json.loads(file.read_text())
    return run


@pytest.mark.parametrize("script", ["train.py", "train_fabric.py"])
def test_losses_are_those_of_ddp(script: str, tmp_path: Path) -> None:
    ours = train(tmp_path, script, "--steps", 20, "--save", tmp_path / "run.ckpt")
    plain = train(tmp_path, script, "--steps", 20, "--strategy", "ddp")
    assert ours["losses"] == plain["losses"]
    assert ours["losses"][-1] < 0.8 * ours["losses"][0]
    again = train(tmp_path, script, "--steps", 24, "--resume", tmp_path / "run.ckpt", ranks=1)
    assert again["steps"] == 4 and again["losses"][0] < 0.8 * ours["losses"][0]


def test_bad_input(tmp_path: Path) -> None:
    for arguments, words in (
        (("--strategy", "meron_stage_4"), "meron_stage_3_offload_nvme"),
        (("--stpes", 3), "--help lists the options"),
        (("--data", tmp_path / "nowhere.txt"), "name files that have text in them"),
    ):
        done = start("train.py", *arguments)
        assert done.returncode == 2 and words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
