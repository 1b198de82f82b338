# SPDX-License-Identifier: Apache-2.0
"""Example 06: published weights are trained further by any number of ranks, and published again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, complaints, needs_torch

import meron

pytestmark = needs_torch


def run(folder: Path, ranks: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    script = ROOT / "examples/06_pretrained/finetune.py"
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(ranks), "--timeout", "300", "--"]
    command += [sys.executable, "-B", str(script), *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


def test_it_learns_on_any_number_of_ranks(tmp_path: Path) -> None:
    done = run(tmp_path, 2, "--steps", 40)
    assert (done.returncode, complaints(done)) == (0, []), done.stderr
    found = re.search(r"loss ([\d.]+) -> ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[2]) < 0.3 * float(found[1])
    with meron.open_checkpoint(tmp_path / "pretrained" / "published") as first:
        names = {name for _, name in first.tensors}
    published = tmp_path / "pretrained" / "published"
    again = run(tmp_path, 3, "--model", published, "--folder", tmp_path / "other", "--steps", 5)
    assert again.returncode == 0, again.stderr
    with meron.open_checkpoint(tmp_path / "other" / "finetuned") as second:
        assert {name for _, name in second.tensors} == names
        assert {entry["dtype"] for entry in second.tensors.values()} == {"BF16"}


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, 2, "--model", tmp_path / "nothing")
    assert done.returncode != 0
    assert "nothing" in done.stderr
