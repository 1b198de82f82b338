# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes, over shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import ranks
from conftest import DEADLINE, Processes
from trained import train

import meron

TRAINED = Path(__file__).with_name("trained.py")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_gives_equal_bits(count: int) -> None:
    digests = ranks.call(count, train)
    assert len(set(digests)) == 1
    if count == 2:  # the mean of two equal numbers is exact; that of three is rounded
        assert digests == ranks.call(1, train) * count


def test_a_killed_rank_is_named() -> None:
    source = textwrap.dedent(
        """
        import os, signal, time, meron
        with meron.open(timeout=20) as ctx:
            ctx.world.barrier()
            if ctx.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            begin = time.monotonic()
            try:
                ctx.world.barrier()
            except meron.PeerDeadError as error:
                assert error.peer == 1, error
                print(time.monotonic() - begin)
        """
    )
    world = Processes(2, source)
    out, err = world.ranks[0].communicate(timeout=DEADLINE)
    assert world.ranks[0].returncode == 0, err
    assert float(out) < 2.0
    assert world.ranks[1].wait() == -signal.SIGKILL
    world.ranks[1].communicate()


def open_with_token(token: str) -> None:
    os.environ["MERON_TOKEN"] = token
    with pytest.raises(meron.AuthError):
        meron.open(timeout=2)


@pytest.mark.parametrize("token", ["", "12"])
def test_a_wrong_token_is_refused(token: str) -> None:
    ranks.call(2, open_with_token, token)


def test_ctrl_c_in_a_process() -> None:
    source = textwrap.dedent(
        """
        import time, meron
        with meron.open(timeout=20) as ctx:
            if ctx.rank == 1:
                print("ready", flush=True)
                time.sleep(60)
            try:
                ctx.world.barrier()
            except KeyboardInterrupt:
                print("interrupted")
        """
    )
    world = Processes(2, source)
    assert world.ranks[1].stdout is not None
    world.ranks[1].stdout.readline()
    time.sleep(0.3)
    world.ranks[0].send_signal(signal.SIGINT)
    out, err = world.ranks[0].communicate(timeout=DEADLINE)
    assert (world.ranks[0].returncode, out) == (0, "interrupted\n"), err
    world.ranks[1].kill()
    world.ranks[1].communicate()


def test_under_meron_run() -> None:
    command = os.environ.get("MERON_COMMAND")
    if not command:
        pytest.skip("MERON_COMMAND does not say where the meron command is")
    done = subprocess.run(
        [command, "run", "-n", "2", "--tag", "--", sys.executable, str(TRAINED)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(lines) == 2
    assert len(set(lines)) == 1
