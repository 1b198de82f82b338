# SPDX-License-Identifier: Apache-2.0
"""The batches that a rank of two gets of modules.loader, in a run of a Trainer."""

from __future__ import annotations

import torch
from torch.utils.data import DistributedSampler, TensorDataset


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(48, 16, generator=torch.Generator().manual_seed(3))
    sampler = DistributedSampler(TensorDataset(x), 2, rank, shuffle=True, seed=1)
    return [(part, part.mean(1)) for part in x[list(sampler)].split(4)]
