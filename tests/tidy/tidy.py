#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the style of the tree: structure, sizes and text. Reads each tracked file once."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

import ceilings
import prose
from rules import MEASURES, RULES, layer_table, prose_rates
from tree import Tree

ROOT = Path(__file__).resolve().parents[2]


def check(tree: Tree, names: list[str], show_times: bool) -> int:
    """Prints one line per offence. Returns the exit code."""
    count = 0
    for name in names:
        begin = time.process_time()
        for offence in RULES[name](tree):
            print(f"{offence} [{name}]")
            count += 1
        if show_times:
            print(f"{name}: {time.process_time() - begin:.2f} s", file=sys.stderr)
    print(f"{count} offences" if count else f"{len(tree.files)} files keep {len(names)} rules")
    return 1 if count else 0


def list_rules() -> int:
    for name, rule in RULES.items():
        print(f"{name:17} {(rule.__doc__ or '').splitlines()[0]}")
    return 0


def write(tree: Tree) -> int:
    """Writes the table of layers, and lowers ceilings. Never raises or adds a ceiling."""
    texts = {}
    if page := tree.by_name.get(layer_table.PAGE):
        texts[page] = layer_table.written(page.text)
    if file := tree.by_name.get(ceilings.PATH):
        tables = ceilings.load(tree)
        for kind, measure in MEASURES.items():
            if kind in tables:
                tables[kind] = ceilings.lowered(tables[kind], measure(tree))
        if prose_rates.KIND in tables:
            table = tables[prose_rates.KIND]
            tables[prose_rates.KIND] = prose_rates.lowered(table, prose_rates.measure(tree))
        texts[file] = ceilings.dump(tables)
    for file, text in texts.items():
        if text != file.text:
            (tree.root / file.name).write_text(text, encoding="utf-8")
            print(f"wrote {file.name}")
    return 0


def measure_prose(tree: Tree, folder: str, show_hits: bool) -> int:
    """Prints the rate of a folder or a file. `.` is the whole tree."""
    start = "" if folder == "." else folder.rstrip("/")
    chosen = [
        file for file in tree.files if file.name == start or not start or file in tree.under(start)
    ]
    hits, sentences = prose.measure(chosen)
    for hit in hits if show_hits else ():
        print(f"{hit.file}:{hit.line}: {', '.join(hit.patterns)}: {hit.sentence}")
    print(prose.Measure(len(hits), sentences))
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/tidy/tidy.py", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the tree to check")
    parser.add_argument("--rule", action="append", choices=RULES, help="check this rule only")
    parser.add_argument("--list", action="store_true", help="list rules, or hits of --prose")
    parser.add_argument("--write", action="store_true", help="lower ceilings, write tables")
    parser.add_argument("--prose", metavar="FOLDER", help="measure the prose of a folder or file")
    parser.add_argument("--times", action="store_true", help="print the time of each rule")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if not arguments.root.is_dir():
        print(f"{arguments.root} is no folder", file=sys.stderr)
        return 2
    gc.disable()  # syntax trees are many objects without cycles, and the process is short
    tree = Tree(arguments.root.resolve())
    if arguments.prose:
        return measure_prose(tree, arguments.prose, arguments.list)
    if arguments.list:
        return list_rules()
    if arguments.write:
        return write(tree)
    return check(tree, arguments.rule or list(RULES), arguments.times)


if __name__ == "__main__":
    sys.exit(main())
