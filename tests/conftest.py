# SPDX-License-Identifier: Apache-2.0
"""Lets `pytest tests/...` use the newer of the builds release and dev. CTest names one itself."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# CTest sets what a test needs. Another build may be newer, and not complete.
GIVEN = ("MERON_LIBRARY", "MERON_COMMAND", "MERON_BUILD", "MERON_TEST_BUILD")


def pytest_configure() -> None:
    if any(name in os.environ for name in GIVEN):
        return
    # A library with a sanitizer ends a Python that was not started with the sanitizer's runtime.
    libraries = [ROOT / "build" / preset / "capi" / "libmeron.so" for preset in ("release", "dev")]
    built = max(filter(Path.exists, libraries), key=lambda path: path.stat().st_mtime, default=None)
    if built is None:
        return  # the tests that need it say so
    os.environ["MERON_LIBRARY"] = str(built)
    os.environ["MERON_COMMAND"] = str(built.parents[1] / "tools" / "meron" / "meron")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    paths = [str(ROOT / "bindings" / "python"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
