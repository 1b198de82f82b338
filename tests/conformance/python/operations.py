# SPDX-License-Identifier: Apache-2.0
"""The operations on the library, plans, contexts, groups and futures. README.md defines them."""

from __future__ import annotations

import dataclasses
import json
import mailbox
import time
from collections.abc import Callable
from typing import Any

import meron
from growing import GROWING
from meron._native import initial, lib, new, receive
from meron.dtypes import SIZES
from session import Session
from table import Malformed, Statement
from values import check, check_equal, check_has

Operation = Callable[[Session, Statement], None]
OPERATIONS: dict[str, Operation] = {}

DEADLINE = 20.0  # of a context's operations, in seconds
ARENA_RESERVE = 64 << 20
# Loops that poll sleep for PAUSE seconds, ATTEMPTS times at most.
PAUSE = 0.001
ATTEMPTS = round(DEADLINE / PAUSE)


def operation(function: Operation) -> Operation:
    OPERATIONS[function.__name__.rstrip("_")] = function
    return function


def wanted(statement: Statement, key: str) -> str:
    value = statement.get(key)
    if value is None:
        raise Malformed(f"{statement.operation!r} lacks {key}=")
    return value


def number(statement: Statement, key: str, otherwise: float) -> float:
    value = statement.get(key)
    return otherwise if value is None else float(value)


def finish_or_keep(session: Session, statement: Statement, future: meron.Future) -> None:
    """Waits for a future, gives it away (`none`), or keeps it under the name of `future=`."""
    if statement.get("future") == "none":
        future.release()
    elif statement.get("future"):
        session.keep(statement.get("future"), future)
    else:
        future.wait()
        future.release()


# ---- Library and plans ---------------------------------------------------------------------------


@operation
def library(session: Session, statement: Statement) -> None:
    number = lib.meron_version()
    check_equal("the version", f"{number >> 16}.{number >> 8 & 255}.{number & 255}", meron.version)
    check_equal("the package's version", meron.__version__, meron.version)
    check_equal("sizes", SIZES, {"f32": 4, "bf16": 2, "f16": 2})
    names = [meron.status_name(status) for status in (0, -100, -300, -402)]
    expected = ["MERON_OK", "MERON_E_ARGUMENT", "MERON_E_TIMEOUT", "MERON_E_INTERNAL"]
    check_equal("the names", names, expected)


@operation
def system(session: Session, statement: Statement) -> None:
    check_has(json.dumps(meron.system_info()), statement)


@operation
def plan(session: Session, statement: Statement) -> None:
    preset = statement.get("preset")
    make, text = (
        (meron.Plan.parse, wanted(statement, "json"))
        if preset is None
        else (meron.Plan.preset, preset)
    )
    session.keep(statement.name, make(text))


@operation
def plan_json(session: Session, statement: Statement) -> None:
    plan = session.find(meron.Plan, statement.name)
    check_has(plan.json(), statement)
    check(meron.Plan.parse(plan.json()) == plan, "the plan read back is another one")


@operation
def plan_same(session: Session, statement: Statement) -> None:
    one = session.find(meron.Plan, statement.name)
    check_equal("the plan", one, session.find(meron.Plan, statement.get("other")))


@operation
def plan_predict(session: Session, statement: Statement) -> None:
    plan = session.find(meron.Plan, statement.name)
    as_table = statement.get("table") == "1"
    result = (plan.predict_table if as_table else plan.predict)(
        wanted(statement, "model"),
        int(wanted(statement, "ranks")),
        micro_batches=int(number(statement, "micro_batches", 1)),
        gathers_per_micro_batch=int(number(statement, "gathers", 2)),
        ranks_per_node=int(number(statement, "node", 0)),
        optimizer_states=int(number(statement, "states", 2)),
    )
    check_has(result if as_table else json.dumps(result), statement)


# ---- Contexts ------------------------------------------------------------------------------------


@operation
def open_(session: Session, statement: Statement) -> None:
    setup = session.setup
    name = statement.name or "ctx"
    given = statement.get("plan")
    options: dict[str, Any] = {}
    if statement.get("limit"):
        options["host_memory_limit"] = int(wanted(statement, "limit"))
    if statement.get("device"):
        options["device"] = statement.get("device")
    if statement.get("stoppable"):
        options["should_stop"] = lambda: session.stop
    job = statement.get("job") or f"{setup.job}.{session.case}.{session.plan}.{name}"
    transport: Any = statement.get("transport") or setup.transport
    if transport == "custom":
        transport = mailbox.join(job, setup.rank, setup.world)
    context = meron.open(
        int(number(statement, "rank", setup.rank)),
        int(number(statement, "world", setup.world)),
        transport,
        session.plan if given is None else session.find(meron.Plan, given),
        job=job,
        token=statement.get("token"),
        timeout=number(statement, "timeout", DEADLINE),
        arena_reserve=ARENA_RESERVE,
        threads=1,
        **options,
    )
    session.keep(name, context)
    session.current_name = name


@operation
def open_version(session: Session, statement: Statement) -> None:
    options = initial("meron_context_options")
    transport = new("char[]", session.setup.transport.encode())
    options.transport = transport
    options.header_version = int(wanted(statement, "minor")) << 8
    receive("meron_context *", lib.meron_context_open, options)


@operation
def use(session: Session, statement: Statement) -> None:
    session.current_name = statement.name


@operation
def close(session: Session, statement: Statement) -> None:
    held = session.held(statement.name or session.current_name)
    if held.released:
        held.release()  # Python's own close may be called twice
    else:
        session.find(meron.Context, statement.name or session.current_name).close()
        held.released = True


@operation
def context(session: Session, statement: Statement) -> None:
    current = session.context()
    found = (current.rank, current.world_size, current.transport)
    setup = session.setup
    check_equal("the context", found, (setup.rank, setup.world, setup.transport))


@operation
def progress(session: Session, statement: Statement) -> None:
    session.context().progress()


@operation
def stop(session: Session, statement: Statement) -> None:
    session.stop = statement.name == "1"


@operation
def mark(session: Session, statement: Statement) -> None:
    session.marked[session.current_name] = session.context().stats()


def check_counted(session: Session, expected: dict[str, int]) -> None:
    now, before = session.context().stats(), session.marked.get(session.current_name)
    for name, value in expected.items():
        found = getattr(now, name)
        if name in GROWING and before is not None:
            found -= getattr(before, name)
        check_equal(name, found, value)


@operation
def counted(session: Session, statement: Statement) -> None:
    expected = {name: int(value) for name, value in statement.arguments if name != "on"}
    check_counted(session, expected)


@operation
def predicted(session: Session, statement: Statement) -> None:
    prediction = dataclasses.asdict(
        session.context().predict(
            int(number(statement, "micro_batches", 1)),
            gathers_per_micro_batch=int(number(statement, "gathers", 2)),
        )
    )
    del prediction[
        "secondary_partition_bytes"
    ]  # within the peak, and otherwise not counted by itself
    steps = int(number(statement, "steps", 1))
    times = {name: steps if name in GROWING else 1 for name in prediction}
    expected = {name: value * times[name] for name, value in prediction.items()}
    if session.setup.transport == "custom":  # messages have memory of their own
        peak = expected.pop("peak_bytes")
        check(session.context().stats().peak_bytes >= peak, "the peak is below the prediction")
    check_counted(session, expected)


@operation
def flight_record(session: Session, statement: Statement) -> None:
    check_has(json.dumps(session.context().flight_record()), statement)


# ---- Groups --------------------------------------------------------------------------------------


@operation
def group(session: Session, statement: Statement) -> None:
    made = session.context().group(int(rank) for rank in statement.list("ranks"))
    if made is not None:
        session.keep(statement.name, made)


@operation
def group_is(session: Session, statement: Statement) -> None:
    group = session.group(statement.name)
    ranks = [int(rank) for rank in statement.list("ranks")]
    check_equal("the group's size", group.size, len(ranks))
    check_equal("the world's rank", ranks[group.rank], session.setup.rank)


@operation
def group_status(session: Session, statement: Statement) -> None:
    group = session.group(statement.name)
    for attempt in range(ATTEMPTS if statement.get("until") == "broken" else 1):
        if attempt:
            time.sleep(PAUSE)
        error = group.status()
        if error is not None:
            raise error


@operation
def abort(session: Session, statement: Statement) -> None:
    session.group(statement.name).abort(wanted(statement, "reason"))


@operation
def barrier(session: Session, statement: Statement) -> None:
    finish_or_keep(session, statement, session.group(statement.name).barrier_begin())


@operation
def broadcast(session: Session, statement: Statement) -> None:
    shape = (int(wanted(statement, "count")),)
    array = session.place.array(wanted(statement, "with"), wanted(statement, "dtype"), shape)
    session.group(statement.name).broadcast(array, int(wanted(statement, "root")))
    session.place.check_data(statement, array)


@operation
def all_reduce(session: Session, statement: Statement) -> None:
    shape = (int(wanted(statement, "count")),)
    array = session.place.array(wanted(statement, "with"), wanted(statement, "dtype"), shape)
    session.group(statement.name).all_reduce(array, wanted(statement, "op"))
    session.place.check_data(statement, array)


# ---- Waiting and releasing -----------------------------------------------------------------------


def timeout_of(statement: Statement) -> float | None:
    text = statement.get("timeout")
    return None if text is None else float(text)


def check_ended(statement: Statement, ended: bool) -> None:
    check(ended != (statement.get("pending") == "1"), f"ended: {ended}")


@operation
def wait(session: Session, statement: Statement) -> None:
    check_ended(statement, session.held(statement.name).item.wait(timeout_of(statement)))


@operation
def wait_any(session: Session, statement: Statement) -> None:
    futures = [session.held(name).item for name in statement.list("futures")]
    found = meron.wait_any(futures, timeout_of(statement))
    check_ended(statement, found is not None)
    if statement.get("is") is not None:
        check_equal("the index", found, int(number(statement, "is", 0)))


@operation
def finish(session: Session, statement: Statement) -> None:
    future = session.held(statement.name).item
    try:
        future.wait()
    finally:
        future.release()


@operation
def poll(session: Session, statement: Statement) -> None:
    item = session.held(statement.name).item
    ended = item.done()
    for _ in range(0 if statement.get("pending") == "1" else ATTEMPTS):
        if ended:
            break
        time.sleep(PAUSE)
        ended = item.done()
    check_ended(statement, ended)


@operation
def release(session: Session, statement: Statement) -> None:
    session.held(statement.name).release()


@operation
def sleep(session: Session, statement: Statement) -> None:
    time.sleep(number(statement, "s", 0))
