# SPDX-License-Identifier: Apache-2.0
"""The command line."""

from __future__ import annotations

import argparse
import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import meron

from . import text

PRESETS = ("zero0", "zero1", "zero2", "zero3")


class BadInput(Exception):
    """What is wrong with what the user gave, and what to do."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}: --help lists the options")


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if value.isdecimal() and least <= int(value) <= most:
            return int(value)
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}")

    return read


def number(above: bool) -> Callable[[str], float]:
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
        raise argparse.ArgumentTypeError(f"must be {' or '.join(names)}")

    return read


def parse(arguments: list[str]) -> Namespace:
    parser = Parser(
        usage="meron run -n RANKS -- python3 train.py [options]",
        description="Trains a GPT on the bytes of a text, partitioned over the ranks.",
        add_help=False,
        allow_abbrev=False,
    )
    count, size = whole(1, 10**8), whole(1, 65536)
    api, dtype = one_of("functional", "zero"), one_of("f32", "bf16")
    known: list[tuple[str, str, dict[str, Any]]] = [
        (
            "--api",
            "functional (meron.torch) or zero (meron.zero, with DeepSpeed's names)",
            {"type": api, "default": "functional", "metavar": "API"},
        ),
        (
            "--data",
            f"text to train on (default: {text.DEFAULT_FOLDER})",
            {"nargs": "+", "action": "extend", "metavar": "FILE"},
        ),
        ("--plan", "zero0, zero1, zero2, zero3 or a JSON file", {"default": "zero3"}),
        ("--steps", "optimizer steps", {"type": count, "default": 200}),
        ("--batch", "examples per micro-batch and rank", {"type": size, "default": 4}),
        ("--accumulate", "micro-batches per step and rank", {"type": size, "default": 1}),
        (
            "--width",
            "values per position; must be a multiple of the heads",
            {"type": size, "default": 384},
        ),
        ("--layers", "blocks", {"type": whole(1, 1000), "default": 6}),
        ("--heads", "attention heads per block", {"type": size, "default": 6}),
        ("--context", "bytes that the model sees", {"type": size, "default": 64}),
        ("--lr", "peak learning rate", {"type": number(above=True), "default": 0.0005}),
        (
            "--clip",
            "most that the norm of the gradients may be; 0: any",
            {"type": number(above=False), "default": 1.0, "metavar": "NORM"},
        ),
        (
            "--dtype",
            "of compute, f32 or bf16; the optimizer's values are f32",
            {"type": dtype, "default": "f32", "metavar": "DTYPE"},
        ),
        (
            "--seed",
            "of the initial values and the choice of examples",
            {"type": whole(0, 10**9), "default": 1},
        ),
        (
            "--compare",
            "then train the same in one process of plain PyTorch, and compare",
            {"action": "store_true"},
        ),
        ("--json", "write all figures and the loss curve there", {"metavar": "FILE"}),
        ("--plot", "draw the loss curve there", {"metavar": "FILE.png"}),
        ("--quiet", "print nothing but errors", {"action": "store_true"}),
        ("--help", "this text", {"action": "store_true"}),
    ]
    for name, meaning, how in known:
        if "type" in how:
            how.setdefault("metavar", "RATE" if name == "--lr" else "N")
        if "default" in how:
            meaning += f" (default: {how['default']})"
        parser.add_argument(name, help=meaning, **how)
    options = parser.parse_args(arguments)
    options.data = options.data or []
    if options.width % options.heads:
        next_width = (options.width // options.heads + 1) * options.heads
        raise BadInput(
            f"--width {options.width} is no multiple of --heads {options.heads}: take "
            f"{next_width}, for example"
        )
    if options.api == "zero" and options.plan not in PRESETS:
        raise BadInput(f"--plan {options.plan}: --api zero takes {', '.join(PRESETS)}")
    options.usage = parser.format_help()
    return options


def load_plan(name: str) -> meron.Plan:
    """A preset's name, or a file of JSON."""
    try:
        if "." not in name and "/" not in name:
            return meron.Plan.preset(name)
        return meron.Plan.parse(Path(name).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"--plan: cannot read {name}: {error}; name zero0, zero1, zero2, zero3 or a JSON file"
        ) from error
    except meron.Error as error:
        raise BadInput(f"--plan {name}: {error}") from error


def load_examples(options: Namespace) -> text.Examples:
    try:
        data = text.load(options.data)
    except text.NoText as reason:
        raise BadInput(
            f"--data: {reason}; name files that have text in them, or leave --data out to train on "
            f"the licences in {text.DEFAULT_FOLDER}"
        ) from reason
    if len(data) <= options.context:
        raise BadInput(
            f"--data: the text has {len(data)} bytes, and one example takes {options.context + 1}; "
            "name more text, or lower --context"
        )
    return text.Examples(data, options.batch, options.context, options.seed)


def try_outputs(options: Namespace) -> None:
    for option, path in (("--json", options.json), ("--plot", options.plot)):
        try:
            if path:
                Path(path).open("ab").close()
        except OSError as error:
            raise BadInput(f"{option}: cannot write {path}: {error.strerror}") from error
