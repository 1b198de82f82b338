# SPDX-License-Identifier: Apache-2.0
"""The declarations of meron-sys match C: sizes, offsets, values and signatures.

The text of generated.rs is read by the simple rules below; rustc says how it lays structs out; the
C compiler checks all of it against the headers; bindgen makes its own declarations to compare with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CRATES, ROOT

GENERATED = CRATES / "meron-sys" / "src" / "generated.rs"
SCALARS = {
    "c_void": "void", "c_char": "char", "f64": "double", "f32": "float", "usize": "size_t",
    "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "DLManagedTensorVersioned": "struct DLManagedTensorVersioned",
}  # fmt: skip


class Declarations:
    """Declarations of Rust, as text: what follows each name, blanks and paths evened out."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"^\s*///?.*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"(::)?(std|core)::(os::raw|option|mem|ffi|primitive)::", "", text)
        text = re.sub(r"r#(\w)", r"\1", text)
        text = re.sub(r"\bsize_t\b", "usize", text)
        text = re.sub(r"; (\d+)usize\]", r"; \1]", text)
        structs = re.findall(r"pub struct (\w+) \{(.*?)\n\}", text, re.DOTALL)
        self.structs = {
            name: re.findall(r"pub (\w+): ([^,]+),", body)
            for name, body in structs
            if "pub " in body
        }
        consts = re.findall(r"pub const (\w+): (\w+) = (-?\d+);", text)
        self.values = {name: int(value) for name, _, value in consts}
        self.functions = {
            name: (self.parameters(arguments), even(result))
            for name, arguments, result in re.findall(
                r"pub fn (\w+)\(([^;{]*?)\)(?:\s+-> ([^;]+))?;", text, re.DOTALL
            )
        }
        callbacks = re.findall(
            r"pub type (\w+) =\s*Option<\s*unsafe extern \"C\" fn\((.*?)\)(?: -> ([^>,]+))?,?\s*>;",
            text,
            re.DOTALL,
        )
        self.callbacks = {name: (self.parameters(a), even(r)) for name, a, r in callbacks}

    @staticmethod
    def parameters(text: str) -> list[str]:
        return [even(part.split(":", 1)[1]) for part in text.split(",") if ":" in part]


def even(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def ours() -> Declarations:
    return Declarations(GENERATED.read_text())


def in_c(rust: str, name: str = "") -> str:
    """A C declaration of a Rust type."""
    if array := re.fullmatch(r"\[(.+); (\d+)\]", rust):
        return in_c(array[1], f"{name}[{array[2]}]")
    stars, const = "", ""
    while pointer := re.match(r"\*(mut|const) ", rust):
        stars += "*"
        const = "const " if pointer[1] == "const" else ""
        rust = rust[pointer.end() :]
    return f"{const}{SCALARS.get(rust, rust)} {stars}{name}"


def compiled(command: list[str], source: str, output: Path) -> None:
    done = subprocess.run(
        [*command, "-o", str(output)], input=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def layout_in_rust(ours: Declarations, folder: Path) -> dict[str, int]:
    """Sizes, alignments and offsets as rustc has them."""
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("there is no rustc (tools/setup --rust brings one)")
    lines = [
        "#![allow(non_camel_case_types, dead_code)]",
        f'#[path = "{GENERATED}"] mod generated;',
    ]
    lines += ["use generated::*;", "fn main() {"]
    for name, fields in ours.structs.items():
        lines.append(f'println!("{name}.sizeof {{}}", std::mem::size_of::<{name}>());')
        lines.append(f'println!("{name}.alignof {{}}", std::mem::align_of::<{name}>());')
        lines.append(f"let value = std::mem::MaybeUninit::<{name}>::uninit();")
        for field, _ in fields:
            place = f"unsafe {{ std::ptr::addr_of!((*value.as_ptr()).{field}) }} as usize"
            lines.append(f'println!("{name}.{field} {{}}", {place} - value.as_ptr() as usize);')
    source = folder / "layout.rs"
    source.write_text("\n".join([*lines, "}"]) + "\n")
    program = folder / "layout"
    flags = ["--edition", "2021", "-C", "link-dead-code=no", str(source)]
    subprocess.run([rustc, *flags, "-o", str(program)], check=True, capture_output=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {key: int(value) for key, value in (line.split() for line in said.splitlines())}


def test_c_agrees(ours: Declarations, tmp_path: Path) -> None:
    api_functions = (ROOT / "capi" / "symbols.txt").read_text().split()
    assert sorted(ours.functions) == sorted(api_functions)
    assert len(ours.structs) > 20
    lines = ["#include <meron/meron.h>"]
    if (ROOT / "include" / "meron" / "transport.h").exists():
        lines.append("#include <meron/transport.h>")
    for key, value in layout_in_rust(ours, tmp_path).items():
        struct, what = key.split(".")
        asked = f"{what}({struct})" if what == "sizeof" else f"offsetof({struct}, {what})"
        asked = f"_Alignof({struct})" if what == "alignof" else asked
        lines.append(f'_Static_assert({asked} == {value}, "{key}");')
    for name, value in ours.values.items():
        lines.append(f'_Static_assert({name} == {value}, "{name}");')
    for name, (parameters, result) in ours.functions.items():
        arguments = ", ".join(map(in_c, parameters)) or "void"
        lines.append(f"{in_c(result) if result else 'void'} {name}({arguments});")
    for name, (parameters, result) in ours.callbacks.items():
        arguments = ", ".join(map(in_c, parameters)) or "void"
        lines.append(f"typedef {in_c(result) if result else 'void '}(*{name})({arguments});")
    lines.append("void fields(void); void fields(void) {")
    for struct, fields in ours.structs.items():
        lines.append(f"  {{ static {struct} s;")
        for field, kind in fields:
            # A pointer to the field, of the type that Rust gives it.
            lines.append(f"    {in_c(kind, '').split('[')[0]} *p_{field} = (void *)0;")
            element = f"s.{field}[0]" if kind.startswith("[") else f"s.{field}"
            lines.append(f"    p_{field} = &{element}; (void)p_{field};")
        lines.append("  }")
    lines.append("}")
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-x", "c", "-c", "-"]
    compiled([*compiler, *flags, "-I", str(ROOT / "include")], "\n".join(lines), tmp_path / "c.o")


def test_bindgen_agrees(ours: Declarations, tmp_path: Path) -> None:
    bindgen = shutil.which("bindgen")
    if bindgen is None:
        pytest.skip("there is no bindgen (Debian's package of that name; tools/setup --dev)")
    header = tmp_path / "all.h"
    header.write_text("#include <meron/meron.h>\n#include <stdbool.h>\n")
    filters = ["--allowlist-function", "meron_.*", "--allowlist-type", "meron_.*"]
    filters += ["--allowlist-var", "MERON_.*", "--no-layout-tests", "--no-prepend-enum-name"]
    done = subprocess.run(
        [bindgen, str(header), *filters, "--", "-I", str(ROOT / "include")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    theirs = Declarations(done.stdout)
    assert set(ours.functions) <= set(theirs.functions)
    for name, declared in ours.functions.items():
        assert declared == theirs.functions[name], name
    for name, fields in ours.structs.items():
        assert fields == theirs.structs[name], name
    for name, declared in ours.callbacks.items():
        assert declared == theirs.callbacks[name], name
    assert len(ours.callbacks) >= 2
    for name, value in ours.values.items():
        assert theirs.values.get(name, value) == value, name
    common = set(ours.values) & set(theirs.values)
    assert len(common) > 40, "bindgen has given the enumerators other names"
