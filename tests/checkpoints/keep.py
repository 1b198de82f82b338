# SPDX-License-Identifier: Apache-2.0
"""Writes kept checkpoints of a version with the current library: keep.py VERSION [CASE...].

Without a case it writes all of them, and then needs PyTorch and Lightning.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import ranks
from cases import CASES, EXTRA, NAME, begin, bits, build, folder_of, tensors, train

import meron

# Modules whose `keep(folder, case)` writes a checkpoint and returns what is expected of it.
OTHERS = ("torch_cases", "zero_cases", "lightning_cases")
# A save leaves these. A lock has no content, and the script is the one of the version that reads.
REMOVED = (".saving.lock", "zero_to_fp32.py", "zero_to_torch.py")


def keep(folder: Path, name: str) -> dict[str, str]:
    case = CASES[name]

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
    return found[0]


def keep_other(folder: Path, module: Any, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = ranks.call(2, module.keep, folder, module.CASES[name])
    assert found[0] == found[1]
    return found[0]


def main(version: str, chosen: list[str]) -> None:
    writers: dict[str, Any] = dict.fromkeys(CASES)
    for each in OTHERS:
        if not chosen or not set(chosen) <= writers.keys():
            module = importlib.import_module(each)
            writers.update(dict.fromkeys(module.CASES, module))
    for name in chosen or writers:
        if name not in writers:
            sys.exit(f"{name} is not a case: {', '.join(writers)}")
        folder = folder_of(version, name)
        if folder.exists():
            sys.exit(f"{folder} exists: a kept checkpoint is not written again")
        module = writers[name]
        found = keep_other(folder, module, name) if module else keep(folder, name)
        (folder / "expected.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        for file in REMOVED:
            for path in folder.rglob(file):
                path.unlink()
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{name}: {size} bytes")
    ranks.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
