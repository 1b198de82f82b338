# SPDX-License-Identifier: Apache-2.0
"""The model that DeepSpeed and Meron train: tied weights, a buffer, a frozen param."""

from __future__ import annotations

import torch

VOCABULARY = 11


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.e = torch.nn.Embedding(VOCABULARY, 6)
        self.a = torch.nn.Linear(6, 7)
        self.b = torch.nn.Linear(7, 6, bias=False)
        self.n = torch.nn.LayerNorm(6)
        self.head = torch.nn.Linear(6, VOCABULARY, bias=False)
        self.head.weight = self.e.weight
        self.register_buffer("buffer", torch.arange(3.0))
        self.frozen = torch.nn.Parameter(torch.ones(5), requires_grad=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.n(self.b(torch.relu(self.a(self.e(tokens)))))
        return self.head(hidden)  # type: ignore[no-any-return]


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, VOCABULARY, (2, 5), generator=generator)


def loss_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    out = model(tokens).float().reshape(-1, VOCABULARY)
    return torch.nn.functional.cross_entropy(out, tokens.reshape(-1))


def groups_of(model: Model) -> list[dict[str, object]]:
    """Groups of params for an optimizer: with decay, and without."""
    trained = [param for param in model.parameters() if param.requires_grad]
    return [
        {"params": [param for param in trained if param.ndim > 1], "weight_decay": 0.1},
        {"params": [param for param in trained if param.ndim == 1], "weight_decay": 0.0},
    ]


def config_of(stage: int, dtype: str) -> dict[str, object]:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": dtype == "bf16"},
        "gradient_clipping": 0.0,
        "steps_per_print": 10**9,
    }
