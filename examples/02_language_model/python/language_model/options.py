# SPDX-License-Identifier: Apache-2.0
"""The command line."""

from __future__ import annotations

from argparse import Namespace

from common.command_line import PLANS, BadInput, Option, Parser, number, one_of, whole
from common.text import DEFAULT_FOLDER

COUNT, SIZE = whole(1, 10**8), whole(1, 65536)
OPTIONS: list[Option] = [
    (
        "--data",
        f"text to train on (default: {DEFAULT_FOLDER})",
        {"nargs": "+", "action": "extend", "metavar": "FILE"},
    ),
    ("--plan", PLANS, {"default": "zero3"}),
    ("--steps", "optimizer steps", {"type": COUNT, "default": 400}),
    ("--batch", "examples per micro-batch and rank", {"type": SIZE, "default": 64}),
    ("--accumulate", "micro-batches per step and rank", {"type": SIZE, "default": 1}),
    ("--width", "values that flow from layer to layer", {"type": SIZE, "default": 512}),
    ("--layers", "residual blocks of two matrices each", {"type": whole(0, 1000), "default": 4}),
    (
        "--context",
        "bytes that the model sees; must divide the width",
        {"type": SIZE, "default": 16},
    ),
    ("--lr", "peak learning rate", {"type": number(True), "default": 0.002, "metavar": "RATE"}),
    (
        "--dtype",
        "of the parameters: f32, bf16 or f16",
        {"type": one_of("f32", "bf16", "f16"), "default": "f32", "metavar": "DTYPE"},
    ),
    (
        "--seed",
        "of the initial values and the choice of examples",
        {"type": whole(0, 10**9), "default": 1},
    ),
    (
        "--save",
        "save checkpoints there, in the background, and keep the newest two",
        {"metavar": "DIR"},
    ),
    ("--save-every", "after every N steps too (default: at the end)", {"type": COUNT}),
    (
        "--resume",
        "resume the newest checkpoint there, by any number of ranks and plan",
        {"metavar": "DIR"},
    ),
    (
        "--from",
        "start from the weights of a model there, in Hugging Face's layout",
        {"metavar": "DIR", "dest": "published"},
    ),
    (
        "--export",
        "publish the model there at the end, in that layout; replaces another",
        {"metavar": "DIR"},
    ),
    ("--json", "write all figures and the loss curve there", {"metavar": "FILE"}),
    ("--plot", "draw the loss curve there", {"metavar": "FILE.png"}),
    ("--quiet", "print nothing but errors", {"action": "store_true"}),
    ("--help", "this text", {"action": "store_true"}),
]


def parse(arguments: list[str]) -> Namespace:
    description = "Trains a language model on the bytes of a text, partitioned over the ranks."
    options = Parser("main.py", description, OPTIONS).read(arguments)
    if options.save_every and not options.save:
        raise BadInput("--save-every needs --save DIR: where to")
    if options.published and options.resume:
        raise BadInput(
            "--from and --resume exclude each other: start from published weights, or resume a "
            "checkpoint"
        )
    if options.width % options.context:
        next_width = (options.width // options.context + 1) * options.context
        raise BadInput(
            f"--width {options.width} is no multiple of --context {options.context}: take "
            f"{next_width}, for example"
        )
    return options
