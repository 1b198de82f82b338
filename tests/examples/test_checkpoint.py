# SPDX-License-Identifier: Apache-2.0
"""Example 05: killed and resumed, the trainer has the losses of a run that was not stopped."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT


def test_it_goes_on_after_sigkill(language: str) -> None:
    script = ROOT / "examples/05_checkpoint/kill_and_resume.py"
    command = [sys.executable, "-B", str(script), "--lang", language]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("saved by 4 ranks") == 2
