# SPDX-License-Identifier: Apache-2.0
"""Where PyTorch is not installed, every package that needs it says how to get it."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEEDING = ("torch", "zero", "lightning", "checkpointing", "convert")


@pytest.mark.parametrize("package", NEEDING)
def test_the_error_names_the_install_of_torch(package: str) -> None:
    program = f"""
import sys
sys.modules["torch"] = None  # as if it were not installed
import meron
try:
    import meron.{package}
except ModuleNotFoundError as error:
    assert error.name == "torch", error.name
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert package in done.stdout and "pip install torch" in done.stdout
