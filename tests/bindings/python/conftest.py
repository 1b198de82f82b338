# SPDX-License-Identifier: Apache-2.0
"""How the tests make worlds: ranks as threads, ranks as processes, or one rank alone."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

import meron

# A suite that runs in the background (nohup, a shell's &) inherits an ignored SIGINT, as would the
# processes that tests interrupt. With a handler here, they start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DEADLINE = 20.0  # of every operation, in seconds: what hangs fails soon
T = TypeVar("T")
Body = Callable[[meron.Context], T]


def run_ranks(count: int, body: Callable[[meron.Context], T], **options: Any) -> list[T]:
    """Runs `body` on `count` ranks, which are threads; its results by rank.

    When ranks fail, the failure that is no mere consequence of another is raised.
    """
    job = secrets.token_hex(8)
    results: list[Any] = [None] * count
    failures: list[BaseException] = []

    def main(rank: int) -> None:
        try:
            with meron.open(
                rank, count, "local", job=job, **{"timeout": DEADLINE, **options}
            ) as ctx:
                results[rank] = body(ctx)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=main, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * DEADLINE)
        assert not thread.is_alive(), "a rank hangs"
    if failures:
        raise min(failures, key=lambda error: isinstance(error, meron.GroupError))
    return results


class Processes:
    """Ranks as processes of this host, each running the same Python source."""

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
        """The ranks' outputs; fails with what a failing rank wrote."""
        outputs = []
        for rank, process in enumerate(self.ranks):
            out, err = process.communicate(timeout=3 * DEADLINE)
            assert process.returncode == 0, f"rank {rank}: {process.returncode}\n{out}\n{err}"
            outputs.append(out)
        return outputs


def run_python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python source in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE,
    )


@pytest.fixture
def alone() -> Iterator[meron.Context]:
    """A context of a world of one rank."""
    with meron.open(0, 1, "self", timeout=DEADLINE) as context:
        yield context
