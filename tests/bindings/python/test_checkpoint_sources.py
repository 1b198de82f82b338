# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and models of Hugging Face: opened, read, and loaded by any number of ranks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import run_ranks
from hf_files import bf16, write_file, write_model

import meron
from meron.checkpoint import open_checkpoint


def ramp(*shape: int, first: int = 0) -> np.ndarray[Any, Any]:
    return np.arange(first, first + int(np.prod(shape)), dtype="<f4").reshape(shape)


def test_a_model_is_described_and_read(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": ramp(4, 5), "half": bf16(ramp(7))}, {"n": np.array(3, "<i8")})
    with open_checkpoint(tmp_path) as model:
        assert (model.path, model.world, model.step) == (str(tmp_path), 1, 0)
        assert set(model.tensors) == {("values", name) for name in ("a", "half", "n")}
        np.testing.assert_array_equal(model.read("a"), ramp(4, 5))
        np.testing.assert_array_equal(model.read("a", begin=3, count=4), ramp(4, first=3))
        np.testing.assert_array_equal(model.read("half"), bf16(ramp(7)))
        assert model.read("n") == 3
        out = np.zeros(20, "<f4")
        model.read_into(out, "a", begin=0, count=20)
        np.testing.assert_array_equal(out, ramp(20))
        with pytest.raises(meron.NotFoundError, match="no values of 'b'"):
            model.read("b")
        with pytest.raises(meron.ArgumentError, match="outside of its 20"):
            model.read("a", begin=10, count=11)
    with pytest.raises(meron.StaleError):
        model.read("a")
    with open_checkpoint(tmp_path / "model-00001-of-00002.safetensors") as one:
        np.testing.assert_array_equal(one.read("a"), ramp(4, 5))


def test_a_checkpoint_is_read_without_a_context(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (50, 20))
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.write(param, ramp(50, 20))
        ctx.save(tmp_path, "one", step=7, extra={"epoch": 2})

    run_ranks(3, body)
    with open_checkpoint(tmp_path) as saved:
        assert (saved.step, saved.world, saved.extra) == (7, 3, {"epoch": 2})
        assert saved.manifest["name"] == "one"
        np.testing.assert_array_equal(saved.read("w"), ramp(50, 20))
        failures: list[BaseException] = []

        def read(first: int) -> None:
            try:
                for begin in range(first, 1000, 7):
                    assert saved.read("w", begin=begin, count=1)[0] == begin
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert saved.bytes_read == sum(file["bytes"] for file in saved.manifest["files"])


def test_thousands_of_tensors_cost_one_read_of_the_file(tmp_path: Path) -> None:
    write_model(tmp_path, {f"t{i}": ramp(100, first=i) for i in range(3000)})
    with open_checkpoint(tmp_path) as model:
        for i in range(3000):
            assert model.read(f"t{i}")[99] == i + 99
        assert model.bytes_read <= (tmp_path / "model.safetensors").stat().st_size


def test_what_loads_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(meron.NotFoundError):
        open_checkpoint(tmp_path / "none")
    with pytest.raises(meron.NotFoundError, match=r"no model\.safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(meron.NotFoundError, match="meron checkpoint import"):
        open_checkpoint(tmp_path)
    for name in ("one", "two"):
        write_file(tmp_path / f"{name}.safetensors", {"w": ramp(3)})
    with pytest.raises(meron.NotFoundError, match=r"Name one of its files: one\.safetensors"):
        open_checkpoint(tmp_path)


def test_a_model_loads_into_shards(tmp_path: Path) -> None:
    write_model(tmp_path, {"a": ramp(33, 5)}, {"b": bf16(ramp(9)), "c": ramp(2)})

    def body(ctx: meron.Context) -> None:
        a, b, c = (ctx.param(n, s) for n, s in (("a", (33, 5)), ("b", (9,)), ("c", (2,))))
        unit = ctx.unit("u", [a, b, c])
        loaded = ctx.load(tmp_path)
        assert (loaded.missing, loaded.unexpected) == ((), ())
        with unit.gather() as full:
            np.testing.assert_array_equal(full[a], ramp(33, 5))
            np.testing.assert_array_equal(full[b], ramp(9))
            np.testing.assert_array_equal(full[c], ramp(2))
        np.testing.assert_array_equal(loaded.read("c"), ramp(2))

    run_ranks(3, body)
