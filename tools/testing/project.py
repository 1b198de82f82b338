# SPDX-License-Identifier: Apache-2.0
"""The tree, its presets and the machine."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANITIZERS = ("asan", "tsan")
PRESETS = ("release", *SANITIZERS)
# `--changed` builds the first of these that exists.
CHANGED_PRESETS = ("dev", "release")
CORES = len(os.sched_getaffinity(0))
# Most tests wait most of their time: for ranks, for drives, for deadlines.
TESTS_AT_A_TIME = 2 * CORES


def known_presets() -> list[str]:
    known = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    return [preset["name"] for preset in known if not preset.get("hidden")]


def build_folder(preset: str) -> Path:
    return ROOT / "build" / preset


def results_of(preset: str) -> Path:
    """Returns the folder of the JUnit files that tests leave."""
    return build_folder(preset) / "test-results"


def labels(*names: str) -> str:
    """Returns the expression by which ctest selects any of the labels."""
    return f"^({'|'.join(names)})$"


def tests_at_a_time(arguments: argparse.Namespace) -> int:
    return arguments.jobs or TESTS_AT_A_TIME


def sources(*patterns: str) -> list[str]:
    """Lists files under version control, and new ones that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        listing = subprocess.CompletedProcess(command, 127, "", "")
    if listing.returncode == 0:
        found = [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]
        return sorted(set(found))
    paths = {path.relative_to(ROOT) for pattern in patterns for path in ROOT.rglob(pattern)}
    made = ("build", ".venv", ".gpu-pack")
    return sorted(str(path) for path in paths if path.parts[0] not in made)
