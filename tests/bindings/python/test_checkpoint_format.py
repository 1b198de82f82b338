# SPDX-License-Identifier: Apache-2.0
"""The reader that docs/checkpoint-format.md shows, on a checkpoint of two nodes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
MANIFEST = ROOT / "tests/fuzz/corpus/checkpoint_manifest/two_nodes.json"


def documented_load() -> Any:
    page = (ROOT / "docs/checkpoint-format.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    return names["load"]


def test_documented_reader_joins_the_pieces_of_two_nodes(tmp_path: Path) -> None:
    text = MANIFEST.read_text("utf-8")
    first, second = (file["name"] for file in json.loads(text)["files"])
    values = np.arange(20, dtype="<f4")
    bf16 = (values.view("<u4") >> 16).astype("<u2").tobytes()
    header = bytes(4096)
    (tmp_path / "meron.json").write_text(text, "utf-8")
    (tmp_path / first).write_bytes(header + bf16[:24] + np.array([1.5, 2.5], "<f4").tobytes())
    (tmp_path / second).write_bytes(header + bf16[24:] + np.array([-7], "<i8").tobytes())

    load = documented_load()
    read = dict(load(tmp_path))
    assert list(read) == ["h.0.w", "nothing"]
    np.testing.assert_array_equal(read["h.0.w"], values.reshape(4, 5))
    assert read["nothing"].shape == (0, 3)
    np.testing.assert_array_equal(dict(load(tmp_path, "exp_avg"))["h.0.b"], [1.5, 2.5])
    assert dict(load(tmp_path, "extra.1"))["rng"] == -7


def test_documented_dtypes_are_those_of_the_reader() -> None:
    source = (ROOT / "impl/plan/safetensors_header.cpp").read_text("utf-8")
    table = re.search(r"kSafetensorsDTypes = \{\{(.*?)\}\};", source, re.DOTALL)
    assert table is not None
    sizes = {name: int(size) for name, size in re.findall(r'\{"(\w+)", (\d)\}', table[1] + "}")}
    dtypes = documented_load().__globals__["DTYPES"]
    assert {name: np.dtype(dtype).itemsize for name, dtype in dtypes.items()} == sizes
