# SPDX-License-Identifier: Apache-2.0
"""The operations on optimizers."""

from __future__ import annotations

from typing import Any

import numpy as np

import meron
from meron._native import call, defaults_of, lib, new, receive
from meron.optimizer import STATES
from operations import finish_or_keep, number, operation, wanted
from session import Session
from table import Statement
from values import check_equal

# The rules: their number in C, and what the natural layer calls their options.
COMMON = {"lr": "lr", "weight_decay": "weight_decay", "max_norm": "max_norm"}
ADAM = {**COMMON, "epsilon": "eps", "beta1": "betas", "beta2": "betas"}
SGD = {"beta1": "momentum", "dampening": "dampening", "nesterov": "nesterov"}
GROUP = {"lr": "lr", "epsilon": "eps", "weight_decay": "weight_decay", "lr_decay": "lr_decay"}
RULES: dict[str, tuple[int, dict[str, str]]] = {
    "adamw": (lib.MERON_OPTIMIZER_ADAMW, ADAM),
    "adam": (lib.MERON_OPTIMIZER_ADAM, ADAM),
    "adagrad": (lib.MERON_OPTIMIZER_ADAGRAD, {**COMMON, "epsilon": "eps", "lr_decay": "lr_decay"}),
    "lion": (lib.MERON_OPTIMIZER_LION, {**COMMON, "beta1": "betas", "beta2": "betas"}),
    "sgd": (lib.MERON_OPTIMIZER_SGD, {**COMMON, **SGD}),
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
    """Returns the hyperparameters of a statement as keyword arguments."""
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
    options = defaults_of(RULES[kind][0] if kind in RULES else int(kind))
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
def skip(session: Session, statement: Statement) -> None:
    params = [session.find(meron.Param, name) for name in statement.list("params")]
    session.find(meron.Optimizer, statement.name).skip(params)


@operation
def param_steps(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, wanted(statement, "param"))
    steps = session.find(meron.Optimizer, statement.name).param_steps(param)
    check_equal("steps", steps, int(wanted(statement, "is")))


@operation
def set_param_steps(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, wanted(statement, "param"))
    steps = int(wanted(statement, "steps"))
    session.find(meron.Optimizer, statement.name).set_param_steps(param, steps)


@operation
def optimizer_group(session: Session, statement: Statement) -> None:
    optimizer = session.find(meron.Optimizer, statement.name)
    params = [session.find(meron.Param, name) for name in statement.list("params")]
    number = optimizer.add_group(params, **group_numbers(optimizer, 0, statement))
    expected = statement.get("number")
    check_equal("the group's number", number, number if expected is None else int(expected))


@operation
def set_optimizer_group(session: Session, statement: Statement) -> None:
    optimizer = session.find(meron.Optimizer, statement.name)
    number = int(wanted(statement, "number"))
    optimizer.set_group(number, **group_numbers(optimizer, number, statement))


def group_numbers(optimizer: meron.Optimizer, number: int, statement: Statement) -> dict[str, Any]:
    """Returns a group's hyperparameters from a statement. A beta that it omits keeps its value."""
    betas = optimizer.group(number).betas
    values = {
        own: float(wanted(statement, key))
        for key, own in GROUP.items()
        if statement.get(key) is not None
    }
    first, second = (float(statement.get(f"beta{i + 1}") or betas[i]) for i in range(2))
    return {**values, "betas": (first, second)}


@operation
def optimizer_group_is(session: Session, statement: Statement) -> None:
    group = session.find(meron.Optimizer, statement.name).group(int(wanted(statement, "number")))
    found = {
        "lr": group.lr,
        "beta1": group.betas[0],
        "beta2": group.betas[1],
        "epsilon": group.eps,
        "weight_decay": group.weight_decay,
        "lr_decay": group.lr_decay,
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
        session.place.check_data(statement, view, param.shard_range.start)
    else:
        session.place.assign(view, text, param.dtype_name, param.shard_range.start)


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
    session.place.check_data(statement, array, param.shard_range.start)


@operation
def offload(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).offload(statement.get("folder"))


@operation
def reload(session: Session, statement: Statement) -> None:
    session.find(meron.Optimizer, statement.name).reload()


@operation
def state_write(session: Session, statement: Statement) -> None:
    param = session.find(meron.Param, statement.get("param"))
    count = int(statement.get("count") or len(param.shard_range))
    values = session.place.values(wanted(statement, "with"), count, param.shard_range.start)
    optimizer = session.find(meron.Optimizer, statement.name)
    optimizer.write_state(param, wanted(statement, "state"), values)
