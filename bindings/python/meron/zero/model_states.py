# SPDX-License-Identifier: Apache-2.0
"""mp_rank_00_model_states.pt: the weights of a checkpoint as a file of torch.save, on request.

Scripts read it by `torch.load(path)["module"]`. Meron itself does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import meron
from meron.torch.checkpoint.agreement import together
from meron.zero.consolidated import state_dict_on_rank0
from meron.zero.drive import drive_errors
from meron.zero.zero_to_fp32 import replacing

FILE = "mp_rank_00_model_states.pt"


def write_model_states(
    context: meron.Context,
    module: torch.nn.Module,
    folder: Path,
    facts: Mapping[str, Any],
    exclude_frozen: bool,
) -> None:
    """Writes the full weights, in the params' dtype, and `facts` beside them. Collective.

    Rank 0 holds all weights in host memory meanwhile. Raises InputOutputError on all ranks, and the
    file is absent then.
    """
    weights = state_dict_on_rank0(module, exclude_frozen)
    with together(context), drive_errors():
        if context.rank == 0:
            with replacing(folder / FILE) as file:
                torch.save({**facts, "module": weights}, file)
