#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates everything that is derived from the public headers, and the pages of config keys and of
words.

    tools/generate/generate.py [--check | --list] [--root DIR] [--output DIR]

Reads include/meron/*.h, checks that every function says what it must (lint.py), and writes
capi/api.json; from that alone the emitters write the rest. Needs pycparser (of tools/setup)
and a C compiler. docs/config.md is written from the table of keys of meron.zero (config_page.py),
and docs/bindings/words.md from the words of the conformance table (words_page.py).
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path

import config_page
import headers
import lint
import notes
import words_page
from emitters import (
    cffi,
    conformance,
    contract,
    errors,
    fields,
    java_options,
    julia,
    methods,
    reference,
    rules,
    rust,
    rust_values,
    swig,
    symbols,
    values,
)
from model import Api

EMITTERS = (
    symbols,
    cffi,
    reference,
    rules,
    rust,
    rust_values,
    julia,
    swig,
    methods,
    errors,
    values,
    java_options,
    rules,
    conformance,
    contract,
)
# Folders in which every file is generated: what is there besides is left over.
GENERATED_FOLDERS = ("docs/reference",)


def generate(root: Path) -> dict[str, str]:
    """All generated files, by their path from the root. Exits when the headers have offences."""
    try:
        read, blocks = headers.read(root / "include")
        notes.apply(read, root / "capi" / "annotations.json")
    except (headers.HeaderError, notes.AnnotationError) as error:
        sys.exit(f"generate: {error}")
    offences = lint.check(read, blocks)
    if offences:
        sys.exit("\n".join([*offences, f"generate: {len(offences)} offences in the headers"]))
    text = read.to_json()
    files = {"capi/api.json": text}
    api = Api.from_json(text)
    for emitter in EMITTERS:
        files.update(emitter.emit(api))
    files.update(fields.emit(api, root))
    files.update(config_page.emit(root))
    files.update(words_page.emit(root))
    return files


def leftovers(root: Path, files: dict[str, str]) -> list[str]:
    found = [path for folder in GENERATED_FOLDERS for path in (root / folder).glob("*")]
    return sorted(str(path.relative_to(root)) for path in found if name_of(path, root) not in files)


def name_of(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def compare(root: Path, files: dict[str, str]) -> int:
    """Prints what differs from the files of the tree; the number of files that do."""
    count = 0
    for name, text in files.items():
        path = root / name
        present = path.read_text() if path.exists() else ""
        if present == text:
            continue
        count += 1
        lines = difflib.unified_diff(
            present.splitlines(), text.splitlines(), f"{name} (committed)", f"{name} (generated)",
            lineterm="", n=1,
        )  # fmt: skip
        print("\n".join(list(lines)[:40]))
    for name in leftovers(root, files):
        count += 1
        print(f"{name}: is no longer generated: remove it")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 if they differ")
    parser.add_argument("--list", action="store_true", help="print the paths of what is generated")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--output", type=Path, help="write there instead of into the root")
    options = parser.parse_args()

    files = generate(options.root)
    if options.list:
        print("\n".join(files))
        return
    if options.check:
        count = compare(options.root, files)
        if count:
            sys.exit(
                f"generate: {count} files differ from their sources: run {Path(__file__).name}"
            )
        return
    output = options.output or options.root
    for name, text in files.items():
        path = output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(name)
    for name in leftovers(output, files):
        (output / name).unlink()
        print(f"{name} removed")


if __name__ == "__main__":
    main()
