# SPDX-License-Identifier: Apache-2.0
"""The text that pytest prints for a failure on several ranks."""

from __future__ import annotations

from collections.abc import Iterable

from ranks.pool import Ending

MOST = 4000  # characters of one rank's output


def describe(endings: list[Ending]) -> str:
    """Names each rank that failed with its last line, and gives the traceback of the first."""
    failed = failures_of(endings)
    first = failed[0]
    lines = [f"{named(group, len(endings))} failed: {text}" for text, group in folded(failed)]
    passed = [ending.rank for ending in endings if ending.outcome.status == "passed"]
    if passed:
        lines.append(f"{named(passed, len(endings))} passed")
    lines += ["", f"rank {first.rank}:", first.outcome.text.rstrip()]
    return "\n".join(lines)


def failures_of(endings: Iterable[Ending]) -> list[Ending]:
    """Those that failed, in order of time: the first may be the cause of the others."""
    failed = [ending for ending in endings if ending.outcome.status == "failed"]
    return sorted(failed, key=lambda ending: (ending.outcome.at, ending.rank))


def folded(failed: list[Ending]) -> list[tuple[str, list[int]]]:
    """Ranks of one text together, in the order of the first of each."""
    groups: dict[str, list[int]] = {}
    for ending in failed:
        groups.setdefault(ending.outcome.summary, []).append(ending.rank)
    return [(text, sorted(ranks)) for text, ranks in groups.items()]


def named(ranks: list[int], world_size: int) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} of {world_size}"
    return f"ranks {', '.join(map(str, ranks))} of {world_size}"


def sections(endings: list[Ending]) -> list[tuple[str, str]]:
    """Titles and texts: what each rank wrote, and tracebacks beside the first."""
    found = []
    failed = failures_of(endings)
    for ending in failed[1:]:
        if ending.outcome.text != failed[0].outcome.text:
            found.append((f"rank {ending.rank}: failure", ending.outcome.text))
    for ending in endings:
        for title, text in (("stdout", ending.output), ("stderr", ending.errors)):
            if text.strip():
                found.append((f"rank {ending.rank}: {title}", text[-MOST:]))
    return found
