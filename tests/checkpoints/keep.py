# SPDX-License-Identifier: Apache-2.0
"""Writes the kept checkpoints of a version with the current library: keep.py VERSION."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import ranks
from cases import CASES, EXTRA, NAME, begin, bits, build, folder_of, tensors, train

import meron


def keep(version: str, name: str) -> None:
    case, folder = CASES[name], folder_of(version, name)
    if folder.exists():
        sys.exit(f"{folder} exists: a kept checkpoint is not written again")

    def body(context: meron.Context) -> dict[str, str]:
        model = build(context, case)
        begin(context, model)
        train(model, 3)
        context.save(
            folder,
            NAME,
            [] if case.save else [model.optimizer],
            step=42,
            extra=EXTRA,
            tensors=tensors(context.rank),
            **case.save,
        )
        return bits(context, model, case)

    found: list[dict[str, str]] = ranks.threads(2, body, plan=case.plan)
    assert found[0] == found[1]
    (folder / "expected.json").write_text(json.dumps(found[0], indent=1, sort_keys=True) + "\n")
    (folder / ".saving.lock").unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for each in CASES:
        keep(sys.argv[1], each)
        size = sum(file.stat().st_size for file in folder_of(sys.argv[1], each).rglob("*"))
        print(f"{each}: {size} bytes")
