# SPDX-License-Identifier: Apache-2.0
"""Finds libmeron.so, loads it, and checks that it fits the declarations of this package."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cffi import FFI

from meron._cdef import CDEF, VERSION

# The installed tree that a wheel carries (lib/ and bin/); not there in a checkout.
CARRIED = Path(__file__).resolve().parent / "_prefix"


class LoadError(ImportError):
    """The library was not found, could not be loaded, or is of another version.

    The message lists every path that was tried, and what to do.
    """


def candidates() -> Iterator[tuple[str, str]]:
    """Paths or names of the library, each with its source, in the order of preference."""
    chosen = os.environ.get("MERON_LIBRARY")
    if chosen:
        # If the user names a library, it is the only candidate.
        path = Path(chosen)
        yield str(path / "libmeron.so" if path.is_dir() else path), "MERON_LIBRARY"
        return
    package = Path(__file__).resolve().parent
    major, minor, _ = VERSION.split(".")
    soname = f"libmeron.so.0.{minor}" if major == "0" else f"libmeron.so.{major}"
    if CARRIED.exists():
        yield str(CARRIED / "lib" / soname), "in the wheel"
    yield str(package / "libmeron.so"), "beside the package"
    if package.match("bindings/python/meron"):
        root = package.parents[2]
        yield str(root / "build" / "release" / "capi" / "libmeron.so"), "the build tree"
    yield soname, "the system's loader"
    yield "libmeron.so", "the system's loader"


def load() -> tuple[Any, Any, str]:
    """Loads the library: cffi's FFI, its library object, and the path or name that was loaded."""
    ffi = FFI()
    ffi.cdef(CDEF)
    # RTLD_NODELETE: finalizers that run while the interpreter ends call into the library after
    # cffi has closed its own reference to it.
    flags = ffi.RTLD_NOW | ffi.RTLD_LOCAL | ffi.RTLD_NODELETE
    tried = []
    for path, why in candidates():
        try:
            library = ffi.dlopen(path, flags)
        except OSError as error:
            tried.append(f"  {path} ({why}): {reason(path, error)}")
            continue
        check_version(ffi, library, path)
        return ffi, library, path
    raise LoadError(
        "cannot load libmeron. Tried:\n" + "\n".join(tried) + "\n"
        "Set MERON_LIBRARY to the path of libmeron.so, or build it in the source tree: "
        "cmake --preset release && cmake --build --preset release",
        name="meron",
    )


def reason(path: str, error: OSError) -> str:
    if os.sep in path and not os.path.exists(path):
        return "no such file"
    text = str(error)
    marker = f"'{path}': "  # cffi puts the loader's own words after this
    return text.split(marker, 1)[1] if marker in text else text


def check_version(ffi: Any, library: Any, path: str) -> None:
    """The rule of meron_version: equal major (before 1.0 also minor) numbers, and not older."""
    try:
        found = library.meron_version()
    except AttributeError:
        raise LoadError(f"{path} is no libmeron: it lacks meron_version", name="meron") from None
    needed = library.MERON_VERSION
    compatible_bits = 16 if needed >> 16 else 8
    if found >> compatible_bits != needed >> compatible_bits or found < needed:
        text = ffi.string(library.meron_version_string()).decode()
        raise LoadError(
            f"{path} is version {text}, but this package needs {VERSION} or a later one that is "
            "compatible with it: install the package and the library from one release",
            name="meron",
        )
