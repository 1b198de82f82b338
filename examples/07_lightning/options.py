# SPDX-License-Identifier: Apache-2.0
"""The command line of both programs."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from meron.lightning.settings import NAMES

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # where the package `common` is

from common.command_line import (
    BadInput,
    Option,
    Parser,
    number,
    one_of,
    try_outputs,
    whole,
)
from common.text import DEFAULT_FOLDER, load

COUNT, SIZE = whole(1, 10**8), whole(1, 65536)
PRECISIONS = ("32-true", "bf16-mixed", "bf16-true", "16-true")
OPTIONS: list[Option] = [
    (
        "--strategy",
        f"ddp, or one of {', '.join(NAMES)}",
        {"type": one_of("ddp", *NAMES), "default": "meron_stage_3_offload", "metavar": "NAME"},
    ),
    (
        "--data",
        f"text to train on (default: {DEFAULT_FOLDER})",
        {"nargs": "+", "action": "extend", "metavar": "FILE"},
    ),
    ("--steps", "optimizer steps", {"type": COUNT, "default": 200}),
    ("--batch", "examples per step and rank", {"type": SIZE, "default": 4}),
    (
        "--width",
        "values per position; must be a multiple of the heads",
        {"type": SIZE, "default": 384},
    ),
    ("--layers", "blocks", {"type": whole(1, 1000), "default": 6}),
    ("--heads", "attention heads per block", {"type": SIZE, "default": 6}),
    ("--context", "bytes that the model sees", {"type": SIZE, "default": 64}),
    ("--lr", "learning rate", {"type": number(above=True), "default": 0.0005, "metavar": "RATE"}),
    (
        "--precision",
        "as Lightning names them: " + ", ".join(PRECISIONS),
        {"type": one_of(*PRECISIONS), "default": "32-true", "metavar": "PRECISION"},
    ),
    ("--save", "save a checkpoint as this directory at the end", {"metavar": "NAME.ckpt"}),
    (
        "--resume",
        "resume a checkpoint, which any number of ranks may have saved",
        {"metavar": "NAME.ckpt"},
    ),
    ("--json", "write the loss curve there", {"metavar": "FILE"}),
    ("--plot", "draw the loss curve there", {"metavar": "FILE.png"}),
    ("--quiet", "print nothing but errors", {"action": "store_true"}),
    ("--help", "this text", {"action": "store_true"}),
]


def read(script: str, description: str) -> Namespace:
    """The options. Ends the program after --help, and for bad input with the exit code 2; one rank
    says why."""
    leads = os.environ.get("MERON_RANK", os.environ.get("RANK", "0")) == "0"
    try:
        options = Parser(script, description, OPTIONS).read(sys.argv[1:])
        if options.width % options.heads:
            raise BadInput(f"--width {options.width} is no multiple of --heads {options.heads}")
        if not options.help:
            try_outputs(options)
            load(options.data, options.context + 1)  # to say now what is wrong with the text
    except BadInput as error:
        if leads:
            print(f"lightning: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    if options.help:
        if leads:
            print(options.usage, end="", flush=True)
        sys.exit(0)
    return options


def ranks() -> int:
    """So many has the launcher started."""
    return int(os.environ.get("MERON_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))


def size_of(options: Namespace) -> dict[str, Any]:
    """Arguments of LitGPT."""
    return {key: getattr(options, key) for key in ("width", "layers", "heads", "context", "lr")}


def finish(options: Namespace, curve: list[float], parameters: int, seconds: float) -> None:
    """Prints the final report on rank 0."""
    if not options.quiet:
        share = parameters / ranks() if "stage_3" in options.strategy else parameters
        print(
            f"{options.strategy}: {parameters:,} parameters, {share:,.0f} at rest on each of "
            f"{ranks()} ranks; loss {curve[0]:.4f} -> {curve[-1]:.4f}, "
            f"{seconds / len(curve):.3f} s per step",
            flush=True,
        )
    run = {"losses": curve, "ranks": ranks(), "steps": len(curve), "options": vars(options)}
    run["parameters"] = parameters
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(run, file, default=str)
