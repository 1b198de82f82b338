# SPDX-License-Identifier: Apache-2.0
"""The command line."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace

from common.command_line import PLANS, BadInput, Option, Parser, number, one_of, whole
from common.text import DEFAULT_FOLDER

COUNT, SIZE = whole(1, 10**8), whole(1, 65536)
SIZES = {"11m": (384, 6, 6), "350m": (1024, 28, 16)}  # width, layers, heads
IN_KEYS = r"zero[0-3]|(mics|hpz|zeropp)\([1-9]\d*\)"  # plans that DeepSpeed's keys can say
CHECKPOINTING = ("on", "contiguous", "cpu", "synchronize")


def flags(value: str) -> set[str]:
    """A list such as contiguous,cpu."""
    found = value.split(",")
    unknown = [name for name in found if name not in CHECKPOINTING]
    if unknown:
        raise ArgumentTypeError(f"has {unknown[0]!r}: must be a list of {', '.join(CHECKPOINTING)}")
    return set(found)


OPTIONS: list[Option] = [
    (
        "--api",
        "functional (meron.torch) or zero (meron.zero, with DeepSpeed's names)",
        {"type": one_of("functional", "zero"), "default": "functional", "metavar": "API"},
    ),
    (
        "--data",
        f"text to train on (default: {DEFAULT_FOLDER})",
        {"nargs": "+", "action": "extend", "metavar": "FILE"},
    ),
    ("--plan", PLANS, {"default": "zero3"}),
    ("--steps", "optimizer steps", {"type": COUNT, "default": 200}),
    ("--batch", "examples per micro-batch and rank", {"type": SIZE, "default": 4}),
    ("--accumulate", "micro-batches per step and rank", {"type": SIZE, "default": 1}),
    (
        "--size",
        "what --width, --layers and --heads are where they are not given, by the number of "
        "parameters: " + ", ".join(f"{name} {shape}" for name, shape in SIZES.items()),
        {"type": one_of(*SIZES), "default": "11m", "metavar": "SIZE"},
    ),
    ("--width", "values per position; must be a multiple of the heads", {"type": SIZE}),
    ("--layers", "blocks", {"type": whole(1, 1000)}),
    ("--heads", "attention heads per block", {"type": SIZE}),
    ("--context", "bytes that the model sees", {"type": SIZE, "default": 64}),
    (
        "--lr",
        "peak learning rate",
        {"type": number(above=True), "default": 0.0005, "metavar": "RATE"},
    ),
    (
        "--clip",
        "most that the norm of the gradients may be; 0: any",
        {"type": number(above=False), "default": 1.0, "metavar": "NORM"},
    ),
    (
        "--dtype",
        "of compute, f32 or bf16; the optimizer's values are f32",
        {"type": one_of("f32", "bf16"), "default": "f32", "metavar": "DTYPE"},
    ),
    (
        "--device",
        "where the ranks compute: cpu, cuda, cuda:N, or emulated, for tests",
        {"default": "cpu", "metavar": "DEVICE"},
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
    (
        "--nvme",
        "keep the optimizer's states on the drive of that folder (with --api zero)",
        {"metavar": "FOLDER"},
    ),
    (
        "--activation-checkpointing",
        "blocks keep their input only, and run again in the backward: on, or a list of "
        "contiguous (inputs in one buffer), cpu (a GPU's inputs in host memory), synchronize",
        {"type": flags, "metavar": "FLAGS"},
    ),
    ("--json", "write all figures and the loss curve there", {"metavar": "FILE"}),
    ("--plot", "draw the loss curve there", {"metavar": "FILE.png"}),
    ("--quiet", "print nothing but errors", {"action": "store_true"}),
    ("--help", "this text", {"action": "store_true"}),
]


def parse(arguments: list[str]) -> Namespace:
    description = "Trains a GPT on the bytes of a text, partitioned over the ranks."
    options = Parser("train.py", description, OPTIONS).read(arguments)
    for name, value in zip(("width", "layers", "heads"), SIZES[options.size], strict=True):
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.width % options.heads:
        next_width = (options.width // options.heads + 1) * options.heads
        raise BadInput(
            f"--width {options.width} is no multiple of --heads {options.heads}: take "
            f"{next_width}, for example"
        )
    if not re.fullmatch(r"cpu|emulated|cuda(:\d+)?", options.device):
        raise BadInput(f"--device {options.device}: must be cpu, cuda, cuda:N or emulated")
    if options.api == "zero" and not re.fullmatch(IN_KEYS, options.plan):
        raise BadInput(
            f"--plan {options.plan}: --api zero takes zero0 to zero3, mics(N), hpz(N) and zeropp(N)"
        )
    if options.nvme is not None and options.api != "zero":
        raise BadInput("--nvme takes --api zero: there the states are the engine's")
    return options
