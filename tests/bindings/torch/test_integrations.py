# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer on Meron, by the package `deepspeed` of meron.zero.dropin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("transformers", "accelerate", "safetensors"):
    pytest.importorskip(package, reason=f"{package} is not installed")

PROGRAM = Path(__file__).parent / "dropin" / "trainer.py"


def run(ranks: int, *arguments: object) -> None:
    from meron.zero import dropin

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(PROGRAM), *map(str, arguments)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": dropin.python_path(os.environ.get("PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    for rank in range(ranks):
        assert f"rank {rank} done" in done.stdout


def test_trainer_at_each_stage_and_resumed_at_another_size(tmp_path: Path) -> None:
    run(2, tmp_path, "train")
    run(1, tmp_path, "resume")
