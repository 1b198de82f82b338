#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the exported symbols and the dependencies of libmeron.so.

    check_symbols.py LIBRARY SYMBOLS

The library exports exactly the names of SYMBOLS, which tools/generate makes from the headers, and
needs nothing but the C and C++ runtimes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

RUNTIMES = re.compile(
    r"(linux-vdso|linux-gate|ld-linux[\w-]*|libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+"
    r"|libc\+\+|libc\+\+abi|libunwind)\.so(\.\d+)*"
)


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library: str) -> set[str]:
    names = set()
    for line in output("nm", "-D", "--defined-only", library).splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version node itself
            names.add(name.split("@")[0])
    return names


def needed(library: str) -> set[str]:
    lines = output("ldd", library).splitlines()
    return {Path(line.split()[0]).name for line in lines}


def main() -> None:
    library, symbols = sys.argv[1:]
    allowed = set(Path(symbols).read_text().split())
    found = exported(library)
    complaints = [f"exports {name}, which no header declares" for name in sorted(found - allowed)]
    complaints += [f"does not export {name}" for name in sorted(allowed - found)]
    complaints += [
        f"needs {name}: only the C and C++ runtimes are allowed"
        for name in sorted(needed(library))
        if not RUNTIMES.fullmatch(name)
    ]
    for complaint in complaints:
        print(f"{library}: {complaint}")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
