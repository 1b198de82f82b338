#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several hosts on this machine: network namespaces with a switch between them, and MPI over them.

    hosts.py --hosts 2 --ranks-per-host 2 --rate 1gbit -- program arguments...

Each host has a network, a host name and a /dev/shm of its own; the file system, the processors and
the user are shared. --rate limits a host's sends and its receives. Ranks find the name of their
host in MERON_HOST: A, B, ... MPI's own traffic goes by TCP: through the switch, or inside a host
through its loopback device.

Needs root and Open MPI. If it cannot create the hosts, it prints the reason and exits with 77. Even
if this program is killed, its resources are removed and its processes are ended: a second process
waits for its end and cleans up.

As a module:

    with Hosts(2, rate="1gbit") as hosts:
        done = hosts.run(["program"], ranks_per_host=2)  # under mpirun, to its end
        sent = hosts.traffic()["A"].sent_bytes
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import namespaces
from launchers import output_of, stop
from namespaces import (
    NAMESPACES,
    RUN,
    Unavailable,
    remove,
    remove_leftovers,
    run_tool,
    start_of,
    why_not,
)

SKIPPED = 77
SWITCH = "switch"
SUBNET = "10.201.0"
UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}

# One process per host keeps its namespaces; others enter them.
HOLD = """set -e
echo "$1" >/proc/sys/kernel/hostname
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 2>/dev/null || true
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount --bind "$2" /etc/hosts
echo there
exec sleep infinity
"""

# mpirun calls this script in place of ssh: agent HOST COMMAND...
AGENT = """#!/bin/sh
host=$1
shift
. "{folder}/$host"
export MERON_HOST="$host"
exec $limit nsenter --target "$holder" --net --uts --mount -- sh -c "cd '$PWD' && $*"
"""


@dataclass(frozen=True)
class Traffic:
    """Traffic of a host's network device."""

    sent_bytes: int
    received_bytes: int
    sent_packets: int
    received_packets: int

    def __sub__(self, before: Traffic) -> Traffic:
        pairs = zip(asdict(self).values(), asdict(before).values())
        return Traffic(*(now - then for now, then in pairs))


def bits_per_second(rate: str) -> float:
    match = re.fullmatch(r"([0-9.]+)([kmg]?bit)", rate)
    if not match:
        raise ValueError(f"a rate is a number with bit, kbit, mbit or gbit, not {rate!r}")
    return float(match[1]) * UNITS[match[2]]


# ---- Hosts --------------------------------------------------------------------------------------


class Hosts:
    """Hosts A, B, ... from __enter__ to __exit__."""

    def __init__(
        self,
        count: int = 2,
        *,
        rate: str | None = None,
        burst: str | None = None,
        latency: str = "50ms",
        cpus: str | None = None,
    ) -> None:
        """`rate` limits a host's sends and its receives. `burst` (default: 4 ms of the rate) and
        `latency`, the longest wait of a packet, are as for tc. `cpus`: the processors of each
        host's processes, in the notation of taskset, hosts separated by "/": "0/1"; one set for all
        hosts: "0-1"."""
        if not 1 <= count <= 26:
            raise ValueError(f"{count} hosts: 1 to 26 can be made")
        self.names = [chr(ord("A") + i) for i in range(count)]
        self.addresses = {name: f"{SUBNET}.{i + 1}" for i, name in enumerate(self.names)}
        self._shape: list[str] = []
        if rate is not None:
            size = burst or str(max(256 * 1024, int(bits_per_second(rate) / 8 * 0.004)))
            self._shape = ["tbf", "rate", rate, "burst", size, "latency", latency]
        sets = (cpus or "").split("/")
        if len(sets) not in (1, count):
            raise ValueError(f"{len(sets)} sets of processors for {count} hosts")
        self._cpus = dict(zip(self.names, sets * (count if len(sets) == 1 else 1)))
        self.prefix = f"meron-{os.getpid()}-{start_of(os.getpid())}"
        self._folder = RUN / self.prefix
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Hosts:
        problem = why_not()
        if problem:
            raise Unavailable(problem)
        remove_leftovers()
        try:
            self._folder.mkdir(mode=0o700)
        except FileExistsError:
            raise ValueError("a process has one set of hosts at a time") from None
        try:
            self._start_guard()
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything that runs on the hosts, and removes them."""
        if self._guard is not None:
            assert self._guard.stdin and self._guard.stdout
            self._guard.stdin.close()
            self._guard.stdout.read()  # ends with the guard
            self._guard.stdout.close()
            self._guard = None
        remove(self.prefix)
        for holder in self._holders.values():
            holder.wait()
            assert holder.stdout
            holder.stdout.close()
        self._holders.clear()

    def _start_guard(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", namespaces.__file__, "--guard", self.prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._guard.wait()  # it has forked

    def _make(self) -> None:
        switch = self._namespace(SWITCH)
        run_tool("ip", "netns", "add", switch)
        run_tool("ip", "-n", switch, "link", "add", "switch", "up", "type", "bridge")
        table = ["127.0.0.1 localhost"]
        table += [f"{address} {name}" for name, address in self.addresses.items()]
        (self._folder / "hosts").write_text("\n".join(table) + "\n")
        for name in self.names:
            self._make_host(name)
        agent = self._folder / "agent"
        agent.write_text(AGENT.format(folder=self._folder))
        agent.chmod(0o700)

    def _make_host(self, name: str) -> None:
        switch, own, port = self._namespace(SWITCH), self._namespace(name), f"port{name}"
        run_tool("ip", "netns", "add", own)
        pair = ["link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", own]
        run_tool("ip", "-n", switch, *pair)
        run_tool("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
        run_tool("ip", "-n", own, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        run_tool("ip", "-n", own, "link", "set", "lo", "up")
        run_tool("ip", "-n", own, "link", "set", "eth0", "up")
        if self._shape:
            run_tool("tc", "-n", own, "qdisc", "add", "dev", "eth0", "root", *self._shape)
            run_tool("tc", "-n", switch, "qdisc", "add", "dev", port, "root", *self._shape)
        enter = ["nsenter", f"--net={NAMESPACES / own}", "unshare", "--uts", "--mount"]
        holder = subprocess.Popen(
            [*enter, "sh", "-c", HOLD, "sh", name, str(self._folder / "hosts")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._holders[name] = holder
        assert holder.stdout
        said = holder.stdout.readline().decode().strip()
        if said != "there":
            raise Unavailable(f"host {name} cannot be set up: {said}")
        limit = f"taskset -c {self._cpus[name]}" if self._cpus[name] else ""
        (self._folder / name).write_text(f"holder={holder.pid}\nlimit='{limit}'\n")

    def _namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    # ---- Running programs

    def popen(
        self, host: str, words: Sequence[str | Path], **options: Any
    ) -> subprocess.Popen[Any]:
        """Starts a program on a host. `options` are Popen's; its `env` gets MERON_HOST."""
        limit = ["taskset", "-c", self._cpus[host]] if self._cpus[host] else []
        enter = ["nsenter", "--target", str(self._holders[host].pid), "--net", "--uts", "--mount"]
        # Entering a mount namespace goes to its root folder.
        back = ["sh", "-c", 'cd "$0" && exec "$@"', str(options.pop("cwd", None) or os.getcwd())]
        environment = {**(options.pop("env", None) or os.environ), "MERON_HOST": host}
        return subprocess.Popen([*enter, *back, *limit, *words], env=environment, **options)

    def mpirun(
        self,
        words: Sequence[str | Path],
        *,
        ranks_per_host: int = 1,
        environment: Mapping[str, str] | None = None,
        mca: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a program under Open MPI's mpirun, which runs on host A; ranks count up host by
        host. `environment` is for the ranks, on top of this process's; `mca` are settings of Open
        MPI that go before those made here; `options` are Popen's."""
        if shutil.which("mpirun") is None:
            raise Unavailable("no program mpirun (tools/setup --mpi installs Open MPI)")
        ranks = ranks_per_host * len(self.names)
        settings = {
            "plm": "rsh",
            "plm_rsh_agent": str(self._folder / "agent"),
            "plm_rsh_no_tree_spawn": "1",
            "oob_tcp_if_include": f"{SUBNET}.0/24",
            "btl_tcp_if_include": f"{SUBNET}.0/24",
            "btl": "tcp,self",
            "pml": "ob1",
            "orte_tmpdir_base": str(self._folder),
            # When a rank fails the others are killed at once, rather than seconds after a SIGTERM.
            "odls_base_sigkill_timeout": "0",
        }
        if ranks > len(os.sched_getaffinity(0)):
            settings["mpi_yield_when_idle"] = "1"
        command = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe"]
        command += ["--host", ",".join(f"{name}:{ranks_per_host}" for name in self.names)]
        for key, value in {**settings, **(mca or {})}.items():
            command += ["--mca", key, value]
        # mpirun runs as root only if both variables are set.
        allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        everything = {**os.environ, **allow, **(environment or {})}
        return self.popen("A", [*command, *words], env=everything, **options)

    def run(
        self, words: Sequence[str | Path], *, timeout: float = 60, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs mpirun and waits for it, with all output in `stdout`. Kills it after the timeout."""
        started = self.mpirun(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            **options,
        )
        try:
            output = output_of(started, timeout)
        except BaseException:
            for name in self.names:
                self.kill(name)
            started.communicate()
            raise
        return subprocess.CompletedProcess(list(words), started.returncode, output, "")

    # ---- Looking, and doing harm

    def traffic(self) -> dict[str, Traffic]:
        """By host, since the beginning. MPI's start and end are in it: some KiB per rank."""
        found = {}
        for name in self.names:
            words = ["ip", "-n", self._namespace(name), "-j", "-s", "link", "show", "eth0"]
            counts = json.loads(run_tool(*words))[0]["stats64"]
            sent, received = counts["tx"], counts["rx"]
            found[name] = Traffic(
                sent["bytes"], received["bytes"], sent["packets"], received["packets"]
            )
        return found

    def processes(self, host: str) -> list[int]:
        """The processes that run on a host."""
        found = run_tool("ip", "netns", "pids", self._namespace(host)).split()
        return [int(word) for word in found if int(word) != self._holders[host].pid]

    def kill(self, host: str) -> None:
        """Kills all that runs on a host, as if its power were cut. The host stays."""
        for process in self.processes(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def connect(self, host: str, connected: bool) -> None:
        """Pulls a host's cable out, or plugs it in again."""
        state = "up" if connected else "down"
        port = f"port{host}"
        run_tool("ip", "-n", self._namespace(SWITCH), "link", "set", port, state)


# ---- The command --------------------------------------------------------------------------------


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2, metavar="N")
    parser.add_argument("--ranks-per-host", type=int, default=1, metavar="N")
    parser.add_argument("--rate", help="1gbit, 100mbit, ...: of each direction of each host")
    parser.add_argument("--burst", help="what may go at once (default: 4 ms of the rate)")
    parser.add_argument(
        "--latency", default="50ms", help="how long a packet may wait (%(default)s)"
    )
    parser.add_argument("--cpus", help='each host\'s processors: "0/1"; one set for all: "0-1"')
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--traffic", type=Path, metavar="FILE", help="where to say, as JSON, what")
    parser.add_argument("words", nargs="+", metavar="program", help="after --, with its arguments")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    environment = dict(pair.split("=", 1) for pair in arguments.env)
    shape = {key: getattr(arguments, key) for key in ("rate", "burst", "latency", "cpus")}
    with Hosts(arguments.hosts, **shape) as hosts:
        process = hosts.mpirun(
            arguments.words, ranks_per_host=arguments.ranks_per_host, environment=environment
        )
        try:
            status = process.wait()
        except BaseException:
            stop(process)
            raise
        finally:
            if arguments.traffic:
                counts = {name: asdict(count) for name, count in hosts.traffic().items()}
                arguments.traffic.write_text(json.dumps(counts, indent=2) + "\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as problem:
        print(f"hosts.py: skipped: {problem}", file=sys.stderr)
        sys.exit(SKIPPED)
    except ValueError as problem:
        print(f"hosts.py: {problem}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
