# SPDX-License-Identifier: Apache-2.0
"""The operations on params, units, updates, gathers, gradients and optimizers."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import meron
from meron._native import NULL, call, ffi, initial, lib, new, receive
from meron.dtypes import CODES, NUMPY
from meron.optimizer import STATES
from operations import check_ended, finish_or_keep, number, operation, timeout_of, wanted
from session import Session
from table import Malformed, Statement
from values import Array, check, check_equal, shape_of

# ---- Params, units, updates ----------------------------------------------------------------------


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
    _ = param.owned  # asks the library, which says whether the param is still there
    found = {
        "shape": "x".join(map(str, param.shape)) or "scalar",
        "dtype": param.dtype,
        "count": str(param.size),
        "frozen": str(int(param.frozen)),
        "name": param.name,
    }
    for key, value in found.items():
        check_equal(key, value, statement.get(key) or value)


@operation
def owned(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    check(param.owned.stop <= param.size, "owns more than there is")
    total = session.context().world.all_reduce(np.array([len(param.owned)], np.float32))
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
    info = session.find(meron.Unit, statement.name).info()
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
    dtype = statement.get("dtype") or param.dtype
    values = session.place.array(wanted(statement, "with"), dtype, shape)
    session.find(meron.Update, statement.name).write(param, values)


@operation
def write_view(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    view = session.find(meron.Update, statement.name).view(param)
    before = statement.get("before")
    if before is not None:
        found = meron.to_float32(view)
        expected = session.place.values(before, view.size, param.owned.start)
        check(np.array_equal(found, expected), "the view shows other values")
    assign(session, view, wanted(statement, "with"), param, param.owned.start)


def assign(session: Session, view: Array, text: str, param: meron.Param, offset: int) -> None:
    values = session.place.values(text, view.size, offset).reshape(view.shape)
    view[...] = values if view.dtype == np.float32 else meron.from_float32(values, param.dtype)


@operation
def publish(session: Session, statement: Statement) -> None:
    session.find(meron.Update, statement.name).__exit__(None, None, None)
    session.held(statement.name).released = True


# ---- Gathers -------------------------------------------------------------------------------------


def destinations(session: Session, statement: Statement) -> dict[meron.Param, Array] | None:
    if statement.get("mode") != "into":
        return None
    return {
        param: session.place.array("fill:-1", param.dtype, param.shape)
        for unit in session.units(statement)
        for param in unit.params
    }


@operation
def gather(session: Session, statement: Statement) -> None:
    into = destinations(session, statement)
    mode = "view" if into is not None else statement.get("mode") or "view"
    place = statement.get("place") or "device"
    units = session.units(statement)
    if len(units) == 1:
        session.keep(statement.name, units[0].gather(mode, into, place))
    else:
        session.keep(statement.name, session.context().gather(units, mode, into, place))


@operation
def gather_begin(session: Session, statement: Statement) -> None:
    into = destinations(session, statement)
    mode = "view" if into is not None else statement.get("mode") or "view"
    (unit,) = session.units(statement)
    session.keep(statement.name, unit.gather_begin(mode, into, statement.get("place") or "device"))


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
    check_equal("the dtype", array.dtype, NUMPY[param.dtype])
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
    assign(session, array, wanted(statement, "with"), param, 0)


@operation
def dlpack(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    array = np.from_dlpack(session.find(meron.Gather, statement.get("gather")).dlpack(param))
    check_equal("the dtype", array.dtype, NUMPY[param.dtype])
    check_equal("the shape", array.shape, param.shape)
    session.place.check_data(statement, array)
    session.keep(statement.name, array)


# ---- Gradients and optimizers --------------------------------------------------------------------


@operation
def gradient(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.name)
    text = statement.get("set")
    view = session.unit_of(param).gradient(param, overwrite=text is not None)
    before = 0.0 if text is not None else meron.to_float32(view)
    values = session.place.values(text or wanted(statement, "add"), view.size).reshape(view.shape)
    total = before + values
    view[...] = total if view.dtype == np.float32 else meron.from_float32(total, param.dtype)


def sources_of(session: Session, statement: Statement) -> list[tuple[meron.Param, Array]]:
    sources = []
    for key, value in statement.arguments:
        if key == "source":
            name, _, text = value.partition("@")
            param = session.find(meron.Param, name)
            count = statement.get("count")
            shape = param.shape if count is None else (int(count),)
            array = session.place.array(text, statement.get("dtype") or param.dtype, shape)
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
    future = unit.reduce(
        dict(sources) or None,
        statement.get("op") or "mean",
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
        source.dtype = CODES[param.dtype]
    receive("meron_future *", lib.meron_reduce_begin, unit._handle, table, len(table), NULL)


@operation
def reduce_finish(session: Session, statement: Statement) -> None:
    future = session.find(meron.Unit, statement.name).reduce_finish(
        statement.get("op") or "mean", number(statement, "divisor", 1)
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
    session.place.check_data(statement, array, param.owned.start)


@operation
def discard(session: Session, statement: Statement) -> None:
    session.find(meron.Unit, statement.name).discard()


@operation
def destroy(session: Session, statement: Statement) -> None:
    session.find(meron.Unit, statement.name).destroy()


# The rules: their number in C, and what the natural layer calls their options.
COMMON = {"lr": "lr", "weight_decay": "weight_decay", "max_norm": "max_norm"}
ADAM = {**COMMON, "epsilon": "eps", "beta1": "betas", "beta2": "betas"}
SGD = {"beta1": "momentum", "dampening": "dampening", "nesterov": "nesterov"}
RULES: dict[str, tuple[int, dict[str, str]]] = {
    "adamw": (lib.MERON_ADAMW, ADAM),
    "adam": (lib.MERON_ADAM, ADAM),
    "adagrad": (lib.MERON_ADAGRAD, {**COMMON, "epsilon": "eps"}),
    "lion": (lib.MERON_LION, {**COMMON, "beta1": "betas", "beta2": "betas"}),
    "sgd": (lib.MERON_SGD, {**COMMON, **SGD}),
}


@operation
def optimizer(session: Session, statement: Statement) -> None:
    kind = statement.get("kind") or "adamw"
    given = {name for name, _ in statement.arguments} - {"kind", "units", "fails", "says", "on"}
    if kind not in RULES or not given <= RULES[kind][1].keys():
        optimizer_raw(session, statement, kind, given)
        return
    options = numbers(statement, RULES[kind][1])
    if "nesterov" in options:
        options["nesterov"] = options["nesterov"] == 1
    made = getattr(session.context(), kind)(session.units(statement), **options)
    session.keep(statement.name, made)


def numbers(statement: Statement, known: dict[str, str]) -> dict[str, Any]:
    """What a statement gives, as keyword arguments."""
    options: dict[str, Any] = {
        own: float(wanted(statement, key))
        for key, own in known.items()
        if own != "betas" and statement.get(key) is not None
    }
    if "betas" in known.values() and (statement.get("beta1") or statement.get("beta2")):
        options["betas"] = (number(statement, "beta1", 0.9), number(statement, "beta2", 0.999))
    return options


def optimizer_raw(session: Session, statement: Statement, kind: str, given: set[str]) -> None:
    """A rule that there is not, or options of another rule's: Python has no words for them."""
    fields = {"lr": "learning_rate", "nesterov": "nesterov"}
    options = initial("meron_optimizer_options")
    options.kind = RULES[kind][0] if kind in RULES else int(kind)
    for name in given:
        value = float(wanted(statement, name))
        setattr(options, fields.get(name, name), int(value) if name == "nesterov" else value)
    handles = [unit._handle for unit in session.units(statement)]
    table = new("meron_unit[]", handles)
    handle = receive("meron_optimizer *", lib.meron_optimizer_create, table, len(handles), options)
    call(lib.meron_optimizer_release, handle)


@operation
def step(session: Session, statement: Statement) -> None:
    finish_or_keep(session, statement, session.find(meron.Optimizer, statement.name).step_begin())


@operation
def optimizer_is(session: Session, statement: Statement) -> None:
    optimizer = session.find(meron.Optimizer, statement.name)
    for key in ("steps", "norm", "lr", "groups", "states", "nvme_bytes"):
        expected = statement.get(key)
        if expected is not None:
            check_equal(key, float(getattr(optimizer, key)), float(expected))


@operation
def learning_rate(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).lr = float(wanted(statement, "lr"))


@operation
def set_steps(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).steps = int(wanted(statement, "steps"))


@operation
def param_group(session: Session, statement: Statement) -> None:
    optimizer = session.find(meron.Optimizer, statement.name)
    params = [session.find(meron.Param, name) for name in statement.list("params")]
    number = optimizer.add_param_group(params, **group_numbers(optimizer, 0, statement))
    expected = statement.get("number")
    check_equal("the group's number", number, number if expected is None else int(expected))


@operation
def set_param_group(session: Session, statement: Statement) -> None:
    optimizer = session.find(meron.Optimizer, statement.name)
    number = int(wanted(statement, "number"))
    optimizer.set_group(number, **group_numbers(optimizer, number, statement))


def group_numbers(optimizer: meron.Optimizer, number: int, statement: Statement) -> dict[str, Any]:
    """What a statement gives of a group's numbers; a beta that it does not give is as it was."""
    betas = optimizer.group(number).betas
    values = {
        own: float(wanted(statement, key))
        for key, own in (("lr", "lr"), ("epsilon", "eps"), ("weight_decay", "weight_decay"))
        if statement.get(key) is not None
    }
    first, second = (float(statement.get(f"beta{i + 1}") or betas[i]) for i in range(2))
    return {**values, "betas": (first, second)}


@operation
def param_group_is(session: Session, statement: Statement) -> None:
    group = session.find(meron.Optimizer, statement.name).group(int(wanted(statement, "number")))
    found = {
        "lr": group.lr,
        "beta1": group.betas[0],
        "beta2": group.betas[1],
        "epsilon": group.eps,
        "weight_decay": group.weight_decay,
    }
    for key, value in found.items():
        check_equal(key, value, float(statement.get(key) or value))


@operation
def state(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    optimizer = session.find(meron.Optimizer, statement.name)
    view = optimizer.state(param, wanted(statement, "state"))
    check_equal("the dtype", view.dtype, np.dtype(np.float32))
    text = statement.get("set")
    if text is None:
        session.place.check_data(statement, view, param.owned.start)
    else:
        assign(session, view, text, param, param.owned.start)


@operation
def state_read(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    optimizer = session.find(meron.Optimizer, statement.name)
    name = wanted(statement, "state")
    count = statement.get("count")
    if count is not None:  # the natural layer takes as many as there are
        out = new("float[]", int(count))
        handles = (optimizer._handle, param._handle, STATES[name])
        call(lib.meron_optimizer_read_state, out, int(count), *handles)
        return
    array = optimizer.read_state(param, name)
    check_equal("the dtype", array.dtype, np.dtype(np.float32))
    session.place.check_data(statement, array, param.owned.start)


@operation
def offload(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).offload(statement.get("folder"))


@operation
def reload(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).reload()


@operation
def state_write(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    count = int(statement.get("count") or len(param.owned))
    values = session.place.values(wanted(statement, "with"), count, param.owned.start)
    optimizer = session.find(meron.Optimizer, statement.name)
    optimizer.write_state(param, wanted(statement, "state"), values)
