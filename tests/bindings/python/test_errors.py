# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import pickle
from pathlib import Path

import pytest

import meron
from meron import errors
from meron._call_names import NAMES, calling
from meron._native import code_of, ffi, lib, new, raise_error

API = json.loads((Path(__file__).parents[3] / "capi" / "api.json").read_text())
STATUSES = {
    value["name"]: value["value"]
    for enum in API["enums"]
    if enum["name"] == "meron_status"
    for value in enum["values"]
    if value["value"] < 0
}
FAMILIES = {1: meron.CallError, 2: meron.ResourceError, 3: meron.GroupError, 4: meron.ContextError}


@pytest.mark.parametrize("name", STATUSES)
def test_every_status_has_a_class(name: str) -> None:
    status = STATUSES[name]
    kind = errors.BY_STATUS[status]
    assert (kind.status, kind.name) == (status, name)
    assert meron.status_name(status) == name
    assert getattr(meron, kind.__name__) is kind
    family = FAMILIES[-status // 100]
    assert issubclass(kind, family)
    assert [base for base in FAMILIES.values() if issubclass(kind, base)] == [family]
    error = errors.make(status, "words", operation="gather", peer=3)
    assert type(error) is kind
    assert (error.message, str(error), error.operation, error.peer) == (
        "words",
        "words",
        "gather",
        3,
    )
    assert (error.subject, error.advice, error.rank) == ("", "", None)


def test_no_class_without_a_status() -> None:
    assert sorted(errors.BY_STATUS) == sorted(STATUSES.values())


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (meron.ArgumentError, ValueError),
        (meron.DuplicateError, ValueError),
        (meron.ParseError, ValueError),
        (meron.UnsupportedError, NotImplementedError),
        (meron.NonFiniteError, ArithmeticError),
        (meron.OutOfMemoryError, MemoryError),
        (meron.InputOutputError, OSError),
        (meron.NotFoundError, LookupError),
        (meron.NotFoundError, FileNotFoundError),
        (meron.StateError, RuntimeError),
        (meron.StaleError, RuntimeError),
        (meron.GroupError, RuntimeError),
        (meron.ClosedError, RuntimeError),
        (meron.DeadlineError, TimeoutError),
        (meron.AuthError, PermissionError),
    ],
)
def test_they_are_pythons_exceptions_too(kind: type[meron.Error], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="words"):
        raise kind("words")


def test_errors_of_the_system_have_its_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        meron.open_checkpoint(tmp_path / "none")
    assert caught.value.errno == errno.ENOENT
    (tmp_path / "file").touch()
    with meron.io.IO() as files, pytest.raises(OSError) as caught:
        files.read(tmp_path / "file" / "below", bytearray(1))
    assert (type(caught.value), caught.value.errno) == (meron.InputOutputError, errno.ENOTDIR)
    assert meron.NoSpaceError("16 MiB exceed the limit").errno == errno.ENOSPC
    assert meron.InputOutputError("words").errno == errno.EIO
    assert pickle.loads(pickle.dumps(caught.value)).errno == errno.ENOTDIR


def test_codes_of_a_later_library() -> None:
    assert type(errors.make(-399, "x")) is meron.GroupError
    assert errors.make(-399, "x").status == -399
    assert type(errors.make(-999, "x")) is meron.Error
    assert meron.status_name(-399) == "MERON_E_UNKNOWN"


@pytest.mark.parametrize("kind", sorted(errors.BY_STATUS.values(), key=lambda k: k.__name__))
def test_they_can_be_pickled(kind: type[meron.Error]) -> None:
    error = kind("words", subject="w", advice="go", rank=1, peer=2)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert vars(again) == vars(error)
    assert str(again) == str(error) == "words. go"


def test_an_error_of_the_library_carries_its_fields() -> None:
    with meron.open(0, 1, "self") as ctx:
        taken = ctx.param("weight", (2,))
        with pytest.raises(meron.DuplicateError) as caught:
            ctx.param(taken.name, (2,))
    error = caught.value
    assert error.status == STATUSES["MERON_E_DUPLICATE"]
    assert error.name == "MERON_E_DUPLICATE"
    assert error.operation == "Context.param"
    assert error.message.startswith("Context.param failed on rank 0: ")
    assert error.subject == "weight"
    assert error.advice
    assert (error.rank, error.peer) == (0, None)
    assert "weight" in error.message
    assert error.message.lower().count(error.advice.lower()[:-1]) == 1


def test_errors_name_functions_and_arguments_of_python(tmp_path: Path) -> None:
    with pytest.raises(meron.ArgumentError, match=r"^Plan\.preset failed"):
        meron.Plan.preset("zreo3")
    with meron.open(0, 1, "self") as ctx:
        ctx.save(tmp_path, "a")
        future = ctx.save_begin(tmp_path, "a")
        with pytest.raises(meron.DuplicateError, match=r"^Context\.save failed") as caught:
            future.wait()
        assert caught.value.advice == "choose another name, or pass overwrite=True"
        with pytest.raises(meron.NotFoundError, match=r"^Context\.load failed"):
            ctx.load(tmp_path / "none")


def test_each_python_name_is_of_a_function_of_the_library() -> None:
    begun = {"checkpoint_save", "optimizer_step"}  # of which messages name the operation
    assert all(hasattr(lib, f"meron_{name}") for name in NAMES.keys() - begun)


def test_the_outer_of_two_calls_names_an_error() -> None:
    def failing(error: meron.Error) -> meron.Error:
        with pytest.raises(meron.Error) as caught, calling("outer"), calling("inner"):
            raise error
        return pickle.loads(pickle.dumps(caught.value))

    error = failing(meron.StateError("gather failed on rank 1: why.", operation="gather"))
    assert (error.operation, str(error)) == ("outer", "outer failed on rank 1: why.")
    error = failing(meron.StateError("a text of its own."))
    assert (error.operation, str(error)) == ("outer", "a text of its own.")
    error = failing(meron.MismatchError("gather failed: ranks diverge.", operation="gather"))
    text = "outer failed: ranks diverge. Call outer on all ranks, with equal arguments."
    assert str(error) == str(error.args[0]) == text


def test_a_missing_error_object_still_raises() -> None:
    with pytest.raises(meron.OutOfMemoryError, match="MERON_E_NO_MEMORY"):
        raise_error(lib.MERON_E_NO_MEMORY, new("meron_error **"))


def test_null_is_a_valid_error() -> None:
    assert lib.meron_error_code(ffi.NULL) == 0
    assert ffi.string(lib.meron_error_message(ffi.NULL)) == b""
    lib.meron_error_free(ffi.NULL)


def test_a_name_that_is_no_value_of_an_enum() -> None:
    known = {"sum": 0, "mean": 1}
    assert code_of(known, "mean", "op") == 1
    with pytest.raises(errors.ArgumentError, match="unknown op 'max': sum, mean are known"):
        code_of(known, "max", "op")
