# SPDX-License-Identifier: Apache-2.0
"""The operations on schedules."""

from __future__ import annotations

import meron
from operations import number, operation, timeout_of, wanted
from session import Session
from table import Statement
from values import check, check_equal

LIMITS = {
    "prefetch": "prefetch_elements",
    "live": "max_live_elements",
    "reuse": "max_reuse_elements",
    "persist": "persist_elements",
    "persist_total": "persist_total_elements",
}
# The counts that do not depend on time.
COUNTS = (
    "entered",
    "units",
    "passes",
    "uses",
    "ahead",
    "deviations",
    "live_elements",
    "peak_live_elements",
)


def found(session: Session, statement: Statement) -> meron.Schedule:
    return session.find(meron.Schedule, statement.name)


@operation
def schedule(session: Session, statement: Statement) -> None:
    limits = {
        own: int(wanted(statement, key))
        for key, own in LIMITS.items()
        if statement.get(key) is not None
    }
    tier = statement.get("tier") or "host"
    units = session.units(statement)
    session.keep(statement.name, session.context().schedule(units, tier=tier, **limits))


@operation
def pass_(session: Session, statement: Statement) -> None:
    found(session, statement).start_pass(int(number(statement, "kind", 0)))


@operation
def enter(session: Session, statement: Statement) -> None:
    entered = found(session, statement).enter(
        int(wanted(statement, "index")), timeout_of(statement)
    )
    check(entered != (statement.get("pending") == "1"), f"entered: {entered}")


@operation
def leave(session: Session, statement: Statement) -> None:
    found(session, statement).leave(int(wanted(statement, "index")))


@operation
def used(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    array = found(session, statement).view(param)
    check_equal("the dtype", array.dtype, param.dtype)
    check_equal("the shape", array.shape, param.shape)
    check(not array.flags.writeable, "the array is writable")
    session.place.check_data(statement, array)


@operation
def reset(session: Session, statement: Statement) -> None:
    found(session, statement).reset()


@operation
def schedule_is(session: Session, statement: Statement) -> None:
    info = found(session, statement).info()
    for name in COUNTS:
        expected = statement.get(name)
        if expected is not None:
            check_equal(name, getattr(info, name), int(expected))
