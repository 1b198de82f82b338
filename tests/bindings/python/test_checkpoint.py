# SPDX-License-Identifier: Apache-2.0
"""The caller's own tensors in checkpoints: parts of ranks, kinds, and what is left out."""

from __future__ import annotations

import itertools
import logging
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from checkpoint_tensors import WHOLE, documented_read, manifest_of, part, save
from conftest import DEADLINE

import meron
from meron import CheckpointTensor


@pytest.mark.parametrize("writers", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_parts_of_ranks_make_whole_tensors(tmp_path: Path, writers: int, seed: int) -> None:
    """For any cuts of a tensor, and any writers of its pieces, each byte is saved once."""
    rng = random.Random(seed)
    dtypes = {"F32": "<f4", "I64": "<i8", "U8": "u1", "F64": "<f8", "BOOL": "?", "I16": "<i2"}
    kinds = ["extra", "values", "exp_avg", "state.momentum_buffer", "state.8", "master"]
    given: list[list[CheckpointTensor]] = [[] for _ in range(writers)]
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
            given[rng.randrange(writers)].append(
                part(tensor, begin, end, name=f"t{index}", kind=kind, dtype=dtype)
            )
    checkpoint = save(tmp_path, writers, given.__getitem__)
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


def test_failures_after_the_commit_are_only_logged(tmp_path: Path) -> None:
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
def test_values_only_and_skip_frozen_omit_their_tensors(
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
        unit.reduce({p: generator.normal(size=p.shape) for p in params[:-1]})
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
            options["lenient"] = True
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
    ranks.threads(2, body, plan=plan)
    manifest = manifest_of(tmp_path / "one")
    assert manifest["complete"] is not (values_only or skip_frozen)
    assert len(manifest["optimizers"]) == (0 if values_only else 1)
    names = set(shapes) - ({"cold"} if skip_frozen else set())
    kinds = set() if values_only else set(states)
    assert {(t["kind"], t["name"]) for t in manifest["tensors"] if t["name"] != "cold"} == {
        (kind, name) for kind in {"values", *kinds} for name in names - {"cold"}
    }
    assert ("cold" in {t["name"] for t in manifest["tensors"]}) is not skip_frozen
    ranks.threads(2, again, plan=plan)
