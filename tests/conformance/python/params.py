# SPDX-License-Identifier: Apache-2.0
"""The operations on params, units and updates."""

from __future__ import annotations

import numpy as np

import meron
from operations import number, operation, wanted
from session import Session
from table import Statement
from values import check, check_equal, shape_of


@operation
def param(session: Session, statement: Statement) -> None:
    name = statement.get("name")
    group = statement.get("group")
    made = session.context().param(
        statement.name if name is None else name,
        shape_of(wanted(statement, "shape")),
        wanted(statement, "dtype"),
        frozen=statement.get("frozen") == "1",
        group=None if group is None else session.group(group),
    )
    session.keep(statement.name, made)


@operation
def param_is(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    _ = param.shard_range  # asks the library, which says whether the param is still there
    found = {
        "shape": "x".join(map(str, param.shape)) or "scalar",
        "dtype": param.dtype_name,
        "count": str(param.size),
        "frozen": str(int(param.frozen)),
        "name": param.name,
    }
    for key, value in found.items():
        check_equal(key, value, statement.get(key) or value)


@operation
def shard_range(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    check(param.shard_range.stop <= param.size, "owns more than there is")
    total = session.context().world.all_reduce(np.array([len(param.shard_range)], np.float32))
    copies = session.setup.world if statement.get("all") == "1" else 1
    check_equal("what all ranks own", int(total[0]), copies * param.size)


@operation
def unit(session: Session, statement: Statement) -> None:
    params = [session.find(meron.Param, name) for name in statement.list("params")]
    session.keep(
        statement.name, session.context().unit(statement.get("name") or statement.name, params)
    )


@operation
def unit_is(session: Session, statement: Statement) -> None:
    unit = session.find(meron.Unit, statement.name)
    check_equal("the name", unit.name, statement.get("name") or unit.name)
    names = ",".join(param.name for param in unit.params)
    check_equal("the params", names, statement.get("params") or names)
    flats = ",".join(f"{flat.dtype_name}:{flat.size}" for flat in unit.flats)
    check_equal("the flats", flats, statement.get("flats") or flats)
    info = unit.info()
    for key in ("state", "version", "leases", "reduced", "param_codec", "gradient_codec"):
        value = getattr(info, key)
        found = str(int(value)) if isinstance(value, bool) else str(value)
        check_equal(key, found, statement.get(key) or found)
    check_error(statement, "param_error", info.param_error, info.param_worst_block)
    check_error(statement, "gradient_error", info.gradient_error, info.gradient_worst_block)


def check_error(statement: Statement, name: str, *errors: float) -> None:
    """Errors are 0, or above 0 and at most what is given."""
    if statement.get(name) is not None:
        most = number(statement, name, 0)
        right = all(0 < error <= most if most else error == 0 for error in errors)
        check(right, f"{name} is {errors}, not up to {most}")


@operation
def update(session: Session, statement: Statement) -> None:
    update = session.context().update(session.units(statement))
    session.keep(statement.name, update.__enter__())


@operation
def write(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    count = statement.get("count")
    shape = param.shape if count is None else (int(count),)
    dtype = statement.get("dtype") or param.dtype_name
    values = session.place.array(wanted(statement, "with"), dtype, shape)
    session.find(meron.Update, statement.name).write(param, values)


@operation
def write_view(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    view = session.find(meron.Update, statement.name).view(param)
    before = statement.get("before")
    if before is not None:
        found = meron.to_float32(view)
        expected = session.place.values(before, view.size, param.shard_range.start)
        check(np.array_equal(found, expected), "the view shows other values")
    session.place.assign(view, wanted(statement, "with"), param.dtype_name, param.shard_range.start)


@operation
def publish(session: Session, statement: Statement) -> None:
    session.find(meron.Update, statement.name).__exit__(None, None, None)
    session.held(statement.name).released = True


@operation
def destroy(session: Session, statement: Statement) -> None:
    session.find(meron.Unit, statement.name).destroy()
