#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what a function, field or value of the C interface costs by hand.

    tools/generate/touched.py NAME            files that mention a name of the C interface
    tools/generate/touched.py COMMIT|A..B     files that a commit, or a range of them, changes

Prints the files, generated ones apart, and the count of each. A tool writes the files in folders of
RECORDED at a release; they count as neither.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ("capi/abi/",)


@dataclass(frozen=True)
class Touched:
    by_hand: list[str]
    generated: list[str]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1 or done.stderr:  # 1: git grep has found nothing
        sys.exit(f"touched: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def mentioning(name: str) -> list[str]:
    """Files of the tree that have a name as a word."""
    return git("grep", "--untracked", "-lwF", name)


def changed(revision: str) -> list[str]:
    if ".." in revision:
        return git("diff", "--name-only", revision)
    return git("show", "--name-only", "--format=", revision)


def sort(paths: list[str]) -> Touched:
    """Files by hand and generated ones."""
    command = [sys.executable, "-B", str(ROOT / "tools" / "generate" / "generate.py"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    known = set(done.stdout.splitlines())
    some = [path for path in paths if not path.startswith(RECORDED)]
    return Touched([p for p in some if p not in known], [p for p in some if p in known])


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    what = sys.argv[1]
    found = sort(mentioning(what) if what.lower().startswith("meron_") else changed(what))
    for title, paths in (("by hand", found.by_hand), ("generated", found.generated)):
        print(f"{len(paths)} {title}")
        print("".join(f"  {path}\n" for path in paths), end="")


if __name__ == "__main__":
    main()
