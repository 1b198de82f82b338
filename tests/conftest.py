# SPDX-License-Identifier: Apache-2.0
"""Lets `pytest tests/...` use the newest build of the library. CTest names one itself."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    if "MERON_LIBRARY" in os.environ:
        return
    libraries = ROOT.glob("build/*/capi/libmeron.so")
    built = max(libraries, key=lambda path: path.stat().st_mtime, default=None)
    if built is None:
        return  # the tests that need it say so
    os.environ["MERON_LIBRARY"] = str(built)
    os.environ["MERON_COMMAND"] = str(built.parents[1] / "tools" / "meron" / "meron")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    paths = [str(ROOT / "bindings" / "python"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
