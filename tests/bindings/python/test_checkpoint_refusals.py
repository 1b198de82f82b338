# SPDX-License-Identifier: Apache-2.0
"""Saves of the caller's own tensors that are refused: an error of every rank that loses nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from checkpoint_tensors import WHOLE, Parts, documented_read, manifest_of, part

import meron
from meron import CheckpointTensor

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
        lambda r: [part(WHOLE.view("i4"), 10, 20, dtype="I32") if r else part(WHOLE, 0, 10)],
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
def test_a_mismatch_is_every_ranks_error_and_loses_nothing(tmp_path: Path, case: str) -> None:
    parts, words = REFUSED[case]

    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.ArgumentError, match=words):
            ctx.save(tmp_path, "bad", tensors=parts(ctx.rank))
        half = part(WHOLE, 10 * ctx.rank, 10 + 10 * ctx.rank)
        ctx.save(tmp_path, "good", tensors=[half])

    ranks.threads(2, body)
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

    ranks.threads(2, body)
    kinds = {tensor["kind"] for tensor in manifest_of(tmp_path / "two")["tensors"]}
    assert kinds == {"values", "state.momentum_buffer"}


def test_extra_that_is_no_object_is_every_ranks_error(tmp_path: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(20):
        deep = {"a": deep}

    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.Error, match="extra"):
            ctx.save(tmp_path, "one", extra=deep if ctx.rank == 1 else {})

    ranks.threads(2, body)


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

    others, wrong = ranks.threads(2, body)
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

    ranks.threads(2, body)
