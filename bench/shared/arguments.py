# SPDX-License-Identifier: Apache-2.0
"""Kinds of arguments of benchmarks: what is wrong with one is said before anything is measured."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path


def whole(text: str) -> int:
    """A whole number from 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"{text!r} is no whole number from 1")
    return number


def wholes(text: str) -> list[int]:
    return [whole(each.strip()) for each in text.split(",")]


def duration(text: str) -> float:
    """Seconds above 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return seconds


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Some of these names, each once, in the order in which they were given."""
    all_names = list(known)

    def names(text: str) -> list[str]:
        given = list(dict.fromkeys(name.strip() for name in text.split(",")))
        for name in given:
            if name not in all_names:
                close = get_close_matches(name, all_names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ArgumentTypeError(f"there is no {name!r}: {', '.join(all_names)}{hint}")
        return given

    return names


def existing_folder(text: str) -> Path:
    """A folder that is there, and in which files can be made."""
    path = Path(text)
    if not path.is_dir():
        what = "a file" if path.exists() else "missing"
        raise ArgumentTypeError(f"{text} is {what}: name a folder")
    if not os.access(path, os.W_OK | os.X_OK):
        raise ArgumentTypeError(f"no files can be made in {text}: it is not writable")
    return path


def new_file(text: str) -> Path:
    """A file that can be made or written anew."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder: name a file")
    parent = path.absolute().parent
    if not parent.is_dir():
        raise ArgumentTypeError(f"{text} cannot be made: there is no folder {parent}")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise ArgumentTypeError(f"{text} is not writable")
    return path
