# SPDX-License-Identifier: Apache-2.0
"""`meron run`: what is left of a job when its processes end, and who is named as the cause."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from command import (
    MERON,
    PATIENCE,
    guard_of,
    is_alive,
    meron,
    python,
    read_numbers,
    start,
    supervisor_of,
    wait_until,
)

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


def wait_until_gone(pids: list[int]) -> None:
    wait_until("all are gone", lambda: not any(map(is_alive, pids)), 2.0)


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
    wait_until_gone(pids)
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


def test_a_stopped_neighbour_brings_no_hang_up_when_a_job_ends():
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
