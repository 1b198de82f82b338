# SPDX-License-Identifier: Apache-2.0
"""Writes to gathered params if the system has no copy on write, or if writes are checked."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
import ranks
import torch

import meron
import meron.torch as mt
from meron.torch.residency import copy_on_write

CHECKED = {"MERON_CHECK_WRITES": "1"}


class Clamps(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.clamp_(-1, 1)  # this line
        return super().forward(x)


@pytest.mark.ranks(1, environment=CHECKED)
def test_write_to_a_gathered_param_raises_if_writes_are_checked() -> None:
    model = mt.shard(Clamps(2, 2))
    with pytest.raises(RuntimeError, match="Cannot access data pointer") as caught:
        model(torch.ones(1, 2))
    assert "clamp_(-1, 1)  # this line" in "".join(traceback.format_tb(caught.tb))


@pytest.mark.ranks(1, environment=CHECKED)
def test_trains_if_writes_are_checked() -> None:
    model = mt.shard(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()


WRITES_IN_FORWARD = """
import torch
import meron.torch as mt
from meron.torch.residency import copy_on_write

copy_on_write.place_of = lambda address: None

class Clamps(torch.nn.Linear):
    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-1, 1)  # this line
        return super().forward(x)

mt.shard(Clamps(2, 2))(torch.ones(1, 2))
"""


def test_write_without_copy_on_write_is_a_fault_that_names_its_line() -> None:
    """A warning precedes it, once for a context."""
    done = ranks.launch(1, source=WRITES_IN_FORWARD)  # output of two ranks would be mixed
    assert done.returncode != 0
    assert "Segmentation fault" in done.stderr
    lines = WRITES_IN_FORWARD.splitlines()
    line = 1 + lines.index("            self.weight.clamp_(-1, 1)  # this line")
    assert f"line {line} in forward" in done.stderr
    assert done.stderr.count("rank 0: writes to params in use cannot be undone") == 1, done.stderr
    assert "(/proc/self/maps has no shared mapping" in done.stderr


@pytest.mark.ranks(1)
def test_warns_once_per_context_without_copy_on_write(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger("meron.torch").addHandler(handler)
    plain_open = copy_on_write.os.open

    def warnings_of_a_context() -> list[str]:
        records.clear()
        with meron.open() as context:
            models = [mt.shard(torch.nn.Linear(2, 2), context=context) for _ in range(2)]
            for model in models:
                model(torch.ones(1, 2))
        assert all(record.levelname == "WARNING" for record in records)
        return [record.getMessage() for record in records]

    def no_pagemap(path: Any, *arguments: Any) -> int:
        if path == "/proc/self/pagemap":
            raise PermissionError(1, "Operation not permitted")
        return plain_open(path, *arguments)

    assert warnings_of_a_context() == []
    with monkeypatch.context() as patch:
        patch.setattr(copy_on_write.os, "open", no_pagemap)
        (text,) = warnings_of_a_context()
        assert "/proc/self/pagemap: Operation not permitted" in text
        assert "segmentation fault" in text
    monkeypatch.setattr(copy_on_write, "descriptor_of", lambda place: None)
    for _ in range(2):
        (text,) = warnings_of_a_context()
        assert "/proc/self/fd has no descriptor" in text and "segmentation fault" in text
