# SPDX-License-Identifier: Apache-2.0
"""The operations on gradients and their reductions."""

from __future__ import annotations

import numpy as np

import meron
from meron._native import NULL, ffi, lib, new, receive
from meron.dtypes import CODES
from operations import check_ended, finish_or_keep, number, operation, timeout_of, wanted
from session import Session
from table import Statement
from values import Array, check_equal


@operation
def gradient(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    text = statement.get("set")
    view = session.unit_of(param).gradient(param, overwrite=text is not None)
    before = 0.0 if text is not None else meron.to_float32(view)
    values = session.place.values(text or wanted(statement, "add"), view.size).reshape(view.shape)
    total = before + values
    view[...] = total if view.dtype == np.float32 else meron.from_float32(total, param.dtype_name)


def sources_of(session: Session, statement: Statement) -> list[tuple[meron.Param, Array]]:
    sources = []
    for key, value in statement.arguments:
        if key == "source":
            name, _, text = value.partition("@")
            param = session.find(meron.Param, name)
            count = statement.get("count")
            shape = param.shape if count is None else (int(count),)
            array = session.place.array(text, statement.get("dtype") or param.dtype_name, shape)
            sources.append((param, array))
    if statement.get("from") is not None:
        gather = session.find(meron.Gather, statement.get("from"))
        unit = session.find(meron.Unit, statement.name)
        sources += [(param, gather[param]) for param in unit.params]
    return sources


@operation
def reduce(session: Session, statement: Statement) -> None:
    unit = session.find(meron.Unit, statement.name)
    sources = sources_of(session, statement)
    if len(dict(sources)) < len(sources):
        reduce_raw(unit, sources)
    future = unit.reduce_begin(
        dict(sources) or None,
        op=statement.get("op") or "mean",
        boundary=statement.get("boundary") != "0",
        divisor=number(statement, "divisor", 1),
    )
    finish_or_keep(session, statement, future)


def reduce_raw(unit: meron.Unit, sources: list[tuple[meron.Param, Array]]) -> None:
    """A param twice: a dict cannot say that."""
    table = new("meron_source[]", len(sources))
    for source, (param, array) in zip(table, sources):
        source.param = param._handle
        source.data = ffi.cast("void *", array.ctypes.data)
        source.count = array.size
        source.dtype = CODES[param.dtype_name]
    receive("meron_future *", lib.meron_reduce_begin, unit._handle, table, len(table), NULL)


@operation
def reduce_finish(session: Session, statement: Statement) -> None:
    future = session.find(meron.Unit, statement.name).reduce_finish_begin(
        op=statement.get("op") or "mean", divisor=number(statement, "divisor", 1)
    )
    finish_or_keep(session, statement, future)


@operation
def reduce_wait(session: Session, statement: Statement) -> None:
    ended = session.context().wait_reductions(session.units(statement), timeout_of(statement))
    check_ended(statement, ended)


@operation
def reduced(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    array = session.unit_of(param).reduced(param)
    check_equal("the dtype", array.dtype, np.dtype(np.float32))
    session.place.check_data(statement, array, param.shard_range.start)


@operation
def clip(session: Session, statement: Statement) -> None:
    max_norm = number(statement, "max_norm", 0)
    norm = session.context().clip_gradients(session.units(statement), max_norm)
    check_equal("the norm", norm, number(statement, "is", norm))


@operation
def reduced_dlpack(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    array = np.from_dlpack(session.unit_of(param).reduced_dlpack(param))
    check_equal("the dtype", array.dtype, np.dtype(np.float32))
    check_equal("the shape", array.shape, (len(param.shard_range),))
    session.place.check_data(statement, array, param.shard_range.start)
    session.keep(statement.name, array)


@operation
def discard(session: Session, statement: Statement) -> None:
    session.find(meron.Unit, statement.name).discard()
