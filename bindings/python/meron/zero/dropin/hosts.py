# SPDX-License-Identifier: Apache-2.0
"""The hosts and devices that `deepspeed` starts ranks on: a hostfile, --include, --exclude."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from pathlib import Path

# By host: the numbers of its devices (slots), one rank on each.
Hosts = dict[str, list[int]]

LINE = re.compile(r"(\S+)\s+slots=(\d+)\s*")


class LaunchError(ValueError):
    """A command line that starts nothing. The message says what to change."""


def read_hostfile(path: str) -> Hosts:
    """The hosts of a file of lines `NAME slots=N`. LaunchError names the line that is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise LaunchError(
            f"--hostfile {path}: {error.strerror}. Leave it out to start ranks on this host"
        ) from None
    counts = counted_slots(lines, f"--hostfile {path}")
    return {name: list(range(count)) for name, count in counts.items()}


def counted_slots(lines: Iterable[str], where: str) -> dict[str, int]:
    """The number of slots of each host of lines `NAME slots=N`. LaunchError names the line that is
    none, after `where`."""
    counts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = LINE.fullmatch(text)
        if match is None:
            raise LaunchError(f"{where}, line {number}: {text!r} is not of the form NAME slots=N")
        if match[1] in counts:
            raise LaunchError(f"{where}, line {number}: {match[1]} is there twice")
        counts[match[1]] = int(match[2])
    if not counts:
        raise LaunchError(f"{where} names no host")
    return counts


def parse_selection(text: str, option: str) -> dict[str, list[int] | None]:
    """NAME[:SLOT,...][@NAME...]: by host, slots, or None for all of them. The slots of a host that
    is named several times are joined."""
    chosen: dict[str, list[int] | None] = {}
    for item in text.split("@"):
        name, colon, slots = item.strip().partition(":")
        if not name:
            raise LaunchError(f"{option} {text}: {item!r} is no host")
        if not colon:
            chosen[name] = None
            continue
        if not re.fullmatch(r"\d+(,\d+)*", slots):
            raise LaunchError(f"{option} {text}: {slots!r} is no list of slots, such as 0,2")
        before = chosen.get(name, [])
        if before is not None:
            chosen[name] = before + [int(slot) for slot in slots.split(",")]
    return chosen


def selected_slots(hosts: Hosts, text: str, option: str) -> Hosts:
    """The hosts and slots that a selection names, in the order of `hosts`."""
    chosen = parse_selection(text, option)
    for name, slots in chosen.items():
        if name not in hosts:
            raise LaunchError(f"{option}: there is no host {name}, but {', '.join(hosts)}")
        unknown = [slot for slot in slots or [] if slot not in hosts[name]]
        if unknown:
            raise LaunchError(
                f"{option}: {name} has no slot {unknown[0]}, but {spelled(hosts[name])}"
            )
    return {
        name: hosts[name] if (slots := chosen[name]) is None else sorted(set(slots))
        for name in hosts
        if name in chosen
    }


def remaining_slots(hosts: Hosts, text: str, option: str) -> Hosts:
    """The hosts and slots that a selection does not name."""
    left_out = selected_slots(hosts, text, option)
    kept = {
        name: [slot for slot in slots if slot not in left_out.get(name, [])]
        for name, slots in hosts.items()
    }
    return {name: slots for name, slots in kept.items() if slots}


def select(hosts: Hosts, include: str, exclude: str) -> Hosts:
    """The hosts and slots that --include names, or all but those of --exclude."""
    if include and exclude:
        raise LaunchError("--include and --exclude are both given. Give one of them")
    if include:
        return selected_slots(hosts, include, "--include")
    if not exclude:
        return hosts
    kept = remaining_slots(hosts, exclude, "--exclude")
    if not kept:
        raise LaunchError(f"--exclude {exclude} leaves no slot")
    return kept


def spelled(slots: list[int]) -> str:
    return ", ".join(map(str, slots)) if slots else "none"


def is_local(name: str) -> bool:
    """True if a host name is a name of this host."""
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0], socket.getfqdn())
