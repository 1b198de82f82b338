# SPDX-License-Identifier: Apache-2.0
"""Libraries that use DeepSpeed on Meron, by the package `deepspeed` of meron.zero.dropin."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("transformers", "accelerate", "safetensors"):
    pytest.importorskip(package, reason=f"{package} is not installed")

PROGRAMS = Path(__file__).parent / "dropin"


def run(ranks: int, program: str, *arguments: object) -> None:
    from meron.zero import dropin

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(PROGRAMS / program), *map(str, arguments)]
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
    run(2, "trainer.py", tmp_path, "train")
    run(1, "trainer.py", tmp_path, "resume")


def test_from_pretrained_under_an_active_config_gathers_no_state_dict(tmp_path: Path) -> None:
    run(2, "loading.py", tmp_path)


def test_embeddings_are_resized_at_stage_3(tmp_path: Path) -> None:
    run(2, "resizing.py", tmp_path)


def test_accelerate_saves_at_stage_3_as_it_documents(tmp_path: Path) -> None:
    run(2, "saving.py", tmp_path)


@pytest.mark.parametrize("what", ["full", "lora"])
def test_trl_fine_tunes_at_stage_3(tmp_path: Path, what: str) -> None:
    for package in ("trl", "datasets", *(["peft"] if what == "lora" else [])):
        pytest.importorskip(package, reason=f"{package} is not installed")
    run(2, "adapters.py", tmp_path, what)
