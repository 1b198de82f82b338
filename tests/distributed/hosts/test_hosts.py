# SPDX-License-Identifier: Apache-2.0
"""Hosts are what they say, as fast as they say, and gone when they are not needed any more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hosts as module
import launchers
import namespaces
from hosts import Hosts, Traffic

SCRIPT = [sys.executable, module.__file__]
PATIENCE = 30  # seconds after which a test that hangs fails
MIB = 1 << 20

# Sends SIZE bytes to ADDRESS; the receiver takes those of COUNT senders, and prints how long the
# bytes took to come.
RECEIVE = """
import selectors, socket, sys, time
count = int(sys.argv[1])
server = socket.create_server(("0.0.0.0", 7000))
print("listening", flush=True)
peers = [server.accept()[0] for _ in range(count)]
begin, received = time.monotonic(), 0
selector = selectors.DefaultSelector()
for peer in peers: selector.register(peer, selectors.EVENT_READ)
buffer = bytearray(1 << 20)
while selector.get_map():
    for key, _ in selector.select():
        got = key.fileobj.recv_into(buffer)
        received += got
        if got == 0: selector.unregister(key.fileobj)
print(received, time.monotonic() - begin, flush=True)
"""
SEND = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7000))
for _ in range(int(sys.argv[2]) >> 20): peer.sendall(bytes(1 << 20))
"""

reason = namespaces.why_not()
needs_hosts = pytest.mark.skipif(reason is not None, reason=f"no hosts: {reason}")


def wait_until(what: str, true: Callable[[], object]) -> None:
    begin = time.monotonic()
    while not true():
        assert time.monotonic() - begin < PATIENCE, f"not within {PATIENCE} s: {what}"
        time.sleep(0.01)


@pytest.fixture
def pair() -> Iterator[Hosts]:
    with Hosts(2) as hosts:
        yield hosts


def python(code: str, *words: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


def transfer(hosts: Hosts, senders: str, receiver: str, size: int) -> float:
    """Seconds that `size` bytes from each sender took."""
    words = python(RECEIVE, len(senders))
    with hosts.popen(receiver, words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stdout.readline() == "listening\n"
        clients = [hosts.popen(host, python(SEND, receiver, size)) for host in senders]
        received, seconds = server.stdout.readline().split()
        assert [client.wait(PATIENCE) for client in clients] == [0] * len(senders)
        assert int(received) == size * len(senders)
        return float(seconds)


# ---- What hosts are


@needs_hosts
def test_each_host_has_a_name_and_a_shared_memory_of_its_own(pair: Hosts) -> None:
    say = 'echo "$OMPI_COMM_WORLD_RANK $MERON_HOST $(uname -n) $WORD"; touch /dev/shm/$MERON_HOST'
    done = pair.run(["sh", "-c", say], ranks_per_host=2, environment={"WORD": "a word"})
    assert done.returncode == 0, done.stdout
    lines = sorted(done.stdout.splitlines())
    assert lines == ["0 A A a word", "1 A A a word", "2 B B a word", "3 B B a word"]
    for host in pair.names:
        with pair.popen(host, ["ls", "/dev/shm"], stdout=subprocess.PIPE, text=True) as listing:
            assert listing.communicate()[0] == f"{host}\n"
    assert not Path("/dev/shm/A").exists()


@needs_hosts
def test_the_programs_status_is_passed_on(pair: Hosts) -> None:
    done = pair.run(["sh", "-c", "test $OMPI_COMM_WORLD_RANK != 1 || exit 7"])
    assert done.returncode == 7


@needs_hosts
def test_kills_programs_that_take_too_long(pair: Hosts) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        pair.run(["sleep", "600"], timeout=1)
    wait_until("all have ended", lambda: not pair.processes("A") + pair.processes("B"))


def test_a_launcher_that_outlives_its_ranks_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "LINGER", 0.5)
    for ranks, status in (("", -signal.SIGKILL), ("sleep 4 & wait; echo ended", 0)):
        script = f"echo said; {ranks or 'exec sleep 60'}"
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True) as launcher:
            assert launchers.output_of(launcher, 30).startswith("said")
        assert launcher.returncode == status


@needs_hosts
def test_traffic_is_counted_where_it_goes() -> None:
    with Hosts(3) as hosts:
        before = hosts.traffic()
        transfer(hosts, "A", "B", 8 * MIB)
        after = hosts.traffic()
        moved = {name: after[name] - before[name] for name in hosts.names}
    # Headers and acknowledgements are extra.
    assert 8 * MIB < moved["A"].sent_bytes < 8.5 * MIB
    assert 8 * MIB < moved["B"].received_bytes < 8.5 * MIB
    assert moved["A"].received_bytes < 0.5 * MIB and moved["B"].sent_bytes < 0.5 * MIB
    assert moved["C"].sent_bytes + moved["C"].received_bytes < 0.1 * MIB


def check_rate(hosts: Hosts, senders: str, receiver: str, size: int, expected: float) -> None:
    """Checks that the rate is within 10 % of `expected`. On a busy machine it may be slower."""
    slowest = 0.9 * expected
    for _ in range(5):
        before = hosts.traffic()[receiver]
        seconds = transfer(hosts, senders, receiver, size)
        moved: Traffic = hosts.traffic()[receiver] - before
        rate = moved.received_bytes * 8 / seconds
        assert rate < 1.1 * expected
        if rate > slowest:
            return
    pytest.fail(f"{rate:.3g} bit/s, expected {expected:.3g}")


@needs_hosts
def test_the_rate_is_kept() -> None:
    with Hosts(3, rate="1gbit") as hosts:
        check_rate(hosts, "A", "B", 64 * MIB, 1e9)
        # The rate limits what one host receives as well.
        check_rate(hosts, "AC", "B", 32 * MIB, 1e9)


@needs_hosts
def test_a_cable_can_be_pulled(pair: Hosts) -> None:
    pair.connect("B", False)
    attempt = "import socket; socket.create_connection(('B', 9), 0.3)"
    with pair.popen("A", python(attempt), stderr=subprocess.PIPE, text=True) as client:
        errors = client.communicate(timeout=PATIENCE)[1]
        assert "timed out" in errors or "No route" in errors
    pair.connect("B", True)
    transfer(pair, "A", "B", MIB)


@needs_hosts
def test_power_can_be_cut(pair: Hosts) -> None:
    with pair.popen("A", ["sleep", "600"]) as spared, pair.popen("B", ["sleep", "600"]) as killed:
        wait_until("B runs", lambda: killed.pid in pair.processes("B"))
        pair.kill("B")
        assert killed.wait(PATIENCE) == -signal.SIGKILL
        assert spared.poll() is None
        spared.kill()
    transfer(pair, "A", "B", MIB)  # the host itself stays


@needs_hosts
def test_processors_by_host() -> None:
    last = max(os.sched_getaffinity(0))
    with Hosts(2, cpus=f"0/{last}") as hosts:
        show = "import os; print(f'{os.uname().nodename} {os.sched_getaffinity(0)}\\n', end='')"
        done = hosts.run(python(show))
    assert sorted(done.stdout.splitlines()) == ["A {0}", f"B {{{last}}}"]


# ---- That nothing stays


def nothing_is_left(prefix: str) -> bool:
    return not namespaces.made_by(prefix) and not (namespaces.RUN / prefix).exists()


def processes_called(*last_words: str) -> list[int]:
    end = "".join(f"\0{word}" for word in last_words) + "\0"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text(errors="replace").endswith(end):
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has ended
    return found


def all_ended(processes: list[int]) -> bool:
    return all(namespaces.start_of(process) is None for process in processes)


class Command:
    """hosts.py as a command, whose ranks sleep; what it has made is known when __enter__ ends."""

    def __enter__(self) -> Command:
        ranks = ["sh", "-c", "echo here; exec sleep 600"]
        words = [*SCRIPT, "--hosts", "2", "--ranks-per-host", "1", "--", *ranks]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self.process.stdout
        assert [self.process.stdout.readline() for _ in range(2)] == ["here\n"] * 2
        self.prefix = f"meron-{self.process.pid}-{namespaces.start_of(self.process.pid)}"
        self.ranks: list[int] = []
        for name in namespaces.made_by(self.prefix):
            pids = namespaces.run_tool("ip", "netns", "pids", name)
            self.ranks += [int(word) for word in pids.split()]
        assert len(namespaces.made_by(self.prefix)) == 3 and len(self.ranks) >= 6
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.communicate()
        namespaces.remove(self.prefix)

    def check_gone(self) -> None:
        wait_until("nothing is left", lambda: nothing_is_left(self.prefix))
        wait_until("all have ended", lambda: all_ended(self.ranks))


def links() -> str:
    return subprocess.run(["ip", "-br", "link"], capture_output=True, text=True).stdout


@needs_hosts
@pytest.mark.parametrize("by_exception", [False, True])
def test_nothing_is_left(by_exception: bool) -> None:
    before = links()
    try:
        with Hosts(3) as hosts:
            sleeper = hosts.popen("C", ["sleep", "600"])
            if by_exception:
                raise LookupError
    except LookupError:
        pass
    # At once, not some time later.
    assert nothing_is_left(hosts.prefix)
    assert sleeper.wait(PATIENCE) == -signal.SIGKILL
    assert links() == before


@needs_hosts
@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_nothing_is_left_after(number: signal.Signals, status: int) -> None:
    with Command() as command:
        command.process.send_signal(number)
        assert command.process.wait(PATIENCE) == status
        if number != signal.SIGKILL:
            assert nothing_is_left(command.prefix)
        command.check_gone()


@needs_hosts
def test_the_next_run_removes_what_is_left_of_dead_ones() -> None:
    with Command() as command:
        guards = processes_called("--guard", command.prefix)
        for process in [*guards, command.process.pid]:
            os.kill(process, signal.SIGKILL)
        command.process.wait(PATIENCE)
        assert len(guards) == 1 and not nothing_is_left(command.prefix)
        with Hosts(1):
            assert nothing_is_left(command.prefix)
        command.check_gone()


@needs_hosts
def test_two_runs_at_a_time_do_not_meet(pair: Hosts, tmp_path: Path) -> None:
    counts = tmp_path / "traffic.json"
    with Command() as other:
        words = [*SCRIPT, "--traffic", str(counts), "--", "true"]
        assert subprocess.run(words, timeout=PATIENCE).returncode == 0
        assert other.process.poll() is None and not nothing_is_left(other.prefix)
    assert sorted(json.loads(counts.read_text())) == ["A", "B"]
    transfer(pair, "A", "B", MIB)


# ---- Machines that cannot create hosts


def check_skipped(words: list[str], says: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [*words, *SCRIPT, "--", "true"], capture_output=True, text=True, timeout=PATIENCE, env=env
    )
    assert done.returncode == 77
    assert done.stderr.startswith("hosts.py: skipped: ") and says in done.stderr


def test_skipped_without_root() -> None:
    if os.geteuid() == 0:
        check_skipped(["setpriv", "--reuid", "65534", "--clear-groups"], "root")
    else:
        check_skipped([], "root")


@needs_hosts
def test_skipped_without_its_programs() -> None:
    check_skipped([], "iproute2", env={"PATH": "/nowhere"})


@needs_hosts
def test_skipped_where_the_kernel_refuses() -> None:
    # Root without the right to make namespaces, as in most containers.
    check_skipped(["setpriv", "--bounding-set", "-sys_admin"], "namespaces")
