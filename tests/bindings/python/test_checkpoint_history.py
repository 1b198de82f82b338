# SPDX-License-Identifier: Apache-2.0
"""The choice of the newest checkpoint, and readers beside a job that replaces checkpoints."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import meron
from meron import errors

COUNT = 200_000


class Run:
    """A context with one param whose values follow from the step."""

    def __init__(self, context: meron.Context) -> None:
        self.context = context
        self.w = context.param("w", (COUNT,))
        self.unit = context.unit("unit", [self.w])
        self.adam = context.adamw([self.unit])

    def save(self, folder: Path, name: str, step: int, **options: Any) -> None:
        with self.context.update([self.unit]) as update:
            update.write(self.w, values_of(step))
        self.context.save(folder, name, [self.adam], step=step, **options)

    def load(self, folder: Path, name: str | None = None) -> int:
        step = self.context.load(folder, name, optimizers=[self.adam]).step
        with self.unit.gather() as gathered:
            np.testing.assert_array_equal(np.asarray(gathered[self.w]), values_of(step))
        return step


def values_of(step: int) -> np.ndarray[Any, Any]:
    return np.arange(COUNT, dtype=np.float32) + np.float32(step)


@contextmanager
def a_run(log: list[str] | None = None) -> Iterator[Run]:
    said: list[str] = [] if log is None else log
    with meron.open(
        0, 1, threads=1, timeout=30, log=lambda level, message: said.append(message)
    ) as context:
        yield Run(context)


def names_in(folder: Path) -> list[str]:
    """Names of published checkpoints. A save in progress has a hidden folder."""
    return sorted(path.parent.name for path in folder.glob("[!.]*/meron.json"))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def test_a_run_that_goes_back_begins_a_line(tmp_path: Path) -> None:
    """keep counts in it, and a load without a name takes it rather than the abandoned one."""
    log: list[str] = []
    with a_run() as run:
        for step in range(1, 6):
            run.save(tmp_path, f"first-{step}", step)
        run.load(tmp_path, "first-2")
        for step in (3, 4, 5, 6):
            run.save(tmp_path, f"second-{step}", step, keep=2)
    first = [f"first-{step}" for step in range(1, 6)]
    assert names_in(tmp_path) == [*first, "second-5", "second-6"]
    with a_run() as run:
        run.load(tmp_path, "first-2")
        run.save(tmp_path, "third-3", 3)
    with a_run(log) as run:
        assert run.load(tmp_path) == 3
        assert any("'second-6'" in line and "another run" in line for line in log)
        run.save(tmp_path, "third-4", 4, keep=1)
        assert "third-3" not in names_in(tmp_path)
        assert run.load(tmp_path) == 4


def test_a_run_that_loads_values_alone_continues_their_line(tmp_path: Path) -> None:
    """As trainers do that restore their own optimizers."""

    def load_values(run: Run, folder: Path, name: str | None = None) -> int:
        return run.context.load(folder, name, values_only=True).step

    with a_run() as run:
        for step in (1, 2, 3):
            run.save(tmp_path, f"first-{step}", step)
    with a_run() as run:
        assert load_values(run, tmp_path) == 3
        run.save(tmp_path, "first-4", 4, keep=2)
    assert names_in(tmp_path) == ["first-3", "first-4"]
    with a_run() as run:
        load_values(run, tmp_path, "first-3")
        run.save(tmp_path, "second-4", 4, keep=1)
        assert run.load(tmp_path) == 4
    assert names_in(tmp_path) == ["first-3", "first-4", "second-4"]
    with a_run() as run:
        load_values(run, tmp_path, "first-4")
        run.save(tmp_path, "tuned-1", 1)  # counts its steps anew
        assert load_values(run, tmp_path) == 1


def test_values_of_another_folder_leave_the_line_as_it_is(tmp_path: Path) -> None:
    with a_run() as run:
        run.save(tmp_path / "base", "base", 9)
    with a_run() as run:
        for step in (1, 2):
            run.save(tmp_path / "run", f"step-{step}", step)
            run.context.load(tmp_path / "base", values_only=True)
        run.save(tmp_path / "run", "step-3", 3, keep=2)
    assert names_in(tmp_path / "run") == ["step-2", "step-3"]


def test_each_save_records_its_parent(tmp_path: Path) -> None:
    def history(name: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((tmp_path / name / "history.json").read_text())
        manifest = json.loads((tmp_path / name / "meron.json").read_text())
        assert told["id"] == manifest["id"] and told["step"] == manifest["step"]
        return told

    with a_run() as run:
        run.save(tmp_path, "a", 1)
        run.save(tmp_path, "b", 2)
    with a_run() as run:
        run.load(tmp_path)
        run.save(tmp_path, "c", 3)
    a, b, c = (history(name) for name in "abc")
    assert (a["parent"], b["parent"], c["parent"]) == ("", a["id"], b["id"])
    assert {a["lineage"], b["lineage"], c["lineage"]} == {a["id"]}


def test_a_checkpoint_without_a_history_is_continued(tmp_path: Path) -> None:
    """As an older version saved it."""
    with a_run() as run:
        for step in (1, 2):
            run.save(tmp_path, f"step-{step}", step)
    for path in tmp_path.glob("*/history.json"):
        path.unlink()
    with a_run() as run:
        assert run.load(tmp_path) == 2
        run.save(tmp_path, "step-3", 3, keep=2)
        assert names_in(tmp_path) == ["step-2", "step-3"]
        assert run.load(tmp_path) == 3


def test_an_incomplete_checkpoint_is_named_before_the_load_returns(tmp_path: Path) -> None:
    log: list[str] = []
    with a_run(log) as run:
        run.save(tmp_path, "step-1", 1)
        run.save(tmp_path, "step-2", 2)
        next((tmp_path / "step-2").glob("values-*")).unlink()
        log.clear()
        assert run.context.load(tmp_path, optimizers=[run.adam]).step == 1
        assert any("passed over: step-2" in line for line in log)


def test_opening_warns_of_what_was_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with a_run() as run:
        run.save(tmp_path, "step-1", 1)
        run.save(tmp_path, "step-2", 2)
    with meron.open_checkpoint(tmp_path) as opened:
        assert opened.step == 2 and opened.passed_over == "" and not caplog.records
    next((tmp_path / "step-2").glob("values-*")).unlink()
    with meron.open_checkpoint(tmp_path) as opened:
        assert opened.step == 1 and "step-2: " in opened.passed_over
    (record,) = caplog.records
    assert record.getMessage() == opened.passed_over


def test_a_damaged_manifest_of_the_newest_is_an_error(tmp_path: Path) -> None:
    with a_run() as run:
        run.save(tmp_path, "step-1", 1)
        run.save(tmp_path, "step-2", 2)
        damage(tmp_path / "step-2" / "meron.json")
        with pytest.raises(errors.CorruptError, match=r"step-2.*by its name"):
            run.load(tmp_path)
        assert run.load(tmp_path, "step-1") == 1  # nothing had changed


def test_a_context_that_broke_says_so_in_each_call(tmp_path: Path) -> None:
    with a_run() as run:
        run.save(tmp_path, "step-1", 1)
        run.save(tmp_path, "step-2", 2)
        damage(next((tmp_path / "step-2").glob("values-*")))
        with pytest.raises(errors.CorruptError) as first:
            run.load(tmp_path)
        assert "unusable" not in str(first.value)
        assert "Start again" in str(first.value) or "start again" in str(first.value)
        assert "'step-1'" in str(first.value)
        for name, call in {
            "Context.load": lambda: run.load(tmp_path, "step-1"),
            "Context.update": lambda: run.save(tmp_path, "step-3", 3),
            "Unit.gather": lambda: run.unit.gather().wait(),
        }.items():
            with pytest.raises(errors.CorruptError, match="this context is unusable") as later:
                call()
            assert "Context.load failed" in str(later.value)
            assert "Start again" in str(later.value)
            assert str(later.value).startswith(name), "the call that was refused"
    with a_run() as run:
        assert run.load(tmp_path, "step-1") == 1


def test_an_opened_checkpoint_is_read_to_its_end(tmp_path: Path) -> None:
    with a_run() as run:
        run.save(tmp_path, "last", 1)
        with meron.open_checkpoint(tmp_path) as opened:
            run.save(tmp_path, "last", 2, overwrite=True)
            np.testing.assert_array_equal(opened.read("w"), values_of(1))


@pytest.mark.parametrize("options", [{"overwrite": True}, {"keep": 1}], ids=["overwrite", "keep"])
def test_readers_beside_a_writer_never_fail(tmp_path: Path, options: dict[str, Any]) -> None:
    """The newest checkpoint is replaced or removed again and again."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with a_run() as run:
                step = 0
                while not stop.is_set():
                    step += 1
                    name = "last" if "overwrite" in options else f"step-{step}"
                    run.save(tmp_path, name, step, **options)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not names_in(tmp_path) and writer.is_alive():
            time.sleep(0.01)
        end = time.monotonic() + 3
        steps = []
        with a_run() as run:
            while time.monotonic() < end:
                steps.append(run.load(tmp_path))
                with meron.open_checkpoint(tmp_path) as opened:
                    np.testing.assert_array_equal(opened.read("w"), values_of(opened.step))
    finally:
        stop.set()
        writer.join()
    assert not failures, failures
    logging.info("%d loads of steps %d to %d", len(steps), steps[0], steps[-1])
    assert steps == sorted(steps)


@pytest.mark.parametrize("name", ["meron.json", "zero_to_fp32.py", "model.safetensors"])
def test_a_name_that_would_disable_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with a_run() as run:
        run.save(tmp_path, "step-1", 1)
        with pytest.raises(errors.ArgumentError, match="name"):
            run.save(tmp_path, name, 2)
        assert run.load(tmp_path) == 1
