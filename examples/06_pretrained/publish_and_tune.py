#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Publishes weights, starts from them at another number of ranks and under another plan, trains
them further on another text, publishes again, and reads both models without Meron.

The trainer is example 02, in the language of --lang. Exit code 0 if the files hold what
was trained.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # where the package `common` is
sys.path.insert(2, str(Path(__file__).resolve().parents[1] / "02_language_model/python"))
from language_model.model import Model, random_bits  # knows nothing of Meron

from common.jobs import LANGUAGES, ROOT, SIZES, fail, finish, start

OLD_TEXT = sorted((ROOT / "docs").glob("*.md"))
NEW_TEXT = [ROOT / "LICENSE"]
RANKS, ACCUMULATE = 2, 2  # of the fine-tuning
WIDTH, LAYERS, BATCH, CONTEXT, SEED = *map(int, SIZES[1::2]), 16, 1

Weights = dict[str, Any]  # arrays by their published names


# ---- Reading models without Meron ----------------------------------------------------------------


def by_the_format(file: Path) -> Weights:
    """As the format of safetensors has it: 8 bytes of length, a header of JSON, and the data."""
    content = file.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    weights = {}
    for name, tensor in header.items():
        if tensor["dtype"] != "F32":
            fail(f"{file}: {name} is of {tensor['dtype']}; F32 was expected")
        first, last = (begin + offset for offset in tensor["data_offsets"])
        weights[name] = np.frombuffer(content[first:last], "<f4").reshape(tensor["shape"])
    return weights


def read(folder: Path) -> Weights:
    files = sorted(folder.glob("*.safetensors"))
    if importlib.util.find_spec("safetensors") is None:
        return {name: t for file in files for name, t in by_the_format(file).items()}
    from safetensors.numpy import load_file

    return {name: t for file in files for name, t in load_file(file).items()}


def loss_of(weights: Weights) -> float:
    """Of the examples that the ranks see in the first step of the fine-tuning, by NumPy alone."""
    text = np.frombuffer(b"".join(file.read_bytes() for file in NEW_TEXT), np.uint8)
    block = [f"mlp.{each}.{kind}" for each in ("c_fc", "c_proj") for kind in ("weight", "bias")]
    layers = [["transformer.wte.weight"]]
    layers += [[f"transformer.h.{n}.{name}" for name in block] for n in range(LAYERS)]
    layers += [["lm_head.weight", "lm_head.bias"]]
    model, losses = Model(CONTEXT, WIDTH, LAYERS), []
    for micro_batch in range(RANKS * ACCUMULATE):
        bits = random_bits(SEED, (1 << 32) + micro_batch, BATCH)
        places = (bits % np.uint64(len(text) - CONTEXT)).astype(np.int64)
        model.set_examples(text[places[:, None] + np.arange(CONTEXT + 1)])
        for layer, names in enumerate(layers):
            model.forward(layer, [weights[name] for name in names])
        losses.append(model.loss)
    return sum(losses) / len(losses)


# ---- The example ---------------------------------------------------------------------------------


def train(language: str, ranks: int, folder: Path, *options: object) -> list[float]:
    """Trains and publishes in `folder`; the losses."""
    file = folder.with_suffix(".json")
    written = ("--export", folder, "--json", file, "--quiet")
    finish(start(language, ranks, *options, *written))
    losses: list[float] = json.loads(file.read_text())["losses"]
    return losses


def check(good: bool, what: str) -> bool:
    print(f"  {'yes' if good else 'NO '}  {what}", flush=True)
    return good


def compare(before: Weights, after: Weights, first: float) -> bool:
    """Both models, beside the first loss of the fine-tuning."""
    reader = "the format" if importlib.util.find_spec("safetensors") is None else "safetensors"
    print(f"read by {reader} and computed by NumPy, without Meron")
    old, new = loss_of(before), loss_of(after)
    shapes = [{name: t.shape for name, t in model.items()} for model in (before, after)]
    changed = sum(not np.array_equal(t, after.get(name)) for name, t in before.items())
    return all(
        [
            check(
                math.isclose(old, first, rel_tol=1e-4),
                f"the published weights have the first loss of the fine-tuning: {old:.6f}",
            ),
            check(shapes[0] == shapes[1], f"the same names and shapes: {len(before)} tensors"),
            check(changed == len(before), f"other values: in {changed} tensors"),
            check(new < old, f"a lower loss on the same examples: {new:.6f}"),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lang", choices=LANGUAGES, default="c", help="(default: c)")
    language = parser.parse_args().lang
    with tempfile.TemporaryDirectory() as temporary:
        published, tuned = Path(temporary) / "published", Path(temporary) / "tuned"

        print("4 ranks, plan zero3, on the pages of docs", flush=True)
        losses = train(language, 4, published, "--steps", 200, "--data", *OLD_TEXT)
        print(f"  loss {losses[0]:.2f} -> {losses[-1]:.2f}, published", flush=True)

        print(f"{RANKS} ranks, plan zero1, from the published weights, on the licence", flush=True)
        options = ("--plan", "zero1", "--accumulate", ACCUMULATE, "--steps", 100, "--from")
        losses = train(language, RANKS, tuned, *options, published, "--data", *NEW_TEXT)
        print(f"  loss {losses[0]:.2f} -> {losses[-1]:.2f}, published", flush=True)

        good = compare(read(published), read(tuned), losses[0])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
