# SPDX-License-Identifier: Apache-2.0
"""torchsnapshot, in a folder of its own, if it can be installed and imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VERSION = "0.1.0"
PACKAGES = (f"torchsnapshot=={VERSION}", "aiofiles", "aiohttp", "nest_asyncio", "pyyaml", "psutil")


def snapshot_folder(build: Path) -> Path:
    return build / "bench-torchsnapshot"


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "pip failed"


def install_torchsnapshot(folder: Path) -> str | None:
    """The reason where it cannot be."""
    if not (folder / "torchsnapshot").exists():
        print(f"Installing torchsnapshot {VERSION} into {folder} ...", file=sys.stderr)
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        words += ["--target", str(folder), "--disable-pip-version-check", *PACKAGES]
        words += ["aiosignal", "attrs", "frozenlist", "multidict", "yarl", "idna", "propcache"]
        words += ["aiohappyeyeballs", "importlib_metadata<8", "zipp", "typing_extensions"]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            return last_line(done.stderr)
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(folder)]))
    probe = [sys.executable, "-c", "import torchsnapshot"]
    done = subprocess.run(
        probe, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    return None if done.returncode == 0 else last_line(done.stderr)
