# SPDX-License-Identifier: Apache-2.0
"""A C compiler as witness: sizes, offsets, values and signatures are those of api.json, and cffi
lays the structs out as C does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cffi import FFI

ROOT = Path(__file__).parents[2]
API = json.loads((ROOT / "capi" / "api.json").read_text())
STRUCTS = [*API["structs"], *({**h, "fields": [{"name": "id"}]} for h in API["handles"])]


def compile_c(source: str, output: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or pytest.skip("there is no C compiler")
    command = [*compiler.split(), "-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-"]
    command += ["-I", str(ROOT / "include"), *(["-o", str(output)])]
    if output.suffix == ".o":
        command.append("-c")
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def declared(kind: str, name: str) -> str:
    base, bracket, rest = kind.partition("[")
    return f"{base} {name}{bracket}{rest}"


@pytest.fixture(scope="module")
def ffi() -> FFI:
    path = ROOT / "bindings" / "python" / "meron" / "_cdef.py"
    spec = importlib.util.spec_from_file_location("cdef", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ffi = FFI()
    ffi.cdef(module.CDEF)
    return ffi


def test_cffi_lays_structs_out_as_c_does(ffi: FFI, tmp_path: Path) -> None:
    lines = ["#include <meron/meron.h>", "#include <stdio.h>", "int main(void) {"]
    expected = []
    for struct in STRUCTS:
        name = struct["name"]
        lines.append(f'  printf("%zu\\n", sizeof({name}));')
        expected.append((name, ffi.sizeof(name)))
        for field in struct["fields"]:
            lines.append(f'  printf("%zu\\n", offsetof({name}, {field["name"]}));')
            where = f"{name}.{field['name']}"
            expected.append((where, ffi.offsetof(name, field["name"])))
    lines += ["  return 0;", "}"]
    compile_c("\n".join(lines) + "\n", tmp_path / "layout")
    output = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    in_c = [int(line) for line in output.stdout.split()]
    assert [(name, size) for (name, _), size in zip(expected, in_c, strict=True)] == expected


def test_c_agrees_with_fields_values_and_signatures(tmp_path: Path) -> None:
    lines = ["#include <meron/meron.h>", "void witness(void);", "void witness(void) {"]
    for struct in API["structs"]:
        lines.append(f"  {{ static {struct['name']} s;")
        for field in struct["fields"]:
            base, bracket, rest = field["type"].partition("[")
            lines.append(f"    {base} (*p_{field['name']}){bracket}{rest} = &s.{field['name']};")
            lines.append(f"    (void)p_{field['name']};")
        lines.append("  }")
    for enum in API["enums"]:
        for value in enum["values"]:
            lines.append(f'  _Static_assert({value["name"]} == {value["value"]}, "value");')
    for constant in API["constants"]:
        lines.append(f'  _Static_assert({constant["name"]} == {constant["value"]}, "value");')
    for function in API["functions"]:
        params = ", ".join(param["type"] for param in function["params"]) or "void"
        lines.append(f"  {{ {function['returns']} (*f)({params}) = {function['name']}; (void)f; }}")
    for callback in API["callbacks"]:
        params = ", ".join(param["type"] for param in callback["params"]) or "void"
        lines.append(
            f"  {{ {callback['returns']} (**f)({params}) = (({callback['name']} *)0); (void)f; }}"
        )
    lines.append("}")
    compile_c("\n".join(lines) + "\n", tmp_path / "witness.o")
