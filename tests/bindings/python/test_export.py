# SPDX-License-Identifier: Apache-2.0
"""Exported weights are what safetensors and transformers read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

import meron
from meron import CheckpointTensor

SHAPES = {"a.weight": (7, 33), "a.bias": (33,), "b.weight": (5, 3, 11), "scale": (), "none": (0, 4)}


def values_of(name: str) -> np.ndarray:
    random = np.random.default_rng(sum(name.encode()))
    return np.asarray(random.standard_normal(SHAPES[name]), dtype=np.float32)


def make_units(ctx: meron.Context, dtype: str) -> None:
    for unit in ("a", "b"):
        names = [name for name in SHAPES if (name[0] == "a") == (unit == "a")]
        params = [ctx.param(name, SHAPES[name], dtype=dtype) for name in names]
        with ctx.update([ctx.unit(unit, params)]) as update:
            for name, param in zip(names, params, strict=True):
                update.write(param, values_of(name))


def export(folder: Path, count: int = 2, **options: Any) -> None:
    def body(ctx: meron.Context) -> None:
        make_units(ctx, "f32")
        ctx.export(folder, **options)

    ranks.threads(count, body, plan="zero3")


def read_file(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, bfloat16 as float32."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    kinds = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[8 + length + begin : 8 + length + end], kinds[entry["dtype"]])
        if entry["dtype"] == "BF16":
            flat = (flat.astype("<u4") << 16).view("<f4")
        out[name] = flat.reshape(entry["shape"])
    return out


def read_model(folder: Path) -> dict[str, np.ndarray]:
    if (folder / "model.safetensors").exists():
        return read_file(folder / "model.safetensors")
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    out = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors = read_file(folder / name)
        assert all(index["weight_map"][tensor] == name for tensor in tensors)
        out |= tensors
    assert set(out) == set(index["weight_map"])
    return out


def as_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.view("<u4").astype("<u8")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype("<u4").view("<f4")


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", [None, "bf16", "f16", "f32"])
def test_exported_values_are_those_of_all_ranks(
    tmp_path: Path, count: int, dtype: str | None
) -> None:
    export(tmp_path / "model", count, dtype=dtype)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["model.safetensors"]
    tensors = read_model(tmp_path / "model")
    assert list(tensors) == list(SHAPES)
    for name, found in tensors.items():
        expected = values_of(name)
        if dtype == "bf16":
            expected = as_bf16(expected)
        if dtype == "f16":
            expected = expected.astype("<f2")
        assert np.array_equal(found, expected) and found.dtype == expected.dtype, name


def test_a_file_is_closed_before_it_is_too_large(tmp_path: Path) -> None:
    export(tmp_path, max_file_bytes=1000)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    tensors = read_model(tmp_path)
    assert all(np.array_equal(tensors[name], values_of(name)) for name in SHAPES)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(v.nbytes for v in tensors.values())


def test_params_are_renamed_and_buffers_added(tmp_path: Path) -> None:
    counts = np.arange(5, dtype=np.int64)
    means = np.linspace(0, 1, 7, dtype=np.float32)

    def body(ctx: meron.Context) -> None:
        make_units(ctx, "f32")
        tensors = [
            CheckpointTensor("counts", "I64", (5,), counts, kind="values"),
            CheckpointTensor("model.means", "F32", (7,), means, kind="values"),
        ]
        ctx.export(
            tmp_path,
            dtype="bf16",
            mapping={"scale": "model.scale", "none": ""},
            tensors=tensors if ctx.rank == 0 else [],
        )

    ranks.threads(2, body, plan="zero3")
    tensors = read_model(tmp_path)
    assert set(tensors) == (set(SHAPES) - {"scale", "none"}) | {
        "model.scale",
        "counts",
        "model.means",
    }
    assert np.array_equal(tensors["counts"], counts)
    assert np.array_equal(tensors["model.means"], as_bf16(means))
    assert np.array_equal(tensors["model.scale"], as_bf16(values_of("scale")))


@pytest.mark.parametrize("before", [5_000_000_000, 300, 1000])
@pytest.mark.parametrize("after", [5_000_000_000, 300, 1000])
def test_overwrite_replaces_the_model_and_nothing_else(
    tmp_path: Path, before: int, after: int
) -> None:
    (tmp_path / "config.json").write_text("{}")
    export(tmp_path, max_file_bytes=before, dtype="f16")
    with pytest.raises(meron.DuplicateError, match="model"):
        export(tmp_path, max_file_bytes=after)
    export(tmp_path, max_file_bytes=after, overwrite=True)
    tensors = read_model(tmp_path)
    assert all(np.array_equal(tensors[name], values_of(name)) for name in SHAPES)
    assert (tmp_path / "config.json").read_text() == "{}"
    files = {5_000_000_000: 1, 300: 4, 1000: 2}[after]
    assert len(list(tmp_path.glob("*.safetensors"))) == files
    assert (tmp_path / "model.safetensors.index.json").exists() == (files > 1)
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mapping": {"scael": "x"}}, "scael"),
        ({"mapping": {"scale": "a.bias"}}, "a.bias"),
        ({"mapping": {"scale": ["a", "b"]}}, "mapping"),
        ({"mapping": {"scale": "a\nb"}}, "control"),
    ],
)
def test_a_wrong_mapping_is_refused_on_every_rank(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    def body(ctx: meron.Context) -> None:
        make_units(ctx, "f32")
        with pytest.raises(meron.CallError, match=words):
            ctx.export(tmp_path / "model", **options)
        ctx.export(tmp_path / "other")  # the ranks go on

    ranks.threads(2, body, plan="zero3")
    assert not (tmp_path / "model").exists()


def test_every_rank_reports_a_wrong_tensor_of_rank_0(tmp_path: Path) -> None:
    data = np.zeros(4, dtype=np.float32)
    wrong = [
        (CheckpointTensor("t", "F32", (5,), data, kind="values"), "part"),
        (CheckpointTensor("t", "F32", (4,), data), "kind"),
        (CheckpointTensor("a.bias", "F32", (4,), data, kind="values"), "a.bias"),
        (CheckpointTensor("", "F32", (4,), data, kind="values"), "name"),
    ]

    def body(ctx: meron.Context) -> None:
        make_units(ctx, "f32")
        for tensor, words in wrong:
            with pytest.raises(meron.CallError, match=words):
                ctx.export(tmp_path / "model", tensors=[tensor] if ctx.rank == 0 else [])

    ranks.threads(2, body, plan="zero3")
    assert not (tmp_path / "model").exists()


def test_nan_is_exported(tmp_path: Path) -> None:
    def body(ctx: meron.Context) -> None:
        param = ctx.param("w", (4,), dtype="f32")
        with ctx.update([ctx.unit("u", [param])]) as update:
            update.write(param, np.array([1, np.nan, np.inf, -0.0], dtype=np.float32))
        ctx.export(tmp_path, dtype="bf16")

    ranks.threads(2, body, plan="zero3")
    assert read_model(tmp_path)["w"].tolist()[2] == np.inf
    assert np.isnan(read_model(tmp_path)["w"][1])


def test_a_file_in_the_way_fails_on_every_rank(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")

    def body(ctx: meron.Context) -> None:
        make_units(ctx, "f32")
        with pytest.raises(meron.Error, match="file"):
            ctx.export(tmp_path / "file")
        ctx.export(tmp_path / "model")

    ranks.threads(2, body, plan="zero3")
    assert (tmp_path / "file").read_text() == "mine"


def test_safetensors_reads_it(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    export(tmp_path)
    tensors = numpy.load_file(tmp_path / "model.safetensors")
    assert all(np.array_equal(tensors[name], values_of(name)) for name in SHAPES)


@pytest.mark.parametrize("most", [5_000_000_000, 20_000])
def test_transformers_loads_it(tmp_path: Path, most: int) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=64,
        tie_word_embeddings=False,
    )
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config)
    config.save_pretrained(tmp_path)

    def body(ctx: meron.Context) -> None:
        named = list(model.named_parameters())
        params = [ctx.param(name, tuple(p.shape), dtype="f32") for name, p in named]
        with ctx.update([ctx.unit("model", params)]) as update:
            for param, (_, values) in zip(params, named, strict=True):
                update.write(param, values.detach().numpy())
        ctx.export(tmp_path, max_file_bytes=most)

    ranks.threads(2, body, plan="zero3")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    for (name, before), (_, after) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert torch.equal(before, after), name


def growth_by_export(folder: Path) -> int:
    """Returns the bytes by which the peak of an export of 64 MiB exceeds the memory before it."""

    def resident(key: str) -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split(key + ":")[1].split()[0]) << 10

    with meron.open(plan="zero3") as ctx:
        param = ctx.param("w", (1 << 24,), dtype="f32")
        unit = ctx.unit("u", [param])
        with ctx.update([unit]) as update:
            update.view(param)[:] = 1
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = resident("VmRSS")
        ctx.export(folder, dtype="bf16")
        return resident("VmHWM") - before


def test_a_rank_takes_memory_for_two_pieces(tmp_path: Path) -> None:
    growth = ranks.call(2, growth_by_export, tmp_path)
    assert max(growth) < 16 << 20, "for a shard of 32 MiB"
    assert (tmp_path / "model.safetensors").stat().st_size == 4096 + (32 << 20)
