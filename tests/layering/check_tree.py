#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the compiler does not: who includes whom, and that each folder explains itself.

    python3 tests/layering/check_tree.py [ROOT]

Rules:
  layers    a folder includes only folders below it (the table ALLOWED, drawn from LAYERS)
  public    include/meron/ includes only C99's own headers and itself; its .hpp only C++'s
  kernels   include nothing of the engine; kernels/cuda includes kernels/cpu, and not the reverse
  modules   include the public headers and kernels alone; the engine includes the header by which
            it opens one
  system    only impl/os, the modules, the tools and the examples include system calls' headers
  readme    every folder of FOLDERS_WITH_README has a README.md
  spdx      every source names its licence in its first lines

Prints one `file:line: message` per offence and exits with 1 if there was any.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# From the bottom up. A folder may include itself and every folder of the rows above its own.
LAYERS = (
    ("base",),
    ("os",),
    ("memory", "topology", "plan", "io"),
    ("transport", "checkpoint"),
    ("rendezvous", "call_log"),
    ("collective",),
    ("device",),
    ("quant",),
    ("rank", "place"),
    ("shard", "offload"),
    ("unit",),
    ("values", "gradient"),
    ("schedule", "optim"),
    ("state",),
    ("saving",),
    ("engine",),
)
# The plan is pure: it computes and parses, it touches no file and no memory of others.
NOT_ALLOWED = {
    "plan": {"os"},
    # Files: it knows no rank's memory, so the command reads checkpoints by it too.
    "checkpoint": {"memory", "topology"},
    # It decides and does not act: tests drive it with a fake gatherer and a fake clock.
    "schedule": {
        *("os", "memory", "topology", "plan", "io", "device", "quant", "place"),
        *("transport", "rendezvous", "call_log", "collective"),
        *("rank", "shard", "unit", "values", "gradient"),
    },
}
# Where kernels may be called from: not from the folders that only know bytes and system calls.
WITHOUT_KERNELS = {"base", "os", "plan", "schedule"}
# The library's edge sees one folder; the command is a user of the library that also starts
# processes, so it may use the system-call layer, and measures drives, through the engine that moves
# states there and would tell another rate than any other program. It reads checkpoints as files.
ALLOWED_OUTSIDE = {"capi": {"engine"}, "tools": {"base", "os", "io", "checkpoint"}}
# What of capi/ needs no engine, and the parts of it that the rest of capi/ builds on.
IO_PART = {"capi/io.cpp", "capi/call.h", "capi/objects.h", "capi/future_kinds.h"}
IO_PART_SEES = {"base", "os", "io"}

# Libraries that have one home. (fmt and the language's own headers may be used everywhere.)
HOME_OF_LIBRARY = {
    "hwy": {"kernels"},
    "CLI": {"tools"},
    "liburing.h": {"os"},
    "mpi.h": {"modules"},
    "cuda": {"kernels/cuda", "modules"},
    "gtest": set[str](),
    "gmock": set[str](),
}
# CUDA's headers are many and lie in no folder.
CUDA_HEADER = re.compile(r"(cuda|nccl|nvrtc|cublas|device_launch_parameters)\w*\.h")
# sys/auxv.h only reads what the kernel told the process of its CPU.
SYSTEM_HEADER = re.compile(
    r"(sys(?!/auxv\.h)|linux|asm|netinet|arpa|net)/.*"
    r"|(unistd|fcntl|poll|dirent|pthread|sched|spawn|dlfcn|netdb|pwd|grp|ftw|termios)\.h"
)
SYSTEM_CALLERS = {"os", "modules", "tools", "examples"}

# Libraries that the engine opens at run time: of each it knows one header.
MODULE_HEADER = re.compile(r"modules/(\w+)/\1_module\.h")
MODULE_CALLERS = {"os", "rendezvous"}

C99_NAMES = """
    assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg
    stdbool stddef stdint stdio stdlib string tgmath time wchar wctype
"""
C99_HEADERS = {f"{name}.h" for name in C99_NAMES.split()}

CXX_HEADER = re.compile(r"[a-z_]+")  # no suffix: the standard library's own

FOLDERS_WITH_README = (
    *("impl/*", "kernels/*", "modules/*", "bindings/*"),
    *("capi", "bench", "tools", "examples"),
)
SOURCE_SUFFIXES = {".h", ".c", ".cpp", ".hpp", ".cu", ".cuh", ".py", ".cmake", ".sh", ".map"}
INCLUDING = {".h", ".c", ".cpp", ".hpp", ".cu", ".cuh"}
PRUNED = {
    *("build", ".venv", ".gpu-pack", ".git"),
    *("__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
}

INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


class Offence(NamedTuple):
    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


def layers_below() -> dict[str, set[str]]:
    """For each folder of impl/, the folders that it may include."""
    allowed: dict[str, set[str]] = {}
    below: set[str] = set()
    for row in LAYERS:
        for layer in row:
            allowed[layer] = (below | {layer}) - NOT_ALLOWED.get(layer, set())
        below |= set(row)
    return allowed


ALLOWED = layers_below()


def files_of(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in PRUNED)
        for name in sorted(names):
            path = Path(folder, name)
            if not path.is_symlink():
                yield path.relative_to(root)


def home_of(path: Path) -> str | None:
    """The name under which a file includes and is included; None where no rule applies."""
    top = path.parts[0]
    if top == "impl":
        return path.parts[1] if len(path.parts) > 2 else None
    if top == "include":
        return "public hpp" if path.suffix == ".hpp" else "public"
    if path.is_relative_to("kernels/cuda"):
        return "kernels/cuda"
    return top if top in ("kernels", "modules", "capi", "tools", "examples") else None


def check_include(home: str, target: str, quoted: bool) -> str | None:
    """What is wrong with `home` including `target`, or None."""
    first = "cuda" if CUDA_HEADER.fullmatch(target) else target.split("/")[0]
    kernels = home in ("kernels", "kernels/cuda")
    if home == "public hpp":
        if first == "meron" or (not quoted and CXX_HEADER.fullmatch(target)):
            return None
        return f"a public header of C++ includes only C++'s headers and meron/*, not {target}"
    if home == "public":
        if first == "meron" or (not quoted and target in C99_HEADERS):
            return None
        return f"a public header includes only C99's headers and meron/*, not {target}"

    if SYSTEM_HEADER.fullmatch(target) and home not in SYSTEM_CALLERS:
        return f"system calls live in impl/os: {home} must not include {target}"
    if first in HOME_OF_LIBRARY:
        if home in HOME_OF_LIBRARY[first]:
            return None
        homes = " and ".join(sorted(HOME_OF_LIBRARY[first])) or "the tests"
        return f"{target} belongs to {homes}: {home} must not include it"
    if not quoted:
        if "/" in target and (first in ALLOWED or first in ("kernels", "modules", "capi")):
            return f'write "{target}", not <{target}>: it is a header of the project'
        return None

    if first == "meron":
        return "kernels include nothing of the engine" if kernels else None
    if home == "examples":
        if "/" not in target:
            return None  # a header of its own
        return f"examples show what a user writes: no header of the engine, so not {target}"
    if home == "kernels" and target.startswith("kernels/cuda/"):
        return f"kernels for devices are built on the CPU's: those must not include {target}"
    if first == home or target.startswith(f"{home}/") or (kernels and first == "kernels"):
        return None
    if home == "modules":
        if first == "kernels":
            return None
        return f"modules see the public headers alone: no header of the engine, so not {target}"
    if first == "modules":
        if home in MODULE_CALLERS and MODULE_HEADER.fullmatch(target):
            return None
        return f"modules are opened at run time: {home} must not include {target}"
    if "/" not in target:
        return f'includes start at the root of the layer tree: write "{home}/{target}"'
    if kernels:
        return f"kernels include nothing of the engine, and {target} is not a kernel's header"
    if first == "kernels":
        if home in ALLOWED and home not in WITHOUT_KERNELS:
            return None
        return f"{home} must not include kernels"
    if first not in ALLOWED:
        return f"{first} is no layer: write the include from impl/, or add the folder to LAYERS"
    if first in ALLOWED.get(home, ALLOWED_OUTSIDE.get(home, set())):
        return None
    return f"{home} must not include {first}: includes point from a layer to those below it"


def check_io_part(target: str) -> str | None:
    """What is wrong with a file of IO_PART including `target`, or None."""
    if target in IO_PART or target.split("/")[0] in {"meron", *IO_PART_SEES}:
        return None
    return f"the part of capi/ for meron/io.h knows no engine: it must not include {target}"


def check_includes(root: Path, path: Path) -> Iterator[Offence]:
    home = home_of(path)
    if home is None or path.suffix not in INCLUDING:
        return
    if path.parts[0] == "impl" and home not in ALLOWED:
        yield Offence(str(path), 1, f"impl/{home} is no layer: add it to LAYERS")
        return
    io_part = path.as_posix() in IO_PART
    text = (root / path).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            target = match[1] or match[2]
            if io_part and match[1] is not None:
                message = check_io_part(target)
            else:
                message = check_include(home, target, quoted=match[1] is not None)
            if message:
                yield Offence(str(path), number, message)


def check_licence(root: Path, path: Path) -> Iterator[Offence]:
    with open(root / path, "rb") as file:
        head = file.read(400)
    script = head.startswith(b"#!")
    if path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt" or script:
        first_lines = head.splitlines()[: 2 if script else 1]
        if not any(b"SPDX-License-Identifier: Apache-2.0" in line for line in first_lines):
            yield Offence(str(path), 1, "the line SPDX-License-Identifier: Apache-2.0 is missing")


def wants_readme(folder: Path) -> bool:
    depth = len(folder.parts)
    return any(folder.match(p) and depth == p.count("/") + 1 for p in FOLDERS_WITH_README)


def check_readmes(paths: list[Path]) -> Iterator[Offence]:
    present = set(paths)
    for folder in sorted({parent for path in paths for parent in path.parents}):
        if wants_readme(folder) and folder / "README.md" not in present:
            yield Offence(str(folder / "README.md"), 1, "missing: say what the folder is for")


def check(root: Path) -> list[Offence]:
    paths = list(files_of(root))
    offences = list(check_readmes(paths))
    for path in paths:
        offences += check_includes(root, path)
        offences += check_licence(root, path)
    return offences


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = check(root)
    for offence in offences:
        print(offence)
    print(f"{len(offences)} offences" if offences else "the tree keeps its rules")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
