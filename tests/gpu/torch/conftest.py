# SPDX-License-Identifier: Apache-2.0
"""Skips everything where PyTorch or a CUDA device is missing."""

from __future__ import annotations

import pytest
from train import SKIPPED, why_not


def pytest_configure() -> None:
    """CTest reads 77 as skipped."""
    missing = why_not()
    if missing is not None:
        pytest.exit(f"skipped: {missing}", returncode=SKIPPED)
