# SPDX-License-Identifier: Apache-2.0
"""The hosts and devices that `deepspeed` starts ranks on: a hostfile, --include, --exclude."""

from __future__ import annotations

import re
import socket
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
    hosts: Hosts = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = LINE.fullmatch(text)
        if match is None:
            raise LaunchError(
                f"--hostfile {path}, line {number}: {text!r} is not of the form NAME slots=N"
            )
        if match[1] in hosts:
            raise LaunchError(f"--hostfile {path}, line {number}: {match[1]} is there twice")
        hosts[match[1]] = list(range(int(match[2])))
    if not hosts:
        raise LaunchError(f"--hostfile {path} names no host")
    return hosts


def parse_selection(text: str, option: str) -> dict[str, list[int] | None]:
    """NAME[:SLOT,...][@NAME...]: by host, slots, or None for all of them."""
    chosen: dict[str, list[int] | None] = {}
    for item in text.split("@"):
        name, colon, slots = item.strip().partition(":")
        if not name or name in chosen:
            raise LaunchError(f"{option} {text}: {item!r} is no host, or is there twice")
        if not colon:
            chosen[name] = None
            continue
        if not re.fullmatch(r"\d+(,\d+)*", slots):
            raise LaunchError(f"{option} {text}: {slots!r} is no list of slots, such as 0,2")
        chosen[name] = [int(slot) for slot in slots.split(",")]
    return chosen


def select(hosts: Hosts, include: str, exclude: str) -> Hosts:
    """The hosts and slots that --include names, or all but those of --exclude."""
    if include and exclude:
        raise LaunchError("--include and --exclude are both given. Give one of them")
    if not include and not exclude:
        return hosts
    option = "--include" if include else "--exclude"
    chosen = parse_selection(include or exclude, option)
    for name, slots in chosen.items():
        if name not in hosts:
            raise LaunchError(f"{option}: there is no host {name}, but {', '.join(hosts)}")
        unknown = [slot for slot in slots or [] if slot not in hosts[name]]
        if unknown:
            raise LaunchError(
                f"{option}: {name} has no slot {unknown[0]}, but {spelled(hosts[name])}"
            )
    if include:
        return {
            name: sorted(set(slots)) if (slots := chosen[name]) is not None else hosts[name]
            for name in hosts
            if name in chosen
        }
    kept = {
        name: [slot for slot in slots if slot not in excluded_of(chosen, name, slots)]
        for name, slots in hosts.items()
    }
    kept = {name: slots for name, slots in kept.items() if slots}
    if not kept:
        raise LaunchError(f"--exclude {exclude} leaves no slot")
    return kept


def excluded_of(chosen: dict[str, list[int] | None], name: str, slots: list[int]) -> list[int]:
    if name not in chosen:
        return []
    named = chosen[name]
    return slots if named is None else named


def spelled(slots: list[int]) -> str:
    return ", ".join(map(str, slots)) if slots else "none"


def is_local(name: str) -> bool:
    """True if a host name is a name of this host."""
    own = socket.gethostname()
    return name in ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0], socket.getfqdn())
