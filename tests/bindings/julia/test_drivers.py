# SPDX-License-Identifier: Apache-2.0
"""Examples 05 and 06 in Julia. Each starts Julia several times, so this is a test of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

if shutil.which("julia") is None:
    pytest.skip("there is no julia on the PATH (tools/setup --julia)", allow_module_level=True)


@pytest.mark.parametrize(
    "driver", ("05_checkpoint/kill_and_resume.py", "06_pretrained/publish_and_tune.py")
)
def test_checkpoints_and_published_weights(driver: str) -> None:
    command = [sys.executable, "-B", str(EXAMPLES / driver), "--lang", "julia"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
