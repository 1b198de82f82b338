# SPDX-License-Identifier: Apache-2.0
"""Sharded models and engines that other threads use."""

from __future__ import annotations

from pathlib import Path

from conftest import run_ranks

PROGRAM = Path(__file__).parent / "hard" / "threads.py"


def test_threads_take_turns(tmp_path: Path) -> None:
    done = run_ranks(2, PROGRAM, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("case_an_engine_by_another_thread") == 2
