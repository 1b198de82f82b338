# SPDX-License-Identifier: Apache-2.0
"""The caller's own tensors in checkpoints: parts of ranks, kinds, and what is refused."""

from __future__ import annotations

import itertools
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DEADLINE, run_ranks
from test_checkpoint_format import documented_load

import meron
from meron import CheckpointTensor

Parts = Callable[[int], list[CheckpointTensor]]


def part(
    whole: np.ndarray[Any, Any],
    begin: int = 0,
    end: int | None = None,
    *,
    name: str = "t",
    kind: str = "extra",
    dtype: str = "F32",
) -> CheckpointTensor:
    data = np.ascontiguousarray(whole.reshape(-1)[begin:end])
    return CheckpointTensor(name, dtype, whole.shape, data, begin, kind)


def save(folder: Path, ranks: int, parts: Parts, **options: Any) -> Path:
    def body(ctx: meron.Context) -> None:
        ctx.save(folder, "one", tensors=parts(ctx.rank), **options)

    run_ranks(ranks, body)
    return folder / "one"


def manifest_of(checkpoint: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((checkpoint / "meron.json").read_text("utf-8"))
    return manifest


def documented_read(checkpoint: Path, kind: str) -> dict[str, np.ndarray[Any, Any]]:
    return dict(documented_load()(checkpoint, kind))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_parts_of_ranks_make_whole_tensors(tmp_path: Path, ranks: int, seed: int) -> None:
    """However tensors are cut and whoever gives the pieces, all bytes are there once."""
    rng = random.Random(seed)
    dtypes = {"F32": "<f4", "I64": "<i8", "U8": "u1", "F64": "<f8", "BOOL": "?", "I16": "<i2"}
    kinds = ["extra", "values", "exp_avg", "state.momentum_buffer", "state.8", "master"]
    given: list[list[CheckpointTensor]] = [[] for _ in range(ranks)]
    whole: dict[tuple[str, str], np.ndarray[Any, Any]] = {}
    for index in range(40):
        kind, dtype = rng.choice(kinds), rng.choice(sorted(dtypes))
        shape = tuple(rng.randrange(6) for _ in range(rng.randrange(4)))
        count = int(np.prod(shape, dtype=int))
        tensor = np.array(rng.choices(range(2), k=count), dtypes[dtype]).reshape(shape)
        whole[kind, f"t{index}"] = tensor
        cuts = sorted({0, count, *(rng.randrange(count + 1) for _ in range(3))})
        pieces = list(itertools.pairwise(cuts)) or [(0, 0)]
        rng.shuffle(pieces)
        for begin, end in pieces:
            given[rng.randrange(ranks)].append(
                part(tensor, begin, end, name=f"t{index}", kind=kind, dtype=dtype)
            )
    checkpoint = save(tmp_path, ranks, given.__getitem__)
    for kind in kinds:
        read = documented_read(checkpoint, kind)
        assert set(read) == {name for of, name in whole if of == kind}
        for name, tensor in read.items():
            assert tensor.dtype == whole[kind, name].dtype
            np.testing.assert_array_equal(tensor, whole[kind, name])
    with meron.open_checkpoint(checkpoint) as opened:
        for (kind, name), tensor in whole.items():
            np.testing.assert_array_equal(opened.read(name, kind), tensor)


def test_ranks_without_tensors_and_parts_without_elements(tmp_path: Path) -> None:
    tensor = np.arange(6, dtype="<f4")
    nothing = np.zeros((0, 3), "<f4")

    def parts(rank: int) -> list[CheckpointTensor]:
        both = [part(nothing, name="n"), part(nothing, name="n")]
        if rank == 0:
            return [part(tensor, 6, 6), *both]
        if rank == 2:
            return [part(tensor, 0, 0), part(tensor, 2), part(tensor, 0, 2), *both]
        return []

    read = documented_read(save(tmp_path, 4, parts), "extra")
    np.testing.assert_array_equal(read["t"], tensor)
    assert read["n"].shape == (0, 3)


def test_each_rank_has_extras_of_its_own(tmp_path: Path) -> None:
    checkpoint = save(
        tmp_path,
        3,
        lambda rank: [part(np.full(2, rank, "<f4"), name="rng", kind=f"extra.{rank}")],
    )
    for rank in range(3):
        assert (documented_read(checkpoint, f"extra.{rank}")["rng"] == rank).all()


def test_values_only_keeps_values_and_extras(tmp_path: Path) -> None:
    one = np.ones(3, "<f4")
    kinds = ["values", "master", "exp_avg", "exp_avg_sq", "state.step", "extra", "extra.0"]
    checkpoint = save(
        tmp_path, 1, lambda _: [part(one, kind=kind) for kind in kinds], values_only=True
    )
    kept = [tensor["kind"] for tensor in manifest_of(checkpoint)["tensors"]]
    assert sorted(kept) == ["extra", "extra.0", "values"]


def test_wider_elements_come_first_in_a_file(tmp_path: Path) -> None:
    checkpoint = save(
        tmp_path,
        1,
        lambda _: [
            part(np.ones(3, "u1"), name="a", dtype="U8"),
            part(np.ones((), "<i8"), name="b", dtype="I64"),
            part(np.ones(3, "<f4"), name="c"),
        ],
    )
    offsets = {t["name"]: t["pieces"][0][3] for t in manifest_of(checkpoint)["tensors"]}
    assert offsets["b"] < offsets["c"] < offsets["a"]


WHOLE = np.arange(20, dtype="<f4").reshape(4, 5)

REFUSED: dict[str, tuple[Parts, str]] = {
    "gap": (lambda r: [part(WHOLE, 12 * r, 8 + 12 * r)], r"no rank gives elements 8 to 11 of its"),
    "end": (lambda r: [part(WHOLE, 5 * r, 5 * r + 5)], r"no rank gives elements 10 to 19 of its"),
    "overlap": (lambda r: [part(WHOLE, 7 * r, 12 + 8 * r)], r"elements 7 to 11 are given twice"),
    "names both": (lambda r: [part(WHOLE)], r"by ranks 0 and 1"),
    "twice": (lambda r: [part(WHOLE)] * (2 * r), r"given twice, by rank 1\b"),
    "shape": (
        lambda r: [part(WHOLE if r else WHOLE.T, 10 * r, 10 + 10 * r)],
        r"rank 0 gives it as F32 \[5,4\], rank 1 gives it as F32 \[4,5\]",
    ),
    "dtype": (
        lambda r: [part(WHOLE, 10 * r, 10 + 10 * r, dtype="I32" if r else "F32")],
        r"rank 0 gives it as F32 \[4,5\], rank 1 gives it as I32",
    ),
    "kind": (lambda r: [part(WHOLE, kind="exp_ave")] * r, r"rank 1.*exp_ave"),
    "key": (lambda r: [part(WHOLE, kind="state.Step")] * r, r"rank 1.*state\.Step"),
    "gradient": (lambda r: [part(WHOLE, kind="gradient")] * r, r"gradient"),
    "other": (lambda r: [part(WHOLE, kind="extra.0")] * r, r"rank 1.*extra\.0"),
    "range": (lambda r: [CheckpointTensor("t", "F32", (2,), WHOLE)] * r, r"outside of its 2"),
    "begin": (
        lambda r: [CheckpointTensor("t", "F32", (2,), WHOLE[0, :1], 2**64 - 1)] * r,
        r"outside of its 2",
    ),
    "huge": (lambda r: [CheckpointTensor("t", "F32", (2**40, 2**40), b"")] * r, r"elements"),
    "dims": (lambda r: [CheckpointTensor("t", "F32", (1,) * 17, b"")] * r, r"dim.*17|17 dim"),
    "name": (lambda r: [part(WHOLE, name="")] * r, r"name"),
    "control": (lambda r: [part(WHOLE, name="a\nb")] * r, r"name"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_every_ranks_error_and_loses_nothing(
    tmp_path: Path, case: str
) -> None:
    parts, words = REFUSED[case]

    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.ArgumentError, match=words):
            ctx.save(tmp_path, "bad", tensors=parts(ctx.rank))
        half = part(WHOLE, 10 * ctx.rank, 10 + 10 * ctx.rank)
        ctx.save(tmp_path, "good", tensors=[half])

    run_ranks(2, body)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["good"]
    np.testing.assert_array_equal(documented_read(tmp_path / "good", "extra")["t"], WHOLE)


def test_a_tensor_that_a_unit_saves_too_is_refused(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        ctx.unit("u", [ctx.param("w", 3)])
        own = [part(np.ones(3, "<f4"), name="w", kind="values")] * ctx.rank
        with pytest.raises(meron.DuplicateError, match=r"rank 1.*unit 'u'"):
            ctx.save(tmp_path, "one", tensors=own)
        own = [part(np.ones(3, "<f4"), name="w", kind="state.momentum_buffer")] * ctx.rank
        ctx.save(tmp_path, "two", tensors=own)

    run_ranks(2, body)
    kinds = {tensor["kind"] for tensor in manifest_of(tmp_path / "two")["tensors"]}
    assert kinds == {"values", "state.momentum_buffer"}


def test_extra_that_is_no_object_is_every_ranks_error(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"a": deep}

    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.Error, match="extra"):
            ctx.save(tmp_path, "one", extra=deep if ctx.rank == 1 else {})

    run_ranks(2, body)


def test_what_fails_after_the_commit_is_logged_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()  # in the place of the file
    lines: list[tuple[int, str]] = []

    def log(level: int, text: str) -> None:
        lines.append((level, text))

    with meron.open(0, 1, "self", timeout=DEADLINE, log=log) as ctx:
        ctx.save(tmp_path, "one", tensors=[part(WHOLE)], keep=1)
    np.testing.assert_array_equal(documented_read(tmp_path / "one", "extra")["t"], WHOLE)
    warnings = [text for level, text in lines if level == logging.WARNING]
    assert len(warnings) == 1 and "save of 'one'" in warnings[0] and "latest" in warnings[0]


@pytest.mark.parametrize(
    ("plan", "dtype"), [("zero0", "f32"), ("zero1", "bf16"), ("zero2", "f32"), ("zero3", "bf16")]
)
@pytest.mark.parametrize(
    ("values_only", "skip_frozen"), [(True, False), (False, True), (True, True)]
)
def test_values_only_and_skip_frozen_leave_out_what_they_say(
    tmp_path: Path, plan: str, dtype: str, values_only: bool, skip_frozen: bool
) -> None:
    shapes = {"w": (5, 7), "b": (3,), "e": (0, 2), "cold": (9,)}
    states = ["exp_avg", "exp_avg_sq", *(["master"] if dtype == "bf16" else [])]

    def trained(ctx: meron.Context, seed: int) -> tuple[meron.Unit, meron.Optimizer]:
        params = [ctx.param(n, s, dtype, frozen=n == "cold") for n, s in shapes.items()]
        unit = ctx.unit("u", params)
        generator = np.random.default_rng(seed)
        with ctx.update([unit]) as update:
            for param in params:
                update.write(param, generator.normal(size=param.shape).astype(np.float32))
        optimizer = ctx.adamw([unit], lr=0.1)
        unit.reduce({p: generator.normal(size=p.shape) for p in params[:-1]}).wait()
        optimizer.step()
        return unit, optimizer

    def look(unit: meron.Unit, optimizer: meron.Optimizer) -> dict[tuple[str, str], Any]:
        seen = {}
        with unit.gather() as full:
            for param in unit.params:
                seen["values", param.name] = np.array(full[param])
        for param in unit.params[:-1]:
            for kind in states:
                seen[kind, param.name] = np.array(optimizer.state(param, kind))
        return seen

    def body(ctx: meron.Context) -> None:
        unit, optimizer = trained(ctx, 1)
        ctx.save(tmp_path, "one", [optimizer], values_only=values_only, skip_frozen=skip_frozen)
        saved[ctx.rank] = look(unit, optimizer)

    def again(ctx: meron.Context) -> None:
        unit, optimizer = trained(ctx, 2)
        before = look(unit, optimizer)
        options: dict[str, Any] = {"values_only": True} if values_only else {}
        if skip_frozen:
            with pytest.raises(meron.ArgumentError, match="missing: cold"):
                ctx.load(tmp_path, "one", [optimizer], **options)
            options["strict"] = False
        loaded = ctx.load(tmp_path, "one", [optimizer], **options)
        assert set(loaded.missing) == ({"cold"} if skip_frozen else set())
        after = look(unit, optimizer)
        for (kind, name), state in after.items():
            kept = (values_only and kind.startswith("exp_avg")) or (skip_frozen and name == "cold")
            if values_only and kind == "master":
                continue  # follows the values
            expected = before if kept else saved[ctx.rank]
            assert state.tobytes() == expected[kind, name].tobytes(), (kind, name)

    saved: dict[int, Any] = {}
    run_ranks(2, body, plan=plan)
    manifest = manifest_of(tmp_path / "one")
    assert manifest["complete"] is not (values_only or skip_frozen)
    assert len(manifest["optimizers"]) == (0 if values_only else 1)
    names = set(shapes) - ({"cold"} if skip_frozen else set())
    kinds = set() if values_only else set(states)
    assert {(t["kind"], t["name"]) for t in manifest["tensors"] if t["name"] != "cold"} == {
        (kind, name) for kind in {"values", *kinds} for name in names - {"cold"}
    }
    assert ("cold" in {t["name"] for t in manifest["tensors"]}) is not skip_frozen
    run_ranks(2, again, plan=plan)


def test_write_checkpoint_needs_no_context(tmp_path: Path) -> None:
    optimizers = [
        {
            "rule": "adamw",
            "steps": 7,
            "groups": [
                {
                    "learning_rate": 0.5,
                    "beta1": 0.5,
                    "beta2": 0.25,
                    "epsilon": 0.125,
                    "weight_decay": 0,
                }
            ],
        }
    ]
    tensors = [
        part(WHOLE, 0, 7, name="w", kind="values"),
        part(WHOLE, 7, name="w", kind="values"),
        part(np.array(3.0, "<f4"), name="w", kind="state.step"),
    ]
    meron.write_checkpoint(
        tmp_path, "one", tensors, step=7, extra={"epoch": 1}, optimizers=optimizers
    )
    with meron.open_checkpoint(tmp_path) as opened:
        assert (opened.step, opened.world, opened.extra) == (7, 1, {"epoch": 1})
        assert opened.manifest["optimizers"] == optimizers
        np.testing.assert_array_equal(opened.read("w"), WHOLE)
        assert opened.read("w", "state.step") == 3
    with pytest.raises(meron.DuplicateError):
        meron.write_checkpoint(tmp_path, "one", tensors)
    meron.write_checkpoint(tmp_path, "one", tensors[2:], overwrite=True)
    assert [t["kind"] for t in manifest_of(tmp_path / "one")["tensors"]] == ["state.step"]


def test_write_checkpoint_refuses_what_a_save_refuses(tmp_path: Path) -> None:
    for tensors, options, words in [
        ([part(WHOLE, 0, 3)], {}, "no rank gives elements 3 to 19"),
        ([part(WHOLE, kind="extra.1")], {}, "extra"),
        ([], {"optimizers": [{"rule": "adamw"}]}, "optimizers"),
        ([], {"extra": {"a": float("nan")}}, "JSON"),
        ([part(WHOLE)], {"name": "a/b"}, "more than one component"),
    ]:
        arguments: dict[str, Any] = {"name": "one", **options}
        with pytest.raises(meron.Error, match=words):
            meron.write_checkpoint(tmp_path, tensors=tensors, **arguments)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    meron.write_checkpoint(tmp_path, "one", [])
    assert manifest_of(tmp_path / "one")["tensors"] == []


def test_write_checkpoint_streams_mapped_files(tmp_path: Path) -> None:
    source = np.memmap(tmp_path / "source", "<f4", "w+", shape=(3 << 20,))
    source[:] = np.arange(source.size)
    meron.write_checkpoint(tmp_path, "one", [part(source, name="w", kind="values")])
    np.testing.assert_array_equal(documented_read(tmp_path / "one", "values")["w"], source)


def test_states_of_the_caller_and_of_the_engine_are_the_same_kinds(tmp_path: Path) -> None:
    """An optimizer of the engine goes on with states that a caller wrote, and the other way."""
    generator = np.random.default_rng(3)
    written = {kind: generator.random((6, 5)).astype("<f4") for kind in ("exp_avg", "exp_avg_sq")}
    values = generator.random((6, 5)).astype("<f4")
    numbers = {"learning_rate": 0.5, "beta1": 0.5, "beta2": 0.25, "epsilon": 0.125}
    meron.write_checkpoint(
        tmp_path,
        "written",
        [
            part(values, name="w", kind="values"),
            *(part(state, name="w", kind=kind) for kind, state in written.items()),
        ],
        optimizers=[{"rule": "adamw", "steps": 9, "groups": [{**numbers, "weight_decay": 0.0}]}],
    )

    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (6, 5))
        optimizer = ctx.adamw([ctx.unit("u", [param])], lr=0.1)
        assert ctx.load(tmp_path, "written", [optimizer]).missing == ()
        assert optimizer.steps == 9
        for kind, state in written.items():
            owned = state.reshape(-1)[param.owned.start : param.owned.stop]
            np.testing.assert_array_equal(optimizer.state(param, kind), owned)
        ctx.save(tmp_path, "saved", [optimizer])

    run_ranks(3, body, plan="zero3")
    with meron.open_checkpoint(tmp_path, "saved") as opened:
        np.testing.assert_array_equal(opened.read("w"), values)
        for kind, state in written.items():
            np.testing.assert_array_equal(opened.read("w", kind), state)


@pytest.mark.parametrize("call", ["save", "export", "load"])
def test_a_mapping_that_one_rank_has_wrong_is_every_ranks_error(tmp_path: Path, call: str) -> None:
    def body(ctx: meron.Context) -> str:
        ctx.unit("u", [ctx.param("w", (10,))])
        ctx.save(tmp_path, "first")
        mapping: Any = {"w": 3} if ctx.rank == 1 else {"w": "v"}
        folder = tmp_path / "e" if call == "export" else tmp_path
        arguments = ("second",) if call == "save" else ()
        with pytest.raises(meron.Error) as caught:
            getattr(ctx, call)(folder, *arguments, mapping=mapping)
        return type(caught.value).__name__

    others, wrong = run_ranks(2, body)
    assert others == "MismatchError"
    assert wrong in ("MismatchError", "ParseError")  # whichever that rank finds first
    assert not (tmp_path / "second").exists()
    assert not list(tmp_path.glob("e/*.safetensors"))


@pytest.mark.parametrize("call", ["save", "export"])
def test_a_mapping_that_is_wrong_on_all_ranks_leaves_the_group(tmp_path: Path, call: str) -> None:
    def body(ctx: meron.Context) -> None:
        ctx.unit("u", [ctx.param("w", (10,))])
        mapping: Any = {"w": 3}
        arguments = ("first",) if call == "save" else ()
        with pytest.raises(meron.Error, match="mapping"):
            getattr(ctx, call)(tmp_path, *arguments, mapping=mapping)
        ctx.save(tmp_path, "first")

    run_ranks(2, body)
