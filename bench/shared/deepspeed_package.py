# SPDX-License-Identifier: Apache-2.0
"""Installs DeepSpeed for the benchmarks that compare with it. It has a separate folder, because
Meron does not need its dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DEEPSPEED = "0.19.8"
# DeepSpeed, and those of its imports that torch has not installed.
PACKAGES = (
    f"deepspeed=={DEEPSPEED}",
    "einops",
    "hjson",
    "msgpack",
    "ninja",
    "packaging",
    "psutil",
    "py-cpuinfo",
    "pydantic",
    "tqdm",
)


def folder_of(build: Path) -> Path:
    return build / "bench-deepspeed"


def install_deepspeed(folder: Path) -> str | None:
    """The reason where it cannot be."""
    if (folder / "deepspeed").exists():
        return None
    print(f"Installing DeepSpeed {DEEPSPEED} into {folder} ...", file=sys.stderr)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
    words += ["--no-build-isolation", "--disable-pip-version-check", *PACKAGES]
    needed = ["pydantic_core", "annotated-types", "typing-inspection"]
    environment = {**os.environ, "DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"}
    base = [*words[:5], "--target", str(folder), "--disable-pip-version-check"]
    for command in (words, [*base, "pydantic", *needed]):
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True
        )
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed"
    return None
