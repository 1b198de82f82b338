# SPDX-License-Identifier: Apache-2.0
"""libmeron_mpi.so under mpirun: on one host, over two, and without a launcher.

The drivers' cases (module_driver.cpp, program_driver.cpp) say what is proved; each ends with 0 if
it holds. Here is under what they run, and how jobs end that fail.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hosts
import launchers
import namespaces

ROOT = Path(__file__).resolve().parents[3]
MODULE = os.environ["MERON_MPI_MODULE"]
DRIVER = os.environ["MERON_MPI_DRIVER"]
PROGRAM = os.environ["MERON_MPI_PROGRAM"]
PATIENCE = 60  # seconds after which a test that hangs fails
ALLOW_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
Done = subprocess.CompletedProcess[str]
Run = Callable[[list[str]], Done]

# Each needs an even number of ranks.
CASES = ("messages", "large", "cancel", "too_long", "reuse", "worlds", "threads", "signals", "abi")
# Failures of a rank, and their reports.
FAILURES = {
    "killed": "exited on signal 9",
    "exits_with_error": "Exit code:    3",
    "closes_and_exits_with_error": "Exit code:    3",
    "mpi_fails": ": MPI_Isend with rank 4 failed: ",
    "stays_away": "Exit code:    4",
}


def execute(words: list[str]) -> Done:
    with subprocess.Popen(
        words,
        env={**os.environ, **ALLOW_ROOT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as launcher:
        try:
            output = launchers.output_of(launcher, PATIENCE)
        except BaseException:
            launcher.kill()
            raise
        return subprocess.CompletedProcess(words, launcher.returncode, output)


def mpirun(words: list[str], ranks: int = 4) -> Done:
    options = ["-n", str(ranks), "--oversubscribe", "--bind-to", "none"]
    # As on the hosts: when a rank fails the others are killed at once.
    options += ["--mca", "odls_base_sigkill_timeout", "0"]
    return execute(["mpirun", *options, *words])


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[hosts.Hosts]:
    reason = namespaces.why_not()
    if reason is not None:
        pytest.skip(f"no hosts: {reason}")
    with hosts.Hosts(2, rate="1gbit") as made:
        yield made


@pytest.fixture(params=["one host", "two hosts"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs four ranks."""
    if request.param == "one host":
        return mpirun
    made: hosts.Hosts = request.getfixturevalue("two_hosts")
    return lambda words: made.run(words, ranks_per_host=2, timeout=PATIENCE)


@pytest.mark.parametrize("case", [*CASES, "closes_late"])
def test_four_ranks(run: Run, case: str) -> None:
    done = run([DRIVER, MODULE, case])
    assert done.returncode == 0, done.stdout
    # On a busy machine the child may be first; Open MPI's launcher then prints a warning.
    lines = [line for line in done.stdout.splitlines() if "plm:rsh: Warning: setpgid" not in line]
    assert lines == []  # nobody complains


def test_two_hosts_use_the_network(two_hosts: hosts.Hosts) -> None:
    """Each rank sends 64 MiB to the next: over the network from rank 1 to 2 and from 3 to 0."""
    before = two_hosts.traffic()
    done = two_hosts.run([DRIVER, MODULE, "large"], ranks_per_host=2, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    for name, now in two_hosts.traffic().items():
        moved = now - before[name]
        assert 64 << 20 < moved.sent_bytes < 68 << 20
        assert 64 << 20 < moved.received_bytes < 68 << 20


@pytest.mark.parametrize("case", FAILURES)
def test_a_job_that_fails_ends(run: Run, case: str) -> None:
    begin = time.monotonic()
    done = run([DRIVER, MODULE, case])
    # Mostly it is the rank's own status. But the mpirun of Open MPI 4.1.4 crashes or hangs at
    # times, after all is said, where a rank ended while others were in MPI_Finalize.
    assert done.returncode != 0
    assert FAILURES[case] in done.stdout
    assert time.monotonic() - begin < 30
    told = [line for line in done.stdout.splitlines() if line.startswith("meron: ")]
    assert len(told) == (1 if case == "mpi_fails" else 0)


def test_a_message_that_stops_half_way(two_hosts: hosts.Hosts) -> None:
    """Between hosts, where a message takes its time."""
    done = two_hosts.run([DRIVER, MODULE, "stops_half_way"], ranks_per_host=2, timeout=PATIENCE)
    assert done.returncode == 3, done.stdout
    assert "meron: rank 0 on host A: a message from rank 3 stopped half-way" in done.stdout


@pytest.mark.parametrize(
    "case", ["multiple", "funneled", "finalizes_first", "finalizes_for_the_module"]
)
def test_beside_a_program_that_uses_mpi_itself(case: str) -> None:
    done = mpirun([PROGRAM, MODULE, case], ranks=2)
    assert done.returncode == 0, done.stdout
    told = done.stdout.count("MPI was finalized while a context is open")
    assert told == (2 if case == "finalizes_first" else 0)


@pytest.mark.parametrize("launcher", [[], ["mpirun", "-n", "1"]])
def test_a_world_of_one(launcher: list[str]) -> None:
    done = execute([*launcher, DRIVER, MODULE, "alone", "signals"])
    assert (done.returncode, done.stdout) == (0, "")


def test_shows_one_symbol_and_does_not_need_the_engine() -> None:
    listing = execute(["nm", "--dynamic", "--defined-only", MODULE]).stdout.splitlines()
    symbols = [line.split()[-1].split("@")[0] for line in listing if line.split()[-2] != "A"]
    assert symbols == ["meron_mpi_open"]
    needed = execute(["objdump", "-p", MODULE]).stdout
    assert "libmpi" in needed and "libmeron.so" not in needed
