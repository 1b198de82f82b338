# SPDX-License-Identifier: Apache-2.0
"""One rank of a job that gathers twice, reduces and updates, and tells what crossed the link.

    python rank.py PLAN FILE

Params have odd sizes, one dimension or none, few elements, and 16 bits. Each rank writes FILE.RANK:
JSON with the bytes that it received from other hosts in each phase and as predicted, and a digest
of the values that it saw.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

import meron

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "embedding": [(1009, 67)],
    "block.0": [(129, 257), (257,), (), (3,)],
    "block.1": [(513, 511), (511,), (1,)],
    "head": [(67, 1013), (1013,)],
}
STEPS = 3


def received(context: meron.Context) -> tuple[int, int]:
    stats = context.stats()
    return stats.inter_node_gather_bytes, stats.inter_node_reduce_bytes


def step(
    context: meron.Context, units: list[meron.Unit], seen: hashlib._Hash, seed: int
) -> dict[str, int]:
    phases = [received(context)]
    for _ in ("forward", "backward"):
        for unit in units:
            with unit.gather() as full:
                for param in unit.params:
                    seen.update(np.ascontiguousarray(full[param]).tobytes())
        phases.append(received(context))
    random = np.random.default_rng(seed)
    for unit in units:
        gradients = {p: random.standard_normal(p.shape).astype(np.float32) for p in unit.params}
        unit.reduce_begin(gradients)
    context.wait_reductions(units)
    phases.append(received(context))
    return {
        "forward": phases[1][0] - phases[0][0],
        "backward": phases[2][0] - phases[1][0],
        "reduce": phases[3][1] - phases[2][1],
    }


def main() -> None:
    plan, path = sys.argv[1:]
    with meron.open(plan=plan) as context:
        units = []
        for name, shapes in SHAPES.items():
            params = [context.param(f"{name}.{i}", shape, "bf16") for i, shape in enumerate(shapes)]
            units.append(context.unit(name, params))
        random = np.random.default_rng(5)
        with context.update(units) as update:
            for unit in units:
                for param in unit.params:
                    update.write(param, random.standard_normal(param.shape).astype(np.float32))
        optimizer = context.adamw(units, lr=1e-3)
        inter_node = []
        seen = hashlib.sha256()
        for number in range(STEPS):
            inter_node.append(step(context, units, seen, 100 * number + context.rank))
            optimizer.step()
        predicted = context.predict()
        result = {
            "inter_node": inter_node,
            "gather": predicted.inter_node_gather_bytes,
            "reduce": predicted.inter_node_reduce_bytes,
            "seen": seen.hexdigest(),
        }
        Path(f"{path}.{context.rank}").write_text(json.dumps(result), encoding="utf-8")


main()
