# SPDX-License-Identifier: Apache-2.0
"""The command line of an example: its options, and what is said when one is not good."""

from __future__ import annotations

import argparse
import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import meron

from .plot import ENDINGS

PLANS = "zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file"
# An option's name, what it means, and how argparse is to read it.
Option = tuple[str, str, dict[str, Any]]


class BadInput(Exception):
    """An error in the user's input: the problem and the remedy."""


class Parser(argparse.ArgumentParser):
    """Raises BadInput where argparse would end the process: one rank is to answer, not each."""

    def __init__(self, script: str, description: str, options: list[Option]) -> None:
        super().__init__(
            usage=f"meron run -n RANKS -- python3 {script} [options]",
            description=description,
            add_help=False,
            allow_abbrev=False,
        )
        for name, meaning, how in options:
            metavar = {"metavar": "N"} if "type" in how else {}
            if "default" in how:
                meaning += f" (default: {how['default']})"
            self.add_argument(name, help=meaning, **metavar | how)

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}: --help lists the options")

    def read(self, arguments: list[str]) -> Namespace:
        """The options, and in `usage` what --help shows."""
        options = self.parse_args(arguments)
        options.data = options.data or []
        options.usage = self.format_help()
        return options


# ---- Kinds of values ----------------------------------------------------------------------------


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if value.isdecimal() and len(value) <= 20 and least <= int(value) <= most:
            return int(value)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")

    return read


def number(above: bool) -> Callable[[str], float]:
    """Above 0, or at least 0."""

    def read(value: str) -> float:
        try:
            parsed = float(value)
        except ValueError:
            parsed = math.nan
        if (parsed > 0 if above else parsed >= 0) and parsed < math.inf:
            return parsed
        raise argparse.ArgumentTypeError(
            "must be a number above 0" if above else "must be 0 or more"
        )

    return read


def one_of(*names: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value in names:
            return value
        *others, last = names
        raise argparse.ArgumentTypeError(f"must be {', '.join(others)} or {last}")

    return read


# ---- What options name --------------------------------------------------------------------------


def load_plan(name: str) -> meron.Plan:
    """A preset's name, or a file of JSON."""
    try:
        if "." not in name and "/" not in name:
            return meron.Plan.preset(name)
        return meron.Plan.parse(Path(name).read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"--plan: cannot read {name}: {reason}; name {PLANS}") from error
    except meron.Error as error:
        raise BadInput(f"--plan {name}: {error}") from error


def try_outputs(options: Namespace) -> None:
    """Before the work is done whose results would be lost."""
    if options.plot and Path(options.plot).suffix not in ENDINGS:
        raise BadInput(f"--plot {options.plot}: the file's name must end in {' or '.join(ENDINGS)}")
    for option, path in (("--json", options.json), ("--plot", options.plot)):
        try:
            if path:
                Path(path).open("ab").close()
        except OSError as error:
            raise BadInput(f"{option}: cannot write {path}: {error.strerror}") from error
