#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts gpt/program.py, which --help describes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1]


def share_cores() -> None:
    """The ranks of a host share its cores: else each would start a thread for every core.

    Torch looks at this once, when it is first imported.
    """
    ranks = int(os.environ.get("MERON_LOCAL_WORLD_SIZE", "1"))
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def repeat_sums() -> None:
    """On a GPU: cuBLAS reads this when torch first multiplies there."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


if __name__ == "__main__":
    share_cores()
    repeat_sums()
    sys.path.insert(1, str(EXAMPLES))  # where the package `common` is
    from gpt.program import main

    sys.exit(main())
