#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the conformance cases through the package `meron`. ../README.md says how it is called."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path

# The table and its parser are the matrix', one folder up.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import calls  # noqa: F401  (its operation registers itself, as do the others)
import checkpoints  # noqa: F401
import files  # noqa: F401
import gathers  # noqa: F401
import gradients  # noqa: F401
import meron
import optimizers  # noqa: F401
import params  # noqa: F401
import schedules  # noqa: F401
from operations import OPERATIONS
from session import Session, Setup
from table import TRANSPORTS, Case, Malformed, Statement, read_cases
from values import check, check_equal, holds

writing = threading.Lock()


def say(line: str) -> None:
    """Writes a complete line at once: ranks that are processes share the output."""
    data = (" ".join(line.split()) + "\n").encode()
    with writing:
        os.write(1, data)


def execute(session: Session, statement: Statement) -> None:
    """Executes an operation and holds its failure against what the statement expects."""
    if statement.get("on") and str(session.setup.rank) not in statement.list("on"):
        return
    if statement.operation not in OPERATIONS:
        raise Malformed(f"unknown operation {statement.operation!r}")
    expected = statement.get("fails")
    try:
        OPERATIONS[statement.operation](session, statement)
    except meron.Error as error:
        check_failure(statement, error)
        return
    check(expected is None, f"it did not fail with {expected}")


def check_failure(statement: Statement, error: meron.Error) -> None:
    code = meron.status_name(error.status)
    expected = statement.get("fails")
    if expected is None or code not in expected.split("|"):
        raise meron.Error(f"{code} instead of {expected or 'success'}: {error}") from error
    says, peer = statement.get("says"), statement.get("peer")
    check(says is None or holds(error.message, says), f"the message lacks {says!r}: {error}")
    if peer is not None:
        check_equal("the peer", error.peer, int(peer))
    # The full message contains each part of the error.
    for part in (error.operation, error.subject, error.advice[1:]):
        check(holds(error.message, part) or not error.operation, f"the message lacks {part!r}")


def run_case(setup: Setup, case: Case, plan: str) -> str:
    """Returns the error, or ""."""
    session = Session(setup, case.name, plan)
    try:
        for statement in case.statements:
            try:
                execute(session, statement)
            except Exception as error:
                where = f"rank {setup.rank}: line {statement.line}: {statement.operation}"
                return f"{where}: {type(error).__name__}: {error}"
        return ""
    finally:
        session.end()


def run_rank(setup: Setup, cases: list[Case], failed: list[str]) -> None:
    for case in cases:
        if not case.runs_on(setup.transport, setup.world):
            continue
        for plan in case.plans:
            title = f"{case.name} {plan}"
            if setup.rank == 0:
                say(f"# {title}")
            wrong = run_case(setup, case, plan)
            if wrong:
                failed.append(title)
                say(f"not ok {title}: {wrong}")
            elif setup.rank == 0:
                say(f"ok {title}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--job", default="conformance")
    parser.add_argument("--only", metavar="CASE")
    arguments = parser.parse_args()
    try:
        cases = read_cases(arguments.cases)
    except (OSError, Malformed) as error:
        parser.error(str(error))
    if arguments.only:
        cases = [case for case in cases if case.name == arguments.only]

    failed: list[str] = []
    if arguments.transport == "shm":
        rank, world = (int(os.environ[name]) for name in ("MERON_RANK", "MERON_WORLD_SIZE"))
        run_rank(Setup(rank, world, "shm", arguments.job), cases, failed)
    else:
        setups = [
            Setup(rank, arguments.ranks, arguments.transport, arguments.job)
            for rank in range(arguments.ranks)
        ]
        threads = [
            threading.Thread(target=run_rank, args=(setup, cases, failed)) for setup in setups
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
