# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes that tests signal and kill, and a context of one rank."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

import meron

# A suite in the background (nohup, a shell's &) ignores SIGINT. With a handler here, the processes
# that tests interrupt start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DEADLINE = 20.0  # seconds of each operation


class Processes:
    """Ranks as processes of this host that run Python source.

    For tests of how processes end. Others use `ranks.call`.
    """

    def __init__(self, count: int, source: str, **environment: str) -> None:
        token = secrets.token_hex(32)
        self.ranks = [
            subprocess.Popen(
                [sys.executable, "-c", source],
                env={
                    **os.environ,
                    "MERON_RANK": str(rank),
                    "MERON_WORLD_SIZE": str(count),
                    "MERON_TOKEN": token,
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(count)
        ]

    def finish(self) -> list[str]:
        """Waits for all ranks, and returns their output. Fails if one fails."""
        outputs = []
        for rank, process in enumerate(self.ranks):
            out, err = process.communicate(timeout=3 * DEADLINE)
            assert process.returncode == 0, f"rank {rank}: {process.returncode}\n{out}\n{err}"
            outputs.append(out)
        return outputs


def run_python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python source in a new process."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
    )


@pytest.fixture
def alone() -> Iterator[meron.Context]:
    """A context of one rank."""
    with meron.open(0, 1, "self", timeout=DEADLINE) as context:
        yield context
