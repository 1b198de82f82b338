# SPDX-License-Identifier: Apache-2.0
"""The operations on checkpoints. Folders of a case go with rank 0's session."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import meron
from meron.dtypes import NUMPY
from operations import check_ended, finish_or_keep, number, operation, timeout_of, wanted
from session import Session
from table import Statement
from values import Array, check, check_equal, check_has

SAFETENSORS = {"f32": "F32", "bf16": "BF16", "f16": "F16"}
FLAGS = ("values_only", "skip_frozen", "overwrite", "per_node")


def folder_of(session: Session, statement: Statement) -> Path:
    setup = session.setup
    name = f"meron-{setup.job}-{session.case}-{session.plan}-{wanted(statement, 'folder')}"
    path = Path(tempfile.gettempdir()) / name
    if setup.rank == 0 and path not in session.folders:
        shutil.rmtree(path, ignore_errors=True)
        session.folders.append(path)
    return path


def whole(statement: Statement, key: str) -> int:
    return int(number(statement, key, 0))


def flags_of(statement: Statement, *names: str) -> dict[str, bool]:
    return {name: whole(statement, name) == 1 for name in names}


def json_of(statement: Statement, key: str) -> Any:
    text = statement.get(key)
    return None if text is None else json.loads(text)


def optimizers_of(session: Session, statement: Statement) -> list[meron.Optimizer]:
    return [session.find(meron.Optimizer, name) for name in statement.list("optimizers")]


def units_of(session: Session, statement: Statement) -> list[meron.Unit] | None:
    names = statement.list("units")
    return [session.find(meron.Unit, name) for name in names] if names else None


def given_of(session: Session, statement: Statement) -> list[meron.CheckpointTensor]:
    """The tensor that `tensor=` gives: this rank's part of it, or nothing."""
    name, rank, world = statement.get("tensor"), session.setup.rank, session.setup.world
    split = whole(statement, "split") == 1
    if name is None or (rank != 0 and not split):
        return []
    count, dtype = int(wanted(statement, "count")), wanted(statement, "dtype")
    begin, end = (count * rank // world, count * (rank + 1) // world) if split else (0, count)
    data = session.place.array(wanted(statement, "with"), dtype, (count,))[begin:end]
    kind = statement.get("kind")
    options = {} if kind is None else {"kind": kind}
    return [meron.CheckpointTensor(name, SAFETENSORS[dtype], (count,), data, begin, **options)]


@operation
def save(session: Session, statement: Statement) -> None:
    future = session.context().save_begin(
        folder_of(session, statement),
        statement.name,
        optimizers_of(session, statement),
        step=whole(statement, "step"),
        keep=whole(statement, "keep"),
        extra=json_of(statement, "extra"),
        mapping=json_of(statement, "mapping"),
        tensors=given_of(session, statement),
        units=units_of(session, statement),
        **flags_of(statement, *FLAGS),
    )
    finish_or_keep(session, statement, future)


@operation
def wait_copied(session: Session, statement: Statement) -> None:
    check_ended(statement, session.context().wait_copied(timeout_of(statement)))


@operation
def save_progress(session: Session, statement: Statement) -> None:
    progress = session.context().save_progress()
    if statement.get("saving") is not None:
        check_equal("saving", progress.saving, statement.get("saving") == "1")
    most = max(progress.copied, progress.written)
    check(most <= progress.total, "more is done than there is")
    if statement.get("done") is not None:
        check(progress.total > 0, "nothing was to be written")
        check_equal("copied", progress.copied, progress.total)
        check_equal("written", progress.written, progress.total)


@operation
def load(session: Session, statement: Statement) -> None:
    loaded = session.context().load(
        folder_of(session, statement),
        statement.get("checkpoint"),
        optimizers_of(session, statement),
        lenient=statement.get("lenient") == "1",
        mapping=json_of(statement, "mapping"),
        claimed=statement.list("claimed"),
        units=units_of(session, statement),
        **flags_of(statement, "values_only", "rank0_only", "per_node"),
    )
    session.keep(statement.name, loaded)


@operation
def checkpoint_open(session: Session, statement: Statement) -> None:
    folder, name = folder_of(session, statement), statement.get("checkpoint")
    session.keep(statement.name, meron.open_checkpoint(folder, name))


@operation
def checkpoint_is(session: Session, statement: Statement) -> None:
    checkpoint = session.find(meron.Checkpoint, statement.name)
    _ = checkpoint.bytes_read  # the others were read when it was made: this asks the library
    found = {
        "step": checkpoint.step,
        "world": checkpoint.world,
        "missing": len(checkpoint.missing),
        "unexpected": len(checkpoint.unexpected),
    }
    for name, value in found.items():
        if statement.get(name) is not None:
            check_equal(name, value, whole(statement, name))


@operation
def checkpoint_text(session: Session, statement: Statement) -> None:
    checkpoint = session.find(meron.Checkpoint, statement.name)
    value = getattr(checkpoint, wanted(statement, "text"))
    if isinstance(value, dict):
        value = json.dumps(value)
    elif isinstance(value, tuple):
        value = "\n".join(value)
    check_has(value, statement)


@operation
def checkpoint_read(session: Session, statement: Statement) -> None:
    checkpoint = session.find(meron.Checkpoint, statement.name)
    dtype, count = wanted(statement, "dtype"), int(wanted(statement, "count"))
    begin, kind = whole(statement, "begin"), statement.get("kind")
    data: Array = np.empty(count, NUMPY[dtype])
    options = {} if kind is None else {"kind": kind}
    name = wanted(statement, "tensor")
    checkpoint.read_into(data, name, begin=begin, count=count, **options)
    session.place.check_data(statement, data, begin)


@operation
def checkpoint_list(session: Session, statement: Statement) -> None:
    found = meron.list_checkpoints(folder_of(session, statement))
    check_has(json.dumps(found), statement)
    if statement.get("count") is not None:
        check_equal("the number of checkpoints", len(found), whole(statement, "count"))


@operation
def checkpoint_remove(session: Session, statement: Statement) -> None:
    meron.remove_checkpoint(folder_of(session, statement), statement.name)


@operation
def checkpoint_write(session: Session, statement: Statement) -> None:
    meron.write_checkpoint(
        folder_of(session, statement),
        statement.name,
        given_of(session, statement),
        step=whole(statement, "step"),
        extra=json_of(statement, "extra"),
        overwrite=whole(statement, "overwrite") == 1,
    )


@operation
def export_model(session: Session, statement: Statement) -> None:
    session.context().export(
        folder_of(session, statement),
        dtype=statement.get("to"),
        mapping=json_of(statement, "mapping"),
        tensors=given_of(session, statement),
        overwrite=whole(statement, "overwrite") == 1,
        max_file_bytes=whole(statement, "max"),
    )
