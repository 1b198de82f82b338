# SPDX-License-Identifier: Apache-2.0
"""The operations on gathers."""

from __future__ import annotations

import zlib

import numpy as np

import meron
from operations import operation, wanted
from session import Session
from table import Malformed, Statement
from values import Array, check, check_equal


def destinations(
    session: Session, statement: Statement
) -> dict[meron.Param | meron.Flat, Array] | None:
    if statement.get("mode") != "into":
        return None
    by_flat = statement.get("by") == "flat"
    return {
        wanted: session.place.array("fill:-1", wanted.dtype_name, wanted.shape)
        for unit in session.units(statement)
        for wanted in (unit.flats if by_flat else unit.params)
    }


@operation
def gather(session: Session, statement: Statement) -> None:
    into = destinations(session, statement)
    mode = "view" if into is not None else statement.get("mode") or "view"
    tier = statement.get("tier") or "device"
    units = session.units(statement)
    if len(units) == 1:
        session.keep(statement.name, units[0].gather(mode, into=into, tier=tier))
    else:
        session.keep(statement.name, session.context().gather(units, mode, into=into, tier=tier))


@operation
def gather_begin(session: Session, statement: Statement) -> None:
    into = destinations(session, statement)
    mode = "view" if into is not None else statement.get("mode") or "view"
    (unit,) = session.units(statement)
    session.keep(
        statement.name, unit.gather_begin(mode, into=into, tier=statement.get("tier") or "device")
    )


@operation
def wait_stream(session: Session, statement: Statement) -> None:
    check(session.find(meron.Gather, statement.name).wait_stream(), "it is not full")


@operation
def release_on_stream(session: Session, statement: Statement) -> None:
    session.find(meron.Gather, statement.name).release_on_stream()
    session.held(statement.name).released = True


def tensor(session: Session, statement: Statement) -> tuple[meron.Gather, Array]:
    gather = session.find(meron.Gather, statement.name)
    param = session.find(meron.Param, statement.get("param"))
    array = gather[param]
    check_equal("the dtype", array.dtype, param.dtype)
    check_equal("the shape", array.shape, param.shape)
    check_equal("writable", bool(array.flags.writeable), gather._into is not None)
    return gather, array


@operation
def full(session: Session, statement: Statement) -> None:
    _, array = tensor(session, statement)
    session.place.check_data(statement, array)
    if statement.get("same") == "1":
        check_same(session, array)


def check_same(session: Session, array: Array) -> None:
    """Every rank of the world has these bytes: the sums of the CRC's halves are multiples of it."""
    crc = zlib.crc32(array.tobytes())
    own = np.array([crc >> 16, crc & 0xFFFF], np.float32)
    sums = session.context().world.all_reduce(own.copy())
    check(np.array_equal(sums, session.setup.world * own), "the ranks differ")


@operation
def overwrite(session: Session, statement: Statement) -> None:
    gather, array = tensor(session, statement)
    if gather._into is None:
        raise Malformed("a view is not to be written")
    param = session.find(meron.Param, statement.get("param"))
    session.place.assign(array, wanted(statement, "with"), param.dtype_name, 0)


@operation
def dlpack(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    array = np.from_dlpack(session.find(meron.Gather, statement.get("gather")).dlpack(param))
    check_equal("the dtype", array.dtype, param.dtype)
    check_equal("the shape", array.shape, param.shape)
    session.place.check_data(statement, array)
    session.keep(statement.name, array)
