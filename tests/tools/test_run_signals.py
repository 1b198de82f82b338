# SPDX-License-Identifier: Apache-2.0
"""`meron run`: signals reach the ranks, each once."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from command import (
    MERON,
    PATIENCE,
    TELL_PID,
    meron,
    python,
    read_numbers,
    start,
)

COUNT_SIGNALS = (
    TELL_PID
    + """
received = 0
def count(number, frame):
    global received
    received += 1
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, count)
tell("ready", 1)
while not received:
    time.sleep(0.01)
time.sleep(0.5)  # a second one would arrive now
tell("received", received)
"""
)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_a_signal_reaches_every_rank_once(name, tmp_path):
    launcher = start("run", "-n", "3", "--", *python(COUNT_SIGNALS), str(tmp_path))
    read_numbers(tmp_path, "ready", 3)
    launcher.send_signal(getattr(signal, f"SIG{name}"))
    assert read_numbers(tmp_path, "received", 3) == {0: 1, 1: 1, 2: 1}
    assert launcher.wait(PATIENCE) == 0  # the ranks took it and ended well


def test_ctrl_c_on_a_terminal_reaches_every_rank_once(tmp_path):
    words = [MERON, "run", "-n", "3", "--", *python(COUNT_SIGNALS), str(tmp_path)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(MERON, words)
    read_numbers(tmp_path, "ready", 3)
    # Within 20 ms of the start the launcher passes it on too, as ranks may have missed it.
    time.sleep(0.1)
    os.write(terminal, b"\x03")
    assert read_numbers(tmp_path, "received", 3) == {0: 1, 1: 1, 2: 1}
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_ctrl_c_reaches_ranks_in_a_session_of_their_own(tmp_path):
    code = "import os\nos.setsid()\n" + COUNT_SIGNALS
    words = [MERON, "run", "-n", "2", "--", *python(code), str(tmp_path)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(MERON, words)
    read_numbers(tmp_path, "ready", 2)
    os.write(terminal, b"\x03")
    assert read_numbers(tmp_path, "received", 2) == {0: 1, 1: 1}
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_ranks_have_the_signals_that_the_launcher_was_given():
    code = """
import signal
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)
"""
    done = meron("run", "-n", "1", "--", *python(code))
    assert done.stdout == "[]\nFalse\n"
    ignoring = f"import os, signal; signal.signal(1, signal.SIG_IGN); os.execv({MERON!r}, %r)"
    words = [MERON, "run", "-n", "1", "--", *python(code)]
    done = subprocess.run(
        [sys.executable, "-c", ignoring % words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "[]\nTrue\n"  # nohup keeps working


def test_signals_ignored_at_the_start_end_nothing():
    """As under nohup, and in a shell's background job."""
    words = [MERON, "run", "-n", "2", "--", "sh", "-c", "echo ready; sleep 1; echo done"]
    ignoring = (
        "import os, signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2)]; "
        f"os.execv({MERON!r}, {words})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", ignoring], stdout=subprocess.PIPE, text=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
        job.send_signal(signal.SIGHUP)
        job.send_signal(signal.SIGINT)
        out, _ = job.communicate(timeout=PATIENCE)
        assert (job.returncode, out.count("done")) == (0, 2)


def test_an_ignored_sigchld_hides_nothing():
    words = [MERON, "run", "-n", "2", "--", "sh", "-c", "exit 9"]
    ignoring = f"import os, signal; signal.signal(17, signal.SIG_IGN); os.execv({MERON!r}, {words})"
    assert subprocess.run([sys.executable, "-c", ignoring], timeout=PATIENCE).returncode == 9
