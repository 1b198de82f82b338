# SPDX-License-Identifier: Apache-2.0
"""`meron run` and the library together: who failed first, and what the others hear of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time

import pytest

PATIENCE = 60.0  # seconds
GRACE = 30.0


def run(source: str, count: int = 3) -> tuple[subprocess.CompletedProcess[str], float]:
    """A job, and how long it took."""
    words = [os.environ["MERON_COMMAND"], "run", "-n", str(count), "--grace", str(GRACE), "--"]
    begin = time.monotonic()
    done = subprocess.run(
        [*words, sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done, time.monotonic() - begin


# The rank that raises takes long to end, as one does that has much to free.
RAISES = """
    import atexit, os, sys, time, meron
    with meron.open() as ctx:
        if ctx.rank == 1:
            atexit.register(time.sleep, 0.5)
        ctx.world.barrier()
        if ctx.rank == 1:
            raise SystemExit(7)
        try:
            ctx.world.barrier()
        except meron.PeerClosedError as error:
            assert error.peer == 1
            # Rank 2 ends for what rank 0 has found.
            if ctx.rank == 2:
                time.sleep(0.1)
            sys.exit(4)
"""


def test_the_rank_that_raised_is_named_though_its_victims_end_first() -> None:
    done, _ = run(RAISES)
    assert re.search(r"meron run: rank 1 \(pid \d+\) exited with code 7\n", done.stderr), (
        done.stderr
    )
    assert "of the others, ranks 0 and 2 exited with code 4" in done.stderr
    assert done.returncode == 7


# The victim is named after all where the rank that it waited for ends well, or does not end.
@pytest.mark.parametrize("end", ["sys.exit(0)", "time.sleep(3); sys.exit(5)"])
def test_a_rank_that_fails_for_one_that_did_not_is_named(end: str) -> None:
    source = f"""
    import sys, time, meron
    ctx = meron.open()
    rank = ctx.rank
    ctx.world.barrier()
    if rank == 1:
        ctx.close()
        {end}
    try:
        ctx.world.barrier()
    except meron.PeerClosedError:
        sys.exit(4)
    """
    done, _ = run(source, 2)
    assert re.search(r"meron run: rank 0 \(pid \d+\) exited with code 4", done.stderr), done.stderr
    assert ("for what rank 1 did, which still runs" in done.stderr) == ("sleep" in end)
    assert done.returncode == 4


@pytest.mark.parametrize(
    ("dead", "end", "told"),
    [
        (1, "os._exit(3)", "exited with code 3"),
        (0, "os._exit(3)", "exited with code 3"),
        (2, "os.kill(os.getpid(), 9)", "was killed by signal 9"),
        (1, "os._exit(0)", "exited with code 0"),
    ],
)
def test_ranks_hear_at_once_of_one_that_died_before_they_met(
    dead: int, end: str, told: str
) -> None:
    source = f"""
    import os, sys, time
    rank = int(os.environ["MERON_RANK"])
    if rank == {dead}:
        {end}
    import meron
    begin = time.monotonic()
    try:
        meron.open()
    except meron.PeerDeadError as error:
        assert error.peer == {dead}
        assert time.monotonic() - begin < 2
        os.write(1, f"{{error}}\\n".encode())
        sys.exit(6)
    """
    done, took = run(source)
    assert took < GRACE / 2
    assert len(done.stdout.splitlines()) == 2, done.stderr
    for line in done.stdout.splitlines():
        assert f"rank {dead} {told} before the ranks met" in line
    if told != "exited with code 0":
        assert re.search(rf"meron run: rank {dead} \(pid", done.stderr)


def test_a_later_rendezvous_reports_a_rank_that_has_ended() -> None:
    source = """
    import meron, os, sys
    with meron.open() as ctx:
        ctx.world.barrier()
    if os.environ["MERON_RANK"] == "1":
        sys.exit(0)
    try:
        meron.open()
    except meron.PeerDeadError as error:
        print(error)
    """
    done, took = run(source)
    assert done.returncode == 0, done.stderr
    assert took < GRACE / 2
    assert done.stdout.count("rank 1 exited with code 0 before the ranks met") == 2
