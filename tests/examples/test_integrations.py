# SPDX-License-Identifier: Apache-2.0
"""Examples 09 and 10: programs for DeepSpeed, of transformers and accelerate, unmodified."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

for package in ("torch", "transformers", "accelerate", "safetensors"):
    pytest.importorskip(package, reason=f"{package} is not installed")


def run(*command: object) -> str:
    from meron.zero import dropin

    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        env={**os.environ, "PYTHONPATH": dropin.python_path(os.environ.get("PYTHONPATH"))},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_trainer_learns_and_resumes_on_more_ranks(tmp_path: Path) -> None:
    losses = []
    for ranks, steps, begin in ((2, 20, "started"), (3, 30, "resumed")):
        script = ROOT / "examples/09_trainer/train.py"
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", ranks, script]
        text = run(*torchrun, "--folder", tmp_path, "--steps", steps, "--save-steps", 10)
        assert f"{begin}, {ranks} processes, {steps} steps" in text
        found = re.search(r"loss of evaluation ([\d.]+)", text)
        assert found is not None
        losses.append(float(found[1]))
    assert losses[1] < losses[0] < 3.5
    assert (tmp_path / "weights" / "model.safetensors").is_file()


def test_accelerate_goes_back_to_its_state(tmp_path: Path) -> None:
    script = ROOT / "examples/10_accelerate/train.py"
    launch = ["accelerate.commands.launch", "--use_deepspeed", "--num_processes", 2]
    launch += ["--zero_stage", 3, "--zero3_save_16bit_model", "true", "--main_process_port", 0]
    text = run(*launch, script, "--steps", 10, "--folder", tmp_path)
    assert "2 processes, DistributedType.DEEPSPEED" in text
    assert "from the saved state again: the same losses" in text
    found = re.search(r"loss ([\d.]+) -> ([\d.]+)", text)
    assert found is not None and float(found[2]) < float(found[1])
    assert (tmp_path / "weights" / "model.safetensors").is_file()
