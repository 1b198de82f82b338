# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin for tests of several ranks (README.md).

`@pytest.mark.ranks(2, 3)` runs a test on 2 ranks and on 3, each rank in a process of its own. The
functions here are for tests that start ranks themselves, to compare one world with another.
"""

from __future__ import annotations

import functools
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ranks.pool import Ending, Pool
from ranks.protocol import Call
from ranks.report import describe, sections

__all__ = ["RanksFailed", "call", "launch", "program", "threads"]

T = TypeVar("T")
DEADLINE = 120.0  # seconds; pytest.ini may set another as ranks_deadline
preloads: list[str] = []
plain_preloads: list[str] = []
deadline_of_pool = DEADLINE
# Title and text of each part for the report of the test that runs.
noted: list[tuple[str, str]] = []


class RanksFailed(AssertionError):
    """A function failed on a rank. The text names the ranks, the first that failed first."""


@functools.cache
def pool() -> Pool:
    """The processes of this pytest session, which start when they are first used."""
    return Pool(preloads, plain_preloads, deadline_of_pool)


def close() -> None:
    if pool.cache_info().currsize:
        pool().close()
        pool.cache_clear()


def failure_of(endings: list[Ending]) -> str:
    """Describes the failure, if a rank failed. Skips the test if a rank skipped it."""
    statuses = {ending.outcome.status for ending in endings}
    if statuses == {"passed"}:
        return ""
    noted.extend(sections(endings))
    if "failed" in statuses:
        return describe(endings)
    skipped = next(each for each in endings if each.outcome.status == "skipped")
    pytest.skip(skipped.outcome.text)


def call(
    count: int,
    function: Callable[..., Any],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    deadline: float | None = None,
    **keywords: Any,
) -> list[Any]:
    """Calls a function on `count` ranks, each a process of its own, and returns its values by rank.

    Args:
        function: of a module that the ranks import; a nested function has no name there. Arguments
            and values are pickled.
        environment: variables that differ from pytest's.
        deadline: seconds after which ranks are killed.

    Raises:
        RanksFailed: the function failed on a rank, or a rank died or hung.
    """
    __tracebackhide__ = True
    if "<locals>" in function.__qualname__:
        raise TypeError(f"{function.__qualname__}: ranks find a function by its name in its module")
    called = Call(function.__module__, function.__qualname__, arguments, keywords)
    endings = pool().run(count, called, environment=environment, deadline=deadline)
    if text := failure_of(endings):
        raise RanksFailed(text)
    return [ending.outcome.value for ending in endings]


def threads(count: int, body: Callable[[Any], T], **options: Any) -> list[T]:
    """Calls `body(context)` on ranks that are threads of this process. Returns its values by rank.

    Args:
        options: `deadline`, and those of `meron.open`.
    """
    from ranks import local  # which imports meron

    return local.run(count, body, **options)


def program(
    count: int, path: str | os.PathLike[str], *arguments: object, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program with its arguments on `count` ranks, forked as those of tests are.

    This saves the seconds that importing PyTorch takes, and those of the interpreter's end. The
    exit code is the first that is not 0. Each line on stderr names its rank.
    """
    words = [str(path), *map(str, arguments)]
    called = Call("ranks", "run_program", (words,))
    endings = pool().run(count, called, environment=environment)
    codes = [ending.code or (1 if why(ending) else ending.outcome.value) for ending in endings]
    errors = [
        f"[rank{ending.rank}]: {line}" if count > 1 else line
        for ending in endings
        for line in (ending.errors + why(ending)).splitlines()
    ]
    output = "".join(ending.output for ending in endings)
    code = next((code for code in codes if code), 0)
    return subprocess.CompletedProcess(words, code, output, "\n".join(errors))


def why(ending: Ending) -> str:
    return ending.outcome.text if ending.outcome.status == "failed" else ""


def run_program(words: list[str]) -> int:
    """Returns the exit code of a program that ends by itself."""
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


def launch(
    count: int, *arguments: object, source: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a Python program, or source, by the command `meron run`, as users do.

    For tests of launchers, of how processes end, and of what the command reports.
    """
    limit = 2 * deadline_of_pool
    command = [os.environ["MERON_COMMAND"], "run", "-n", str(count), "--timeout", str(limit), "--"]
    command += [sys.executable, "-B"]
    command += ["-c", source] if source is not None else []
    command += [str(argument) for argument in arguments]
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=limit + 30,
    )
