# SPDX-License-Identifier: Apache-2.0
"""The examples of a micro-batch."""

from __future__ import annotations

import torch
from torch import Tensor


class Examples:
    """Micro-batches, numbered over all ranks and steps: which bytes are in number n depends on n
    and the seed alone. So one process that takes all of them sees what N ranks see together."""

    def __init__(self, text: Tensor, batch: int, context: int, seed: int) -> None:
        self.text, self.batch, self.context, self.seed = text, batch, context, seed

    def __getitem__(self, number: int) -> Tensor:
        """(batch, context + 1) of bytes."""
        generator = torch.Generator().manual_seed(self.seed << 32 | number)
        last = len(self.text) - self.context
        places = torch.randint(last, (self.batch, 1), generator=generator)
        return self.text[places + torch.arange(self.context + 1)].long()
