# SPDX-License-Identifier: Apache-2.0
"""meron.io keeps memory that a drive has not released, whoever drops the objects that own it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

import meron
from meron import _io
from meron.io import IO


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    memory: list[Any] = []
    monkeypatch.setattr(_io, "_held", memory)
    return memory


def closed_after(function: Any) -> Any:
    """Calls the function, and returns what it returns if a drive holds a request."""

    def call(*arguments: Any) -> int:
        function(*arguments)
        return meron.ClosedError.status

    return staticmethod(call)


def test_an_io_that_dies_keeps_the_memory_of_abandoned_requests(
    held: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(IO, "_release_function", closed_after(IO._release_function))
    io = IO()
    request = io.write_begin(tmp_path / "file", b"bytes")
    del request
    assert not held
    del io
    gc.collect()
    assert len(held) == 1


def test_a_request_that_dies_after_the_close_keeps_its_memory(
    held: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    io = IO()
    ended, under_way = (io.write_begin(tmp_path / name, b"bytes") for name in ("a", "b"))
    io.close()
    del ended
    assert not held
    monkeypatch.setattr(_io.Request, "_wait_function", closed_after(_io.Request._wait_function))
    del under_way
    assert len(held) == 1
