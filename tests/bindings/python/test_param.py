# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
import ranks

import meron


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((), ()), (7, (7,)), ([2, 3], (2, 3)), ((0, 4), (0, 4)), ((1,) * 16, (1,) * 16)],
)
def test_the_information_of_a_param(
    alone: meron.Context, shape: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    param = alone.param("wéight", shape, "f16", frozen=True)
    assert (param.name, param.shape, param.dtype_name, param.frozen) == (
        "wéight",
        sizes,
        "f16",
        True,
    )
    assert param.size == np.prod(sizes, dtype=int)
    assert param.shard_range == range(0)
    assert repr(param) == f"<meron.Param 'wéight': f16 {sizes}>"
    alone.unit("u", [param])
    assert param.shard_range == range(param.size)


def test_owned_parts_tile_the_tensor() -> None:
    def body(ctx: meron.Context) -> list[range]:
        params = [ctx.param(f"w{size}", size) for size in (1000, 7, 1, 0)]
        ctx.unit("u", params)
        return [param.shard_range for param in params]

    parts = ranks.threads(3, body)
    for index, size in enumerate((1000, 7, 1, 0)):
        shard_range = sorted(
            (rank[index] for rank in parts), key=lambda part: (part.start, part.stop)
        )
        assert [i for part in shard_range for i in part] == list(range(size))


def test_dtypes_by_any_name(alone: meron.Context) -> None:
    names = ("f32", "float32", np.float32, np.dtype("f2"), "bfloat16")
    dtypes = [alone.param(str(i), 1, name).dtype_name for i, name in enumerate(names)]
    assert dtypes == ["f32", "f32", "f32", "f16", "bf16"]


def test_a_dtype_is_numpys(alone: meron.Context) -> None:
    for name, kind in (("f32", np.float32), ("f16", np.float16), ("bf16", meron.bfloat16)):
        param = alone.param(name, (2, 3), kind)
        array = np.zeros(param.shape, param.dtype)
        unit = alone.unit(name, [param])
        with unit.gather(into={param: array}), unit.gather() as full:
            assert full[param].dtype == param.dtype == unit.flats[0].dtype == kind
            assert full.dlpack(param).dtype == kind
            assert param.dtype_name == full.dlpack(param).dtype_name == name


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"name": ""}, meron.ArgumentError),
        ({"name": "x" * 513}, meron.ArgumentError),
        ({"name": "a\0b"}, meron.ArgumentError),
        ({"name": "\udc80"}, meron.ArgumentError),
        ({"name": 3}, TypeError),
        ({"shape": (-1,)}, meron.ArgumentError),
        ({"shape": (2**62, 2**62)}, meron.ArgumentError),
        ({"shape": (2**64,)}, meron.ArgumentError),
        ({"shape": (1,) * 17}, meron.ArgumentError),
        ({"dtype": "f64"}, meron.ArgumentError),
        ({"dtype": np.int32}, meron.ArgumentError),
    ],
)
def test_bad_params(
    alone: meron.Context, arguments: dict[str, object], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        alone.param(**{"name": "w", "shape": (2,), **arguments})  # type: ignore[arg-type]
    assert alone.param("w", (2,)).size == 2


def test_names_twice(alone: meron.Context) -> None:
    first = alone.param("w", (2,))
    with pytest.raises(meron.DuplicateError, match="w") as caught:
        alone.param("w", (3,))
    assert caught.value.subject == "w"
    unit = alone.unit("u", [first])
    with pytest.raises(meron.DuplicateError):
        alone.unit("u", [alone.param("x", (2,))])
    with pytest.raises(meron.DuplicateError):
        alone.unit("v", [first])
    assert unit.params == (first,)


def test_bad_units(alone: meron.Context) -> None:
    param = alone.param("w", (2,))
    with pytest.raises(meron.ArgumentError):
        alone.unit("u", [])
    with pytest.raises(meron.DuplicateError):
        alone.unit("u", [param, param])
    with pytest.raises(TypeError, match="Param"):
        alone.unit("u", [alone])  # type: ignore[list-item]
    info = alone.unit("u", [param]).info()
    assert info[:4] == ("partitioned", 0, 0, False)
    assert info[4:] == ("none", "none", 0, 0, 0, 0)


def test_another_shape_than_the_peers() -> None:
    def body(ctx: meron.Context) -> None:
        with pytest.raises(meron.MismatchError) as caught:
            ctx.param("w", (4, ctx.rank + 1))
            ctx.world.barrier()
        assert "w f32[4,1]" in caught.value.message
        assert "w f32[4,2]" in caught.value.message

    ranks.threads(2, body)


def test_a_unit_of_a_group() -> None:
    def body(ctx: meron.Context) -> None:
        group = ctx.group([1, 2])
        if group is None:
            return
        param = ctx.param("w", (10,), group=group)
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.write(param, np.arange(10))
        with unit.gather() as full:
            np.testing.assert_array_equal(full[param], np.arange(10))

    ranks.threads(3, body)


def test_a_unit_changes_its_state(alone: meron.Context) -> None:
    param = alone.param("w", (2,))
    unit = alone.unit("u", [param])
    assert unit.info().state == "partitioned"
    with unit.gather(), unit.gather():
        assert unit.info()[:3] == ("available", 0, 2)
    with alone.update([unit]):
        assert unit.info().state == "updating"
    assert unit.info()[:4] == ("partitioned", 1, 0, False)
    unit.gradient(param)[:] = 1
    unit.reduce()
    assert unit.info().reduced
    assert repr(unit) == "<meron.Unit 'u': 1 params>"


def test_a_destroyed_unit_gives_its_memory_and_names_back() -> None:
    def body(ctx: meron.Context) -> None:
        before = ctx.stats().param_bytes
        for size in (3000, 2000):
            param = ctx.param("w", size)
            unit = ctx.unit("u", [param])
            with unit.gather() as full:
                assert not full[param].any()
                with pytest.raises(meron.StateError, match="gathered"):
                    unit.destroy()
            with ctx.update([unit]) as update:
                update.write(param, np.ones(size, np.float32))
            unit.gradient(param)[:] = 1
            unit.reduce()
            unit.destroy()
            assert ctx.stats().param_bytes == before
            for stale in (unit.destroy, unit.info, unit.gather, lambda p=param: p.shard_range):
                with pytest.raises(meron.StaleError):
                    stale()

    ranks.threads(2, body)
