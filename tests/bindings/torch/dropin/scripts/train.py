# SPDX-License-Identifier: Apache-2.0
"""One rank of the scripts, with the package `deepspeed` that Python finds.

train.py FOLDER [CASE ...]    (RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set)

Writes RANK.json into FOLDER: the version of the package, and what each case found.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from cases import CASES


def main() -> None:
    folder, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    found: dict[str, Any] = {"version": deepspeed.__version__, "runs": {}}
    for name in names:
        script, choices = CASES[name]
        found["runs"][name] = importlib.import_module(script).main(folder, **choices)
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
