# SPDX-License-Identifier: Apache-2.0
"""The C types that the package names are those that are read when the library is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import meron
from meron._native import TYPES, ffi, initial, new, size_of

PACKAGE = Path(meron.__file__).parent
# Not the library's: the structs between the Python and the C++ of meron.torch.
APART = {"meron_python_backend *"}


def test_every_type_that_the_package_names_is_known() -> None:
    asked = set()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text()
        asked |= set(re.findall(r'\b(?:new|_?receive)\(\s*"([^"]+)"', text))
        asked |= {f"{name} *" for name in re.findall(r'\b(?:initial|sized)\("([^"]+)"', text)}
    assert len(asked) > 30
    assert asked - APART <= set(TYPES)


def test_every_cast_is_to_a_type_that_was_parsed_at_the_import() -> None:
    """An interrupt of the first use of a name leaves cffi locked."""
    asked = set()
    for file in PACKAGE.glob("*.py"):
        asked |= set(re.findall(r'\bcast\("([^"]+)"', file.read_text()))
    assert "void *" in asked
    known = {*ffi._parsed_types, "Method"}
    assert asked <= known


def test_no_dtype_is_compared_with_a_short_name() -> None:
    """A dtype of NumPy is never equal to "f32": such code needs `dtype_name`."""
    compared = re.compile(r'\.dtype\b (?:==|!=|in|not in|is) \(?"(?:f32|bf16|f16)"')
    wrong = [
        f"{file.relative_to(PACKAGE)}: {found[0]}"
        for file in PACKAGE.rglob("*.py")
        for found in compared.finditer(file.read_text())
    ]
    assert wrong == []


def test_known_types_are_those_of_cffi() -> None:
    for name, ctype in TYPES.items():
        assert ctype is ffi.typeof(name)
    assert size_of("meron_view") == ffi.sizeof("meron_view")
    assert len(new("meron_unit[]", 3)) == 3
    assert new("int *", 7)[0] == 7  # one that is not known
    assert initial("meron_gather_options").struct_size == size_of("meron_gather_options")
