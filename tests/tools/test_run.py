# SPDX-License-Identifier: Apache-2.0
"""`meron run`: how ranks start, what they get, how a job ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from command import (
    MERON,
    PATIENCE,
    children_of,
    is_alive,
    meron,
    python,
    read_numbers,
    start,
    supervisor_of,
    wait_until,
)

# Tells the test who it is: a file FOLDER/pid<rank> with the process id.
TELL_PID = """
import os, pathlib, signal, sys, time
rank = os.environ["MERON_RANK"]
folder = pathlib.Path(sys.argv[1])
def tell(name, value):
    (folder / f"{name}{rank}").write_text(f"{value}\\n")
tell("pid", os.getpid())
"""

# ---- Exit codes and errors ----------------------------------------------------------------------


def test_all_ranks_end_well():
    done = meron("run", "-n", "3", "true")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_code_is_that_of_the_first_rank_that_fails():
    # Rank 1 fails first; rank 2 fails later, as a survivor does.
    code = "case $MERON_RANK in 0) ;; 1) exit 3 ;; 2) sleep 0.5; exit 4 ;; esac"
    done = meron("run", "-n", "3", "--", "sh", "-c", code)
    assert done.returncode == 3
    assert re.search(r"rank 1 \(pid \d+\) exited with code 3", done.stderr)
    assert "rank 0 exited with code 0; rank 2 exited with code 4" in done.stderr


@pytest.mark.parametrize("name", ["KILL", "SEGV", "TERM"])
def test_a_rank_that_is_killed_is_named(name):
    code = f"[ $MERON_RANK != 2 ] || kill -{name} $$"
    done = meron("run", "-n", "4", "--", "sh", "-c", code)
    assert done.returncode == 128 + getattr(signal, f"SIG{name}")
    assert re.search(rf"rank 2 \(pid \d+\) was killed by SIG{name}", done.stderr)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "-n", "1", "no-such-program"], 127, "was not found in PATH"),
        (["run", "-n", "1", "./no-such-program"], 127, "does not exist"),
        (["run", "-n", "1", "/etc/passwd"], 126, "cannot be run"),
        (["run", "-n", "1", "/"], 126, "cannot be run"),
        (["run", "-n", "0", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "-1", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "4097", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "99999999999999999999", "true"], 2, "from 1 to 4096"),
        (["run", "-n", "two", "true"], 2, "--ranks"),
        (["run", "true"], 2, "--ranks is required"),
        (["run", "-n", "2"], 2, "which program"),
        (["run", "-n", "2", "--"], 2, "which program"),
        (["run", "-n", "2", "--nonsense", "true"], 2, "unknown option --nonsense"),
        (["run", "-n", "1", "--grace", "-1", "true"], 2, "--grace"),
        (["run", "-n", "1", "--timeout", "nan", "true"], 2, "--timeout"),
        (["run", "-n", "1", "--timeout", "1e300", "true"], 2, "--timeout"),
        (["nonsense"], 2, "nonsense"),
        ([], 2, "subcommand"),
    ],
)
def test_errors_say_what_is_wrong(words, code, message):
    done = meron(*words)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stdout == ""


def test_a_missing_interpreter_is_not_called_a_missing_program(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = meron("run", "-n", "2", str(script))
    assert done.returncode == 127
    assert "interpreter" in done.stderr


def test_help_and_version():
    for words in (["--help"], ["run", "--help"], ["info", "--help"], ["plan", "--help"]):
        done = meron(*words)
        assert done.returncode == 0
        assert "Examples:" in done.stdout
    assert re.fullmatch(r"meron \d+\.\d+\.\d+\n", meron("--version").stdout)


def test_results_that_cannot_be_written_are_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([MERON, "info"], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert b"standard output" in done.stderr


# ---- What ranks get -----------------------------------------------------------------------------


def test_arguments_arrive_as_they_were_given():
    words = ["-n", "3", "--tag", "[a,b]", "--", "x", "", "a b", "--help", "run"]
    code = "import json, sys; print(json.dumps(sys.argv[1:]))"
    for separator in ([], ["--"]):
        done = meron("run", "-n", "1", *separator, *python(code), *words)
        assert json.loads(done.stdout) == words


def test_a_program_may_have_the_name_of_a_subcommand(tmp_path):
    program = tmp_path / "info"
    program.write_text('#!/bin/sh\necho "mine"\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = meron("run", "-n", "1", "info", env={**os.environ, "PATH": path})
    assert done.stdout == "mine\n"


def test_each_rank_finds_its_place():
    code = """
import json, os
print(json.dumps({k: v for k, v in os.environ.items() if k.startswith("MERON_")}) + "\\n", end="")
"""
    outer = {**os.environ, "MERON_TOKEN": "of another job", "MERON_RANK": "77"}
    done = meron("run", "-n", "3", "--", *python(code), env=outer)
    ranks = {}
    for line in done.stdout.splitlines():
        variables = json.loads(line)
        assert variables["MERON_WORLD_SIZE"] == variables["MERON_LOCAL_WORLD_SIZE"] == "3"
        assert variables["MERON_LOCAL_RANK"] == variables["MERON_RANK"]
        assert "MERON_TOKEN" not in variables
        ranks[variables["MERON_RANK"]] = int(variables["MERON_TOKEN_FD"])
    assert sorted(ranks) == ["0", "1", "2"]
    assert all(fd > 2 for fd in ranks.values())


def test_ranks_share_the_cores():
    code = 'import os; os.write(1, os.environ["OMP_NUM_THREADS"].encode() + b"\\n")'
    outer = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    for ranks in (1, 2, 4 * cores):
        done = meron("run", "-n", str(ranks), "--", *python(code), env=outer)
        assert done.stdout.split() == [str(max(1, cores // ranks))] * ranks
    done = meron("run", "-n", "2", "--", *python(code), env={**outer, "OMP_NUM_THREADS": "7"})
    assert done.stdout.split() == ["7", "7"]


# Reads the token as a stream, so that a shared position would show; then tries to change it.
TOKEN = """
import os
fd = int(os.environ["MERON_TOKEN_FD"])
print(os.read(fd, 1000).decode() + "\\n", end="")
try:
    os.pwrite(fd, b"0", 0)
    print("changed\\n", end="")
except PermissionError:
    pass
"""


def test_the_token_is_one_per_job_and_sealed():
    tokens = []
    for _ in range(2):
        lines = meron("run", "-n", "4", "--", *python(TOKEN)).stdout.splitlines()
        assert len(lines) == 4
        assert len(set(lines)) == 1
        assert re.fullmatch(r"[0-9a-f]{64}", lines[0])
        tokens.append(lines[0])
    assert tokens[0] != tokens[1]


def test_the_token_is_nowhere_where_others_can_read_it(tmp_path):
    code = (
        TELL_PID
        + """
token = os.read(int(os.environ["MERON_TOKEN_FD"]), 100).decode()
(folder / f"token{rank}").write_text(token)
tell("done", 1)
time.sleep(60)
"""
    )
    launcher = start("run", "-n", "2", "--", *python(code), str(tmp_path))
    try:
        read_numbers(tmp_path, "done", 2)
        pids = [launcher.pid, *read_numbers(tmp_path, "pid", 2).values()]
        tokens = {(tmp_path / f"token{rank}").read_bytes() for rank in (0, 1)}
        assert len(tokens) == 1
        for pid in pids:
            for name in ("cmdline", "environ", "comm", "maps"):
                assert not any(t in Path(f"/proc/{pid}/{name}").read_bytes() for t in tokens)
    finally:
        launcher.terminate()
        launcher.wait(PATIENCE)


def test_nothing_else_of_the_launcher_is_inherited():
    code = """
import os
known = (os.environ["MERON_TOKEN_FD"], os.environ["MERON_BOARD_FD"])
for fd in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        target = os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        continue  # the listing's own
    if int(fd) > 2 and fd not in known:
        print(fd, target)
"""
    assert meron("run", "-n", "2", "--", *python(code), close_fds=True).stdout == ""


def test_standard_input_goes_to_rank_0_only():
    code = """
import os, sys
print(os.environ["MERON_RANK"] + ":" + sys.stdin.read() + "\\n", end="")
"""
    done = meron("run", "-n", "3", "--", *python(code), stdin="hello")
    assert sorted(done.stdout.splitlines()) == ["0:hello", "1:", "2:"]


def test_output_is_passed_through_untouched():
    code = """
import os
if os.environ["MERON_RANK"] == "1":
    os.write(1, bytes(range(256)) * 100)
"""
    assert meron("run", "-n", "2", "--", *python(code)).raw == bytes(range(256)) * 100


# ---- --as-deepspeed -----------------------------------------------------------------------------


def fake_python(folder: Path, text: str) -> dict[str, str]:
    """An environment in which python3 is a script."""
    script = folder / "python3"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": "/before"}


def test_as_deepspeed_puts_the_drop_in_first_on_the_path(tmp_path):
    environment = fake_python(tmp_path, 'echo a warning; echo "/the drop-in/$*"')
    code = 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $PYTHONPATH"'
    done = meron("run", "-n", "2", "--as-deepspeed", "--", "sh", "-c", code, env=environment)
    path = "/the drop-in/-m meron.zero.dropin:/before"
    expected = [f"{rank} 2 {rank} 2 127.0.0.1 {path}" for rank in range(2)]
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, expected), done.stderr
    code = "test $MASTER_PORT -gt 0 && echo $MASTER_PORT"
    done = meron("run", "-n", "2", "--as-deepspeed", "--", "sh", "-c", code, env=environment)
    assert done.returncode == 0 and len(set(done.stdout.split())) == 1


def test_as_deepspeed_without_the_package_says_what_to_install(tmp_path):
    environment = fake_python(tmp_path, "exit 1")
    done = meron("run", "-n", "1", "--as-deepspeed", "true", env=environment)
    assert done.returncode == 2
    assert "`python3 -m meron.zero.dropin` failed" in done.stderr and "Install" in done.stderr


def test_without_it_the_environment_has_no_ranks_of_torch():
    environment = {key: value for key, value in os.environ.items() if key != "MASTER_PORT"}
    done = meron("run", "-n", "1", "--", "sh", "-c", "echo ${MASTER_PORT-none}", env=environment)
    assert done.stdout == "none\n"


# ---- Output with --tag --------------------------------------------------------------------------


def test_tagged_lines_stay_whole():
    # Four ranks write in pieces that ignore the ends of lines, to both streams.
    code = """
import os
rank = os.environ["MERON_RANK"]
lines = "".join(f"{rank} {i} " + "x" * (i * 37 % 500) + "\\n" for i in range(2000)).encode()
for fd in (1, 2):
    for begin in range(0, len(lines), 997):
        os.write(fd, lines[begin : begin + 997])
"""
    done = meron("run", "-n", "4", "--tag", "--", *python(code))
    assert done.returncode == 0
    for text in (done.stdout, done.stderr):
        seen = {rank: 0 for rank in "0123"}
        for line in text.splitlines():
            match = re.fullmatch(r"\[(\d)\] (\d) (\d+) (x*)", line)
            assert match, line
            assert match[1] == match[2]
            assert int(match[3]) == seen[match[1]]
            assert len(match[4]) == int(match[3]) * 37 % 500
            seen[match[1]] += 1
        assert set(seen.values()) == {2000}


def test_a_tagged_line_without_an_end_gets_one():
    done = meron("run", "-n", "2", "--tag", "--", "sh", "-c", "printf 'no end'; echo; printf tail")
    assert sorted(done.stdout.splitlines()) == [
        "[0] no end",
        "[0] tail",
        "[1] no end",
        "[1] tail",
    ]


def test_a_very_long_tagged_line_is_not_lost():
    code = "import os; os.write(1, b'y' * 5_000_000)"
    done = meron("run", "-n", "1", "--tag", "--", *python(code))
    assert done.stdout.count("y") == 5_000_000


def test_a_slow_reader_of_tagged_output_holds_ranks_but_no_signals():
    code = "import os\nwhile True: os.write(1, b'z' * 1000 + b'\\n')"
    launcher = start("run", "-n", "2", "--tag", "--", *python(code), stdout=subprocess.PIPE)
    time.sleep(0.5)  # the pipe is full by now, and nobody reads
    status = Path(f"/proc/{supervisor_of(launcher)}/status").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1])
    assert rss < 64 * 1024
    launcher.send_signal(signal.SIGTERM)
    launcher.send_signal(signal.SIGTERM)
    supervisor = supervisor_of(launcher)
    wait_until("the ranks end", lambda: not children_of(supervisor))
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE) == 128 + signal.SIGTERM
    launcher.stdout.close()


def test_ranks_notice_that_the_reader_of_tagged_output_is_gone():
    command = f"{MERON} run -n 2 --tag -- yes 2>/dev/null | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=PATIENCE)
    assert re.fullmatch(rb"\[[01]\] y\n", done.stdout)


# ---- Signals ------------------------------------------------------------------------------------

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


# ---- How a job ends -----------------------------------------------------------------------------

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


def wait_until_gone(pids: Iterable[int]) -> None:
    wait_until("all ranks are gone", lambda: not any(map(is_alive, pids)), 1.0)


@pytest.mark.parametrize("trial", range(5))
def test_no_rank_outlives_a_killed_launcher(tmp_path, trial):
    launcher, pids = start_sleepers(SLEEP_THROUGH_TERM, tmp_path)
    launcher.kill()
    launcher.wait(PATIENCE)
    wait_until_gone(pids.values())


def test_a_launcher_killed_while_it_starts_leaves_nobody(tmp_path):
    code = f"echo $$ > {tmp_path}/pid$MERON_RANK; exec sleep 100"
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.04):
        launcher = start("run", "-n", "16", "--", "sh", "-c", code)
        time.sleep(delay)
        launcher.kill()
        launcher.wait(PATIENCE)
        time.sleep(0.3)  # whoever was forked has had the time to write its pid
        pids = [int(path.read_text() or 0) for path in tmp_path.glob("pid*")]
        wait_until_gone(pids)


def test_what_a_rank_leaves_behind_is_ended(tmp_path):
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


def test_many_ranks():
    done = meron("run", "-n", "64", "--", "sh", "-c", "echo $MERON_RANK")
    assert sorted(map(int, done.stdout.split())) == list(range(64))


def test_a_job_that_cannot_start_whole_does_not_start(tmp_path):
    # With few descriptors the pipes of --tag run out before the last rank.
    code = f"echo $$ > {tmp_path}/pid$MERON_RANK; exec sleep 100"
    command = f'ulimit -n 20; exec {MERON} run -n 16 --tag -- sh -c "$1"'
    done = subprocess.run(
        ["sh", "-c", command, "sh", code], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "ulimit -n" in done.stderr
    pids = [int(path.read_text() or 0) for path in tmp_path.glob("pid*")]
    assert not any(map(is_alive, pids))
