# SPDX-License-Identifier: Apache-2.0
"""The plugin, by tests that fail, die and hang on purpose."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ranks

TESTS = Path(__file__).resolve().parents[1]
HEAD = """
import ctypes, os, resource, signal, subprocess, sys, threading, time
import pytest
import ranks
RANK = int(os.environ.get("MERON_RANK", "-1"))
"""
INI = """
[pytest]
addopts = -p ranks.plugin
pythonpath = .
ranks_preload = json no_such_module
ranks_preload_plain = reader
"""


def command(folder: Path, source: str, *options: str) -> list[str]:
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(HEAD + source)
    return [sys.executable, "-B", "-m", "pytest", "-v", *options, str(folder / "test_it.py")]


def environment() -> dict[str, str]:
    package = TESTS.parent / "bindings" / "python"
    paths = [str(TESTS), str(package), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(folder: Path, source: str, *options: str) -> str:
    """Runs a file of tests, and returns what pytest prints."""
    done = subprocess.run(
        command(folder, source, *options), env=environment(), capture_output=True, text=True
    )
    return done.stdout + done.stderr


def test_runs_once_on_each_rank_for_each_count(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(1, 3)
def test_a(rank, world_size, tmp_path):
    assert RANK == rank < world_size
    (tmp_path.parent / f"{world_size}-{rank}").touch()
"""
    out = run(tmp_path, source, f"--basetemp={tmp_path / 'base'}")
    assert "test_a[1ranks] PASSED" in out and "test_a[3ranks] PASSED" in out
    names = sorted(path.name for path in (tmp_path / "base").iterdir() if path.is_file())
    assert names == ["1-0", "3-0", "3-1", "3-2"]


def test_a_failure_names_its_rank_and_has_what_each_wrote(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(3)
def test_a(rank):
    print("written by", rank)
    assert [1, rank] != [1, 1]

@pytest.mark.ranks(3)
def test_b():
    pass
"""
    out = run(tmp_path, source)
    assert "rank 1 of 3 failed: AssertionError: assert [1, 1] != [1, 1]" in out
    assert "ranks 0, 2 of 3 passed" in out
    assert "rank 2: stdout" in out and "written by 2" in out
    assert "1 failed, 1 passed" in out


def test_the_processor_time_of_ranks_counts_as_pytests(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(2)
def test_a():
    until = time.process_time() + 1.0
    while time.process_time() < until:
        pass
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "1 passed" in run(tmp_path, source)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime > 2.0


def test_ranks_that_fail_alike_are_folded_and_the_first_is_shown(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(3)
def test_a(rank):
    if rank != 2:
        time.sleep(1)
        raise ValueError("the peer failed")
    raise KeyError("the cause")
"""
    out = run(tmp_path, source)
    first, second = "rank 2 of 3 failed: KeyError", "ranks 0, 1 of 3 failed: ValueError"
    assert 0 < out.index(first) < out.index(second) < out.index("raise KeyError")


def test_a_rank_that_dies_fails_alone(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(2)
def test_killed(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.ranks(2)
def test_segfault(rank):
    if rank == 0:
        ctypes.string_at(0)

@pytest.mark.ranks(2)
def test_exit(rank):
    if rank == 0:
        os._exit(0)

@pytest.mark.ranks(2)
def test_after():
    pass
"""
    out = run(tmp_path, source)
    assert "rank 1 of 2 failed: its process was killed by SIGKILL" in out
    assert "rank 0 of 2 failed: its process was killed by SIGSEGV" in out
    assert "in test_segfault" in out  # its stack
    assert "rank 0 of 2 failed: its process ended with exit code 0" in out
    assert "3 failed, 1 passed" in out


def test_a_rank_that_hangs_is_named_with_its_stack(tmp_path: Path) -> None:
    source = """
def waits():
    threading.Event().wait()

@pytest.mark.ranks(2, deadline=1)
def test_hangs(rank):
    if rank == 1:
        waits()

@pytest.mark.ranks(2, deadline=1)
def test_stopped(rank):
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)

@pytest.mark.ranks(2)
def test_after():
    pass
"""
    out = run(tmp_path, source)
    assert "rank 1 of 2 failed: it did not end within 1 s, and was killed" in out
    assert "in waits" in out and "in test_hangs" in out and "server.py" not in out
    assert "rank 0 of 2 failed: it did not end within 1 s" in out
    assert "2 failed, 1 passed" in out


def test_what_a_hanging_rank_started_ends_too(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(1, deadline=1)
def test_a():
    child = subprocess.Popen(["sleep", "1000"])
    open(os.path.join(os.path.dirname(__file__), "pid"), "w").write(str(child.pid))
    child.wait()
"""
    run(tmp_path, source)
    assert not is_alive(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("if RANK == 1: os._exit(3)", "that imports test_it has died"),
        ("if RANK == 1: raise ValueError('mine')", "cannot import test_it"),
        (
            "if RANK == 1: os.fork = lambda: (_ for _ in ()).throw(OSError(12, 'none'))",
            "cannot fork",
        ),
    ],
)
def test_a_rank_that_fails_in_set_up_is_named(tmp_path: Path, source: str, text: str) -> None:
    """The last is a pool without memory for another process."""
    case = """
@pytest.mark.ranks(2)
def test_a():
    pass

@pytest.mark.ranks(1)
def test_after():
    pass
"""
    out = run(tmp_path, source + case)
    assert "rank 1 of 2 failed" in out and text in out
    assert "1 failed, 1 passed" in out


def test_a_rank_without_memory_fails_alone(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(2)
def test_a(rank):
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 26, 1 << 26))
    bytes(1 << 27)

@pytest.mark.ranks(2)
def test_after():
    bytes(1 << 27)
"""
    out = run(tmp_path, source)
    assert "rank 1 of 2 failed: MemoryError" in out
    assert "1 failed, 1 passed" in out


def test_each_case_has_a_process_of_its_own(tmp_path: Path) -> None:
    source = """
seen = []
@pytest.mark.ranks(2)
@pytest.mark.parametrize("number", [0, 1])
def test_a(number, monkeypatch):
    seen.append(number)
    monkeypatch.setenv("LEFT", "1")
    os.environ["LEFT"] = "2"
    assert seen == [number]
"""
    assert "2 passed" in run(tmp_path, source)


def test_a_skip_on_a_rank_skips_the_test(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(2)
def test_a(rank):
    if rank == 1:
        pytest.skip("not here")
"""
    out = run(tmp_path, source, "-rs")
    assert "1 skipped" in out and "not here" in out


def test_choices_of_pytest_work(tmp_path: Path) -> None:
    source = """
@pytest.mark.ranks(1)
def test_good(): pass
@pytest.mark.ranks(1)
def test_bad(): assert False
@pytest.mark.ranks(1)
def test_worse(): assert False
"""
    assert "1 passed, 2 deselected" in run(tmp_path, source, "-k", "good")
    assert "1 failed, 1 passed" in run(tmp_path, source, "-x")
    assert "1 failed, 2 deselected" in run(tmp_path, source, "--lf", "-x", "-k", "bad or good")


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("ranks", "takes numbers of ranks"),
        ("ranks(0)", "takes numbers of ranks"),
        ("ranks(2, dedline=1)", "has no dedline; it has deadline, environment"),
    ],
)
def test_a_wrong_mark_is_an_error_in_words(tmp_path: Path, mark: str, text: str) -> None:
    assert text in run(tmp_path, f"@pytest.mark.{mark}\ndef test_a(): pass")


def test_an_argument_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    source = """
@pytest.fixture
def lock():
    return threading.Lock()

@pytest.mark.ranks(1)
def test_a(lock):
    pass
"""
    assert "the argument lock cannot be sent to ranks" in run(tmp_path, source)


def test_variables_are_set_before_the_module_is_imported(tmp_path: Path) -> None:
    source = """
SEEN = os.environ.get("MINE")
@pytest.mark.ranks(2, environment={"MINE": "1"})
def test_a():
    assert SEEN == "1"
@pytest.mark.ranks(2)
def test_b():
    assert SEEN is None
"""
    assert "2 passed" in run(tmp_path, source)


def test_variables_are_set_before_what_reads_them_is_imported(tmp_path: Path) -> None:
    (tmp_path / "reader.py").write_text("import os\nSEEN = os.environ.get('MINE')\n")
    source = """
import reader
@pytest.mark.ranks(2, environment={"MINE": "1"})
def test_a():
    assert reader.SEEN == "1"
@pytest.mark.ranks(2)
def test_b():
    assert reader.SEEN is None
"""
    assert "2 passed" in run(tmp_path, source)


def test_what_a_case_leaves_for_its_end_is_done(tmp_path: Path) -> None:
    source = """
import weakref
class Mine: pass
mine = Mine()
@pytest.mark.ranks(1)
def test_a(tmp_path):
    weakref.finalize(mine, (tmp_path.parent / "done").touch)
"""
    assert "1 passed" in run(tmp_path, source, f"--basetemp={tmp_path / 'base'}")
    assert (tmp_path / "base" / "done").exists()


def test_runs_for_each_mark_and_names_it(tmp_path: Path) -> None:
    source = """
pytestmark = [
    pytest.mark.ranks(1, 2),
    pytest.mark.ranks(3, name="mine", environment={"MINE": "1"}),
]
@pytest.mark.parametrize("value", ["x"])
def test_a(value, world_size):
    assert (os.environ.get("MINE") == "1") == (world_size == 3)
@pytest.mark.ranks(1)
def test_b():
    pass
"""
    out = run(tmp_path, source, "-k", "not mine")
    assert "3 passed, 1 deselected" in out
    out = run(tmp_path, source)
    assert "test_a[3ranks-mine-x] PASSED" in out and "4 passed" in out


# ---- Functions ----------------------------------------------------------------------------------


def of_rank(*values: int) -> tuple[int, int, int]:
    return int(os.environ["MERON_RANK"]), sum(values), hash("meron")


def no_value() -> object:
    return lambda: None


def fails() -> None:
    raise ValueError("mine")


def test_call_returns_values_by_rank() -> None:
    values = ranks.call(3, of_rank, 1, 2)
    assert [value[:2] for value in values] == [(0, 3), (1, 3), (2, 3)]
    assert len({value[2] for value in values}) == 3, "ranks hash strings alike"


def test_call_says_why_it_cannot() -> None:
    with pytest.raises(TypeError, match="ranks find a function by its name"):
        ranks.call(1, lambda: None)
    with pytest.raises(ranks.RanksFailed, match="cannot be pickled"):
        ranks.call(1, no_value)
    with pytest.raises(ranks.RanksFailed, match="ranks 0, 1 of 2 failed: ValueError: mine"):
        ranks.call(2, fails)


def test_a_program_has_its_arguments_and_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import os, sys\n"
        "assert __name__ == '__main__'\n"
        "print(os.environ['MERON_RANK'], sys.argv[1:], os.environ['MINE'])\n"
        "print('here', file=sys.stderr)\n"
        "sys.exit(3 if os.environ['MERON_RANK'] == sys.argv[1] else 0)\n"
    )
    done = ranks.program(2, path, 1, MINE="x")
    assert done.stdout == "0 ['1'] x\n1 ['1'] x\n"
    assert done.returncode == 3 and "[rank1]: here" in done.stderr
    assert ranks.program(2, path, 5, MINE="x").returncode == 0


def test_a_program_runs_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program.py").write_text("import os; print(os.getcwd())")
    monkeypatch.chdir(tmp_path)
    assert ranks.program(2, "program.py").stdout == f"{tmp_path}\n" * 2


def test_threads_return_values_by_rank_and_name_one_that_hangs() -> None:
    assert ranks.threads(3, lambda context: context.rank) == [0, 1, 2]

    def waits(context: object) -> None:
        if getattr(context, "rank", 0) == 1:
            time.sleep(3)

    with pytest.raises(AssertionError, match=r"rank 1 of 2 did not end.*\n(.*\n)*.*in waits"):
        ranks.threads(2, waits, deadline=0.5)


# ---- The end ------------------------------------------------------------------------------------

HANGS = """
import meron

@pytest.mark.ranks(2)
def test_a(rank):
    context = meron.open()
    open(os.path.join(os.path.dirname(__file__), f"pid{rank}"), "w").write(str(os.getpid()))
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ranks_end_with_pytest(tmp_path: Path, number: signal.Signals) -> None:
    """Within two seconds, and without shared memory that stays."""
    shared = set(os.listdir("/dev/shm"))
    process = subprocess.Popen(
        command(tmp_path, HANGS),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    files = [tmp_path / "pid0", tmp_path / "pid1"]
    wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60)
    pids = [int(file.read_text()) for file in files]
    made = set(os.listdir("/dev/shm")) - shared
    process.send_signal(number)
    wait_until(lambda: not any(map(is_alive, pids)), 2)
    process.communicate(timeout=30)
    # Other tests use shared memory too, and remove theirs when they end.
    wait_until(lambda: not made & set(os.listdir("/dev/shm")), 60)


def wait_until(condition: object, seconds: float) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
