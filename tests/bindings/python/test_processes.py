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
from conftest import DEADLINE, Processes

TRAIN = textwrap.dedent(
    """
    import hashlib, numpy as np, meron
    with meron.open(timeout=20) as ctx:
        assert ctx.transport == "shm" or ctx.world_size == 1
        weight = ctx.param("w", (33, 7))
        bias = ctx.param("b", (5,), "bf16")
        unit = ctx.unit("u", [weight, bias])
        with ctx.update([unit]) as update:
            update.write(weight, np.linspace(-1, 1, weight.size).reshape(weight.shape))
            update.write(bias, np.ones(5))
        optimizer = ctx.adamw([unit], lr=0.01, max_norm=1.0)
        for step in range(5):
            with unit.gather() as full:
                grad = np.sin(full[weight] * (step + 1))
            unit.gradient(weight)[:] = grad
            unit.reduce().wait()
            optimizer.step()
        with unit.gather("copy") as full:
            digest = hashlib.sha256(full[weight].tobytes()).hexdigest()
        loss = np.array([ctx.rank], np.float32)
        assert ctx.world.all_reduce(loss)[0] == sum(range(ctx.world_size))
        print(digest)
    """
)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_gives_equal_bits(count: int) -> None:
    outputs = Processes(count, TRAIN).finish()
    assert len(set(outputs)) == 1
    if count == 2:  # the mean of two equal numbers is exact; that of three is rounded
        assert outputs == Processes(1, TRAIN).finish() * count


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


def test_a_wrong_token_is_refused() -> None:
    source = textwrap.dedent(
        """
        import meron
        try:
            meron.open(timeout=2)
        except (meron.AuthError, meron.DeadlineError) as error:
            print(type(error).__name__)
        """
    )
    for token in ("", "12"):
        assert set(Processes(2, source, MERON_TOKEN=token).finish()) == {"AuthError\n"}


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


def test_under_meron_run(tmp_path: Path) -> None:
    command = os.environ.get("MERON_COMMAND")
    if not command:
        pytest.skip("MERON_COMMAND does not say where the meron command is")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = subprocess.run(
        [command, "run", "-n", "2", "--tag", "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split()[-1] for line in done.stdout.splitlines()]
    assert len(lines) == 2
    assert len(set(lines)) == 1
