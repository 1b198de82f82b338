# SPDX-License-Identifier: Apache-2.0
"""`meron run`: how a job ends, what is left of it, and who is named as the cause."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from command import (
    MERON,
    PATIENCE,
    TELL_PID,
    guard_of,
    is_alive,
    meron,
    python,
    read_numbers,
    start,
    supervisor_of,
    wait_until,
)


def wait_until_gone(pids: Iterable[int], seconds: float) -> None:
    wait_until("all are gone", lambda: not any(map(is_alive, pids)), seconds)


# ---- Grace period, timeout and a killed launcher -------------------------------------------------

SLEEP = (
    TELL_PID
    + """
tell("ready", 1)
time.sleep(100)
"""
)

SLEEP_THROUGH_TERM = (
    TELL_PID
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell("ready", 1)
time.sleep(100)
"""
)


def start_sleepers(code: str, folder: Path, *options: str) -> tuple[subprocess.Popen, dict]:
    launcher = start(
        "run", "-n", "3", *options, "--", *python(code), str(folder), stderr=subprocess.PIPE
    )
    read_numbers(folder, "ready", 3)
    return launcher, read_numbers(folder, "pid", 3)


def test_a_killed_rank_ends_the_job_after_the_grace_period(tmp_path):
    launcher, pids = start_sleepers(SLEEP, tmp_path, "--grace", "1")
    begin = time.monotonic()
    os.kill(pids[2], signal.SIGKILL)
    errors = launcher.communicate(timeout=PATIENCE)[1].decode()
    assert 1 <= time.monotonic() - begin < 5.5  # no KILL was needed
    assert launcher.returncode == 128 + signal.SIGKILL
    assert f"rank 2 (pid {pids[2]}) was killed by SIGKILL" in errors
    assert "ranks 0-1 did not end within 1 s: sending SIGTERM" in errors
    assert "of the others, ranks 0-1 were killed by SIGTERM" in errors
    assert not any(is_alive(pid) for pid in pids.values())


def test_survivors_that_end_by_themselves_are_left_to_it(tmp_path):
    code = (
        TELL_PID
        + """
tell("ready", 1)
if rank == "0":
    time.sleep(100)
time.sleep(1)
"""
    )
    launcher, pids = start_sleepers(code, tmp_path)
    begin = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)
    errors = launcher.communicate(timeout=PATIENCE)[1].decode()
    assert time.monotonic() - begin < 5  # the grace period was not waited for
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "of the others, ranks 1-2 exited with code 0" in errors


def test_ranks_that_ignore_term_are_killed(tmp_path):
    launcher, pids = start_sleepers(SLEEP_THROUGH_TERM, tmp_path, "--grace", "0")
    os.kill(pids[1], signal.SIGSTOP)  # one that is stopped must not be forgotten either
    begin = time.monotonic()
    os.kill(pids[0], signal.SIGKILL)
    errors = launcher.communicate(timeout=PATIENCE)[1].decode()
    assert 5 <= time.monotonic() - begin < 9
    assert "ranks 1-2 did not end within 5 s of SIGTERM: sending SIGKILL" in errors
    assert launcher.returncode == 128 + signal.SIGKILL
    assert not any(is_alive(pid) for pid in pids.values())


def test_timeout(tmp_path):
    begin = time.monotonic()
    launcher, pids = start_sleepers(SLEEP, tmp_path, "--timeout", "1.5")
    errors = launcher.communicate(timeout=PATIENCE)[1].decode()
    assert 1.5 <= time.monotonic() - begin < 6
    assert launcher.returncode == 124
    assert "the job did not end within 1.5 s" in errors
    assert not any(is_alive(pid) for pid in pids.values())


@pytest.mark.parametrize("trial", range(5))
def test_no_rank_outlives_a_killed_launcher(tmp_path, trial):
    launcher, pids = start_sleepers(SLEEP_THROUGH_TERM, tmp_path)
    launcher.kill()
    launcher.wait(PATIENCE)
    wait_until_gone(pids.values(), 1.0)


def test_a_launcher_killed_while_it_starts_leaves_no_process(tmp_path):
    code = f"echo $$ > {tmp_path}/pid$MERON_RANK; exec sleep 100"
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        launcher = start("run", "-n", "16", "--", "sh", "-c", code)
        time.sleep(delay)
        launcher.kill()
        launcher.wait(PATIENCE)
        time.sleep(0.3)  # whoever was forked has had the time to write its pid
        pids = [int(path.read_text() or 0) for path in tmp_path.glob("pid*")]
        wait_until_gone(pids, 1.0)


def test_ends_processes_that_a_rank_leaves_behind(tmp_path):
    # The rank's child outlives it, in a session of its own, and does not mind TERM.
    code = (
        TELL_PID
        + """
child = os.fork()
if child == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell("child", os.getpid())
    time.sleep(100)
while not (folder / f"child{rank}").exists():
    time.sleep(0.01)
"""
    )
    begin = time.monotonic()
    done = meron("run", "-n", "2", "--tag", "--", *python(code), str(tmp_path))
    assert done.returncode == 0
    assert time.monotonic() - begin < 10
    assert not any(map(is_alive, read_numbers(tmp_path, "child", 2).values()))


def test_a_rank_that_ends_well_early_is_no_failure():
    done = meron("run", "-n", "2", "--grace", "0", "--", "sh", "-c", "sleep 0.$MERON_RANK")
    assert (done.returncode, done.stderr) == (0, "")


# ---- Processes that the ranks start --------------------------------------------------------------

# A trainer that is no child of the launcher: the rank is a shell. It starts helpers: a worker, as a
# data loader does, and one that has left for a session of its own. None of them minds TERM.
TRAINER = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
folder, rank = pathlib.Path(sys.argv[1]), int(os.environ["MERON_RANK"])
if os.fork() == 0:
    rank += 10
    if os.fork() == 0:
        rank += 10
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
(folder / f"pid{rank}").write_text(f"{os.getpid()}\\n")
time.sleep(100)
"""


def start_wrapped_trainers(folder: Path, *options: str, **how) -> tuple[subprocess.Popen, list]:
    program = folder / "trainer.py"
    program.write_text(TRAINER)
    words = ["sh", "-c", f'"{python("")[0]}" "{program}" "{folder}"; true']
    launcher = start("run", "-n", "2", *options, "--", *words, **how)
    return launcher, list(read_numbers(folder, "pid", 6).values())


@pytest.mark.parametrize("victim", ["launcher", "guard", "supervisor", "group", "stopped launcher"])
def test_nothing_outlives_a_killed_launcher_also_no_grandchild(tmp_path, victim):
    launcher, pids = start_wrapped_trainers(
        tmp_path, start_new_session=True, stderr=subprocess.PIPE
    )
    if victim in ("guard", "supervisor"):
        victim_of = {"guard": guard_of, "supervisor": supervisor_of}[victim]
        os.kill(victim_of(launcher), signal.SIGKILL)
    elif victim == "group":
        os.killpg(launcher.pid, signal.SIGKILL)
    else:
        if victim == "stopped launcher":
            os.killpg(launcher.pid, signal.SIGSTOP)
        launcher.kill()
    errors = launcher.communicate(timeout=PATIENCE)[1].decode()
    wait_until_gone(pids, 2.0)
    if victim in ("guard", "supervisor"):
        assert launcher.returncode == 128 + signal.SIGKILL
        assert "the process that supervises the ranks" in errors


def test_a_stop_signal_ends_trainers_behind_a_shell(tmp_path):
    launcher, pids = start_wrapped_trainers(tmp_path)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not any(map(is_alive, pids))


def test_a_job_that_ends_leaves_no_daemon():
    # The shell ends well at once; what it started in a session of its own has a child too.
    code = "setsid -f sh -c 'trap \"\" TERM; sleep 99.25; true'; exit 0"
    assert meron("run", "-n", "2", "--", "sh", "-c", code).returncode == 0
    lines = [
        path.read_bytes()
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if is_alive(int(path.parent.name))
    ]
    assert not any(b"99.25" in line for line in lines)


def test_a_stopped_neighbour_causes_no_hang_up_when_a_job_ends():
    """The kernel sends HUP to a process group that is orphaned and has a stopped member."""
    script = f"sleep 100 & kill -STOP $!; '{MERON}' run -n 2 -- true; kill -KILL $!; echo survived"
    done = subprocess.run(
        ["sh", "-c", script],
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (0, "survived\n"), done
