# SPDX-License-Identifier: Apache-2.0
"""Arrays as arguments: types, references and memory that are refused."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import torch

import meron
from meron import CheckpointTensor

REFERENCES: dict[str, Callable[[], np.ndarray]] = {
    "objects": lambda: np.array([{"a": 1}, "b"], object),
    "fields of objects": lambda: np.zeros(2, [("a", object), ("b", "f4")]),
    "nested": lambda: np.zeros(2, [("a", [("b", object)])]),
    "strings": lambda: np.array(["a" * 100, "b" * 100], np.dtypes.StringDType()),
}


@pytest.mark.parametrize("kind", REFERENCES)
def test_no_reference_leaves_the_process(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"A" * 64)

    def body(ctx: meron.Context) -> None:
        array = REFERENCES[kind]()
        param = ctx.param("w", (2,))
        unit = ctx.unit("u", [param])
        optimizer = ctx.adamw([unit])
        drive = meron.io.IO()
        tensor = CheckpointTensor("x", "I64", (2,), array)
        for use in (
            lambda: ctx.world.broadcast(array),
            lambda: ctx.world.all_reduce(array),
            lambda: drive.read(tmp_path / "file", array),
            lambda: drive.write(tmp_path / "other", array),
            lambda: drive.buffer(2, array.dtype),
            lambda: ctx.save(tmp_path, "a", tensors=[tensor]),
            lambda: meron.write_checkpoint(tmp_path, "b", [tensor]),
            lambda: unit.reduce({param: array}),
            lambda: unit.gather(into={param: array}),
            lambda: optimizer.write_state(param, "exp_avg", array),
        ):
            with pytest.raises(meron.ArgumentError, match=r"references|no real numbers"):
                use()
        with ctx.update([unit]) as update, pytest.raises(meron.ArgumentError, match="real numbers"):
            update.write(param, array)
        ctx.world.barrier()

    ranks.threads(2, body)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_no_reference_is_read_by_the_buffer_protocol(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"A" * 64)
    with meron.io.IO() as drive:
        for memory in ((ctypes.py_object * 2)(1, 2), memoryview(np.array([1, 2], object))):
            with pytest.raises(meron.ArgumentError, match="references"):
                drive.read(tmp_path / "file", memory)
        named = np.zeros(2, [("O", "f4")])
        drive.read(tmp_path / "file", memoryview(named))
        assert named.tobytes() == b"A" * 8


def test_uint16_is_numbers(alone: meron.Context) -> None:
    numbers = np.array([1, 2, 3, 300], np.uint16)
    with pytest.raises(meron.ArgumentError, match=r"uint16.*meron\.bfloat16"):
        alone.world.all_reduce(numbers)
    for dtype in ("f32", "bf16"):
        param = alone.param(dtype, (4,), dtype)
        unit = alone.unit(dtype, [param])
        optimizer = alone.adamw([unit])
        with alone.update([unit]) as update:
            update.write(param, numbers)
        with unit.gather() as full:
            assert meron.to_float32(full[param]).tolist() == [1, 2, 3, 300]
        unit.reduce({param: numbers})
        assert unit.reduced(param).tolist() == [1, 2, 3, 300]
        optimizer.write_state(param, "exp_avg", numbers)
        assert optimizer.read_state(param, "exp_avg").tolist() == [1, 2, 3, 300]


def test_bits_are_declared_by_their_type(alone: meron.Context) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    param = alone.param("w", (2,))
    unit = alone.unit("u", [param])
    with alone.update([unit]) as update:
        update.write(param, bits.view(meron.bfloat16))
    with unit.gather() as full:
        assert full[param].tolist() == [1, 2]
    metric = bits.view(meron.bfloat16)
    assert meron.to_float32(alone.world.all_reduce(metric)).tolist() == [1, 2]


@pytest.mark.parametrize(
    "value",
    [
        [None] * 3,
        ["1", "2", "3"],
        np.ones(3) * 1j,
        np.ma.array([1, 2, 3], mask=[0, 1, 0]),
        [1e300] * 3,
    ],
    ids=["none", "strings", "complex", "masked", "large"],
)
def test_values_that_f32_cannot_hold_are_refused(alone: meron.Context, value: Any) -> None:
    param = alone.param("w", (3,))
    unit = alone.unit("u", [param])
    optimizer = alone.adamw([unit])
    with alone.update([unit]) as update, pytest.raises(meron.ArgumentError, match="w: "):
        update.write(param, value)
    with pytest.raises(meron.ArgumentError, match="exp_avg of w: "):
        optimizer.write_state(param, "exp_avg", value)
    assert not optimizer.read_state(param, "exp_avg").any()


def test_infinite_values_and_whole_masks_pass(alone: meron.Context) -> None:
    param = alone.param("w", (3,))
    unit = alone.unit("u", [param])
    for value in ([np.inf, -np.inf, 3e38], np.ma.array([1.0, 2, 3]), np.float64([1, 2, 3])):
        with alone.update([unit]) as update:
            update.write(param, value)
    unit.reduce({param: [1e300, 1, 1]})
    assert unit.reduced(param).tolist() == [np.inf, 1, 1]


def test_tensors_of_pytorch_are_values_and_gradients(alone: meron.Context) -> None:
    unit = alone.unit("u", [alone.param("w", (3,)), alone.param("b", (3,), torch.bfloat16)])
    numbers = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with alone.update([unit]) as update:
        update.write("w", numbers.to(torch.bfloat16))
        update.write("b", numbers)
    with unit.gather() as full:
        assert full["w"].tolist() == meron.to_float32(full["b"]).tolist() == [1, 2, 3]
    unit.reduce({"w": numbers, "b": numbers.to(torch.bfloat16)})
    assert unit.reduced("w").tolist() == unit.reduced("b").tolist() == [1, 2, 3]


def test_an_array_with_a_mask_is_not_reduced(alone: meron.Context) -> None:
    with pytest.raises(meron.ArgumentError, match="masked"):
        alone.world.all_reduce(np.ma.array([1.0, 2.0], mask=[0, 1]))


WRONG = {
    "other floats": (("F32", (4,), np.array([1.0, 2.0])), "<f8, not F32"),
    "other byte order": (("F32", (2,), np.array([1, 2], ">f4")), ">f4, not F32"),
    "whole numbers": (("F32", (2,), np.array([1, 2], np.int32)), "<i4, not F32"),
    "signed": (("U32", (2,), np.array([1, 2], np.int32)), "<i4, not U32"),
    "transposed": (("F32", (2, 2), np.zeros((2, 2), "f4").T), "not contiguous"),
    "other shape": (("F32", (4,), np.zeros((1, 4), "f4")), r"\(1, 4\), the tensor has \(4,\)"),
    "a tensor": (("F32", (2,), torch.ones(2)), r"a Tensor.*tensor\.numpy\(\)"),
    "a list": (("F32", (2,), [1.0, 2.0]), "a list"),
    "other elements": (("F32", (2,), memoryview(np.zeros(2))), "<f8, not F32"),
}


@pytest.mark.parametrize("case", WRONG)
def test_data_of_a_checkpoint_are_of_its_dtype(
    alone: meron.Context, tmp_path: Path, case: str
) -> None:
    (dtype, shape, data), words = WRONG[case]
    if case == "transposed":
        data = np.arange(4, dtype="f4").reshape(2, 2).T
    tensor = CheckpointTensor("x", dtype, shape, data)
    for use in (
        lambda: meron.write_checkpoint(tmp_path, "a", [tensor]),
        lambda: alone.save(tmp_path, "a", tensors=[tensor]),
    ):
        with pytest.raises(meron.ArgumentError, match=f"'x'.*{words}"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "data"),
    [
        ("F32", np.array([1, 2], "f4")),
        ("F32", np.array([1, 2], "f4").view(np.uint8)),
        ("F32", np.array([1, 2], "f4").tobytes()),
        ("F32", memoryview(np.array([1, 2], "f4"))),
        ("F32", io.BytesIO(np.array([1, 2], "f4").tobytes()).getbuffer()),
        ("BF16", meron.from_float32([1, 2], "bf16")),
        ("BF16", np.array([0x3F80, 0x4000], np.uint16)),
        ("F8_E4M3", np.array([1, 2], np.uint8)),
        ("BOOL", np.array([True, False])),
    ],
)
def test_data_and_bits_of_a_checkpoint_are_saved_as_they_are(
    tmp_path: Path, dtype: str, data: Any
) -> None:
    meron.write_checkpoint(tmp_path, "a", [CheckpointTensor("x", dtype, (2,), data)])
    found = meron.open_checkpoint(tmp_path).read("x", "extra")
    assert found.tobytes() == (data if isinstance(data, bytes) else memoryview(data.tobytes()))


class OnCuda:
    """As another framework has a tensor on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("it was asked for an address")


class Interface:
    def __init__(self) -> None:
        shown = {"shape": (4,), "typestr": "<f4", "data": (8, False), "version": 3}
        self.__cuda_array_interface__ = shown


@pytest.mark.parametrize("array", [meron.DeviceArray(8, (4,)), OnCuda(), Interface()])
def test_no_address_is_trusted_without_a_device(alone: meron.Context, array: Any) -> None:
    param = alone.param("w", (4,))
    unit = alone.unit("u", [param])
    for use in (lambda: unit.gather(into={param: array}), lambda: unit.reduce({param: array})):
        with pytest.raises(meron.ArgumentError, match=r"w.*opened without one"):
            use()
