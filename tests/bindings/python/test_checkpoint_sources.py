# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and models of Hugging Face: opened, read, and loaded by any number of ranks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
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

    ranks.threads(3, body)
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
    write_model(tmp_path, {"a": ramp(33, 5).astype("<f8")}, {"b": bf16(ramp(9)), "c": ramp(2)})

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

    ranks.threads(3, body)


PLANS = ("zero0", "zero1", "zero3", "mics(2)", "hpz(2)")


def load_whole(ctx: meron.Context, folder: Path, shapes: Any, **options: Any) -> Any:
    """Loads a checkpoint. Returns the values of all params, and the checkpoint."""
    params = [ctx.param(name, shape) for name, shape in shapes.items()]
    units = [ctx.unit("u", params[:1]), ctx.unit("v", params[1:])]
    loaded = ctx.load(folder, **options)
    values = {}
    for unit in units:
        with unit.gather() as full:
            values.update({p.name: full[p].copy() for p in params if p in unit.params})
    return values, loaded


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("rank0_only", [False, True])
def test_names_are_mapped_and_joined(tmp_path: Path, plan: str, rank0_only: bool) -> None:
    q, k, v = ramp(400, 6), ramp(300, 6, first=2400), ramp(30, 6)
    parts = {"q": q, "k": k.astype("<f8"), "v": bf16(v)}
    write_model(tmp_path, {**parts, "old": ramp(5)}, {"mask": ramp(2), "other": ramp(3, 3)})

    def body(ctx: meron.Context) -> Any:
        return load_whole(
            ctx,
            tmp_path,
            {"qkv": (730, 6), "new": (5,), "other": (3, 3)},
            mapping={"qkv": ["q", "k", "v"], "new": "old"},
            claimed=["mask"],
            rank0_only=rank0_only,
        )

    count = 4 if "(" in plan else 3
    for rank, (values, loaded) in enumerate(ranks.threads(count, body, plan=plan)):
        assert (loaded.missing, loaded.unexpected) == ((), ())
        np.testing.assert_array_equal(values["qkv"], np.concatenate([q, k, v]))
        np.testing.assert_array_equal(values["new"], ramp(5))
        np.testing.assert_array_equal(values["other"], ramp(3, 3))
        assert loaded.bytes_read == 0 if rank0_only and rank else loaded.bytes_read > 0


def test_what_does_not_fit_is_listed_before_anything_changes(tmp_path: Path) -> None:
    write_model(tmp_path, {"q": ramp(4, 6), "k": ramp(3, 5), "w": ramp(7), "rest": ramp(1)})

    def body(ctx: meron.Context) -> None:
        w, qk, n = ctx.param("w", (7,)), ctx.param("qk", (7, 6)), ctx.param("n", (2,))
        unit = ctx.unit("u", [w, qk, n])
        with ctx.update([unit]) as update:
            update.write(w, np.full(7, 9))
        with pytest.raises(meron.ArgumentError) as caught:
            ctx.load(
                tmp_path,
                mapping={"qk": ["q", "k"], "n": "none", "typo": "w"},
                claimed=["mask"],
            )
        for part in (
            "missing: mask, n;",
            "unexpected: rest;",
            "qk (F32 [4,6] + F32 [3,5] in the checkpoint, [7,6] here)",
            "lacks: n (to none);",
            "no param of a unit: typo",
        ):
            assert part in str(caught.value)
        with pytest.raises(meron.ArgumentError, match="typo"):
            ctx.load(tmp_path, mapping={"qk": "q", "typo": "w"}, lenient=True)
        with pytest.raises(meron.ParseError, match="names no tensor"):
            ctx.load(tmp_path, mapping={"qk": []})
        with unit.gather() as full:
            assert (full[w] == 9).all()
        loaded = ctx.load(tmp_path, mapping={"n": "none"}, claimed=["mask"], lenient=True)
        assert loaded.missing == ("mask", "n", "qk")
        assert loaded.unexpected == ("k", "q", "rest")
        with unit.gather() as full:
            np.testing.assert_array_equal(full[w], ramp(7))

    ranks.threads(2, body)


@pytest.mark.parametrize("key", ["mapping", "claimed", "rank0_only"])
def test_ranks_that_load_differently_are_told(tmp_path: Path, key: str) -> None:
    write_model(tmp_path, {"w": ramp(7), "v": ramp(7)})

    def body(ctx: meron.Context) -> None:
        ctx.unit("u", [ctx.param("w", (7,))])
        others: dict[str, Any] = {"mapping": {"w": "v"}, "claimed": ["v"], "rank0_only": True}
        options = {key: others[key]} if ctx.rank == 1 else {}
        with pytest.raises(meron.MismatchError):
            ctx.load(tmp_path, lenient=True, **options)

    ranks.threads(2, body)


def test_optimizers_do_not_load_from_models(tmp_path: Path) -> None:
    write_model(tmp_path, {"w": ramp(7)})

    def body(ctx: meron.Context) -> None:
        unit = ctx.unit("u", [ctx.param("w", (7,), dtype="bf16")])
        adam = ctx.adamw([unit], lr=0.1)
        with pytest.raises(meron.ArgumentError, match="no states of optimizers"):
            ctx.load(tmp_path, optimizers=[adam])
        ctx.load(tmp_path, optimizers=[adam], values_only=True)

    ranks.threads(2, body)


def flip_last_bit(folder: Path, pattern: str) -> None:
    for path in folder.glob(pattern):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)


def test_rank_0_names_the_damage_to_all(tmp_path: Path) -> None:
    def save(ctx: meron.Context) -> None:
        ctx.unit("u", [ctx.param("w", (3000, 1000))])
        ctx.save(tmp_path, "one")

    ranks.threads(2, save)
    flip_last_bit(tmp_path / "one", "values-00001*")

    def load(ctx: meron.Context) -> str:
        ctx.unit("u", [ctx.param("w", (3000, 1000))])
        with pytest.raises(meron.Error) as caught:
            ctx.load(tmp_path, rank0_only=True)
        return str(caught.value)

    for text in ranks.threads(3, load):
        assert "CRC-32C" in text
        assert "values-00001" in text


@pytest.mark.parametrize("before", [False, True])
def test_a_damaged_checkpoint_names_the_one_before(tmp_path: Path, before: bool) -> None:
    def save(ctx: meron.Context) -> None:
        ctx.unit("u", [ctx.param("w", (3000, 1000))])
        ctx.save(tmp_path, "step-1", step=1)
        ctx.save(tmp_path, "step-2", step=2)
        if before:
            ctx.save(tmp_path, "step-3", step=3)

    ranks.threads(2, save)
    newest = "step-3" if before else "step-1"
    flip_last_bit(tmp_path / newest, "values-00000*")

    def load(ctx: meron.Context) -> str:
        ctx.unit("u", [ctx.param("w", (3000, 1000))])
        with pytest.raises(meron.CorruptError) as caught:
            ctx.load(tmp_path, None if before else newest)
        return str(caught.value)

    text = ranks.threads(1, load)[0]
    assert "values-00000" in text
    assert ("load the one before by its name, 'step-2'" in text) == before
