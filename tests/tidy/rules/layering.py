# SPDX-License-Identifier: Apache-2.0
"""Includes point from a layer to the layers below it, and libraries have one home each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from layers import ALLOWED, ALLOWED_OUTSIDE
from tree import File, Offence, Tree

# Folders that handle bytes, system calls or decisions only, and so call no kernel.
WITHOUT_KERNELS = {"base", "os", "plan", "schedule"}
# The files of capi/ that need no engine, and the layers that these include.
IO_PART = {
    "capi/io.cpp",
    "capi/call.h",
    "capi/callbacks.h",
    "capi/callbacks.cpp",
    "capi/field_ends.h",
    "capi/objects.h",
    "capi/future_kinds.h",
}
IO_PART_INCLUDES = {"base", "os", "io"}

# The homes of each library. fmt and the standard library may be used everywhere.
HOME_OF_LIBRARY: dict[str, set[str]] = {
    "hwy": {"kernels"},
    "CLI": {"tools"},
    "liburing.h": {"os"},
    "mpi.h": {"modules"},
    "cuda": {"kernels/cuda", "modules"},
    "gtest": set(),
    "gmock": set(),
}
# The headers of CUDA are many, and are in no folder.
CUDA_HEADER = re.compile(r"(cuda|nccl|nvrtc|cublas|device_launch_parameters)\w*\.h")
# sys/auxv.h is allowed: it reads what the kernel has already told the process about its CPU.
SYSTEM_HEADER = re.compile(
    r"(sys(?!/auxv\.h)|linux|asm|netinet|arpa|net)/.*"
    r"|(unistd|fcntl|poll|dirent|pthread|sched|spawn|dlfcn|netdb|pwd|grp|ftw|termios)\.h"
)
SYSTEM_CALLERS = {"os", "modules", "tools", "examples"}

# The engine opens modules at run time. It knows one header of each.
MODULE_HEADER = re.compile(r"modules/(\w+)/\1_module\.h")
MODULE_CALLERS = {"os", "rendezvous"}

C99_NAMES = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg
    stdbool stddef stdint stdio stdlib string tgmath time wchar wctype
"""
C99_HEADERS = {f"{name}.h" for name in C99_NAMES.split()}
CXX_HEADER = re.compile(r"[a-z_]+")  # the standard library's own have no suffix

INCLUDING = {".h", ".c", ".cpp", ".hpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)


def home_of(file: File) -> str | None:
    """The folder whose rules apply to the file's includes. None if no rule applies."""
    top = file.parts[0]
    if top == "impl":
        return file.parts[1] if len(file.parts) > 2 else None
    if top == "include":
        return "public hpp" if file.suffix == ".hpp" else "public"
    if file.name.startswith("kernels/cuda/"):
        return "kernels/cuda"
    return top if top in ("kernels", "modules", "capi", "tools", "examples") else None


def check_public(home: str, target: str, quoted: bool) -> str | None:
    own = target.split("/")[0] == "meron"
    if home == "public hpp":
        if own or (not quoted and CXX_HEADER.fullmatch(target)):
            return None
        return f"a public header of C++ includes only C++'s headers and meron/*, not {target}"
    if own or (not quoted and target in C99_HEADERS):
        return None
    return f"a public header includes only C99's headers and meron/*, not {target}"


def check_foreign(home: str, target: str, first: str, quoted: bool) -> str | None:
    """The error of including a library or a system header from `home`, or None."""
    if SYSTEM_HEADER.fullmatch(target) and home not in SYSTEM_CALLERS:
        return f"system calls are made in impl/os alone: {home} must not include {target}"
    if first in HOME_OF_LIBRARY and home not in HOME_OF_LIBRARY[first]:
        homes = " and ".join(sorted(HOME_OF_LIBRARY[first])) or "the tests"
        return f"{target} belongs to {homes}: {home} must not include it"
    is_ours = "/" in target and (first in ALLOWED or first in ("kernels", "modules", "capi"))
    if is_ours and not quoted:
        return f'write "{target}", not <{target}>: it is a header of the project'
    return None


def check_own(home: str, target: str, first: str) -> str | None:
    """The error of including a header of the project from `home`, or None."""
    kernels = home in ("kernels", "kernels/cuda")
    if first == "meron":
        return "kernels include nothing of the engine" if kernels else None
    if home == "examples":
        if "/" not in target:
            return None  # a header of the example
        return f"examples show user code: they must not include the engine's {target}"
    if home == "kernels" and target.startswith("kernels/cuda/"):
        return f"device kernels are built on the CPU's: those must not include {target}"
    if first == home or target.startswith(f"{home}/") or (kernels and first == "kernels"):
        return None
    if home == "modules":
        if first == "kernels":
            return None
        return f"modules include public headers and kernels only, not the engine's {target}"
    if first == "modules":
        if home in MODULE_CALLERS and MODULE_HEADER.fullmatch(target):
            return None
        return f"modules are opened at run time: {home} must not include {target}"
    if "/" not in target:
        return f'includes start at the root of the layer tree: write "{home}/{target}"'
    if kernels:
        return f"kernels include nothing of the engine, and {target} is no header of a kernel"
    if first == "kernels":
        if home in ALLOWED and home not in WITHOUT_KERNELS:
            return None
        return f"{home} must not include kernels"
    if first not in ALLOWED:
        return f"{first} is no layer: write the include from impl/, or add the folder to LAYERS"
    if first in ALLOWED.get(home, ALLOWED_OUTSIDE.get(home, frozenset())):
        return None
    return f"{home} must not include {first}: includes point from a layer to those below it"


def check_io_part(target: str) -> str | None:
    if target in IO_PART or target.split("/")[0] in {"meron", *IO_PART_INCLUDES}:
        return None
    return f"the part of capi/ for meron/io.h has no engine: it must not include {target}"


def check_include(name: str, home: str, target: str, quoted: bool) -> str | None:
    """The error of the file `name` of `home` including `target`, or None."""
    first = "cuda" if CUDA_HEADER.fullmatch(target) else target.split("/")[0]
    if quoted and name in IO_PART:
        return check_io_part(target)
    if home in ("public", "public hpp"):
        return check_public(home, target, quoted)
    if message := check_foreign(home, target, first, quoted):
        return message
    if not quoted or first in HOME_OF_LIBRARY:
        return None
    return check_own(home, target, first)


def check(tree: Tree) -> Iterator[Offence]:
    """A folder includes only layers below it, public headers only C's, and libraries have homes."""
    unknown = set()
    for file in tree.files:
        home = home_of(file) if file.suffix in INCLUDING else None
        if home is None:
            continue
        if file.parts[0] == "impl" and home not in ALLOWED:
            if home not in unknown:
                yield Offence(file.name, 1, f"impl/{home} is no layer: add it to LAYERS")
            unknown.add(home)
            continue
        for found in INCLUDE.finditer(file.text):
            target = found[1] or found[2]
            if message := check_include(file.name, home, target, found[1] is not None):
                line = file.text.count("\n", 0, found.start()) + 1
                yield Offence(file.name, line, message)
