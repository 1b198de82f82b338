# SPDX-License-Identifier: Apache-2.0
"""Adam and AdamW on 16-bit values without f32 ones, with f32 states.

What `bf16_master_weights_and_grads` without `bf16_optimizer_states` asks for, as DeepSpeed's CPU
Adam does it: each step computes a param's new values in f32, and rounds them once.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch.optim.adam import adam
from torch.optim.adamw import adamw


def update(rule: Any, group: dict[str, Any], param: torch.Tensor, state: dict[str, Any]) -> None:
    """One step of a param by its gradient, in f32 with f32 states, which the first one makes.

    rule: torch's function adam or adamw; group: the numbers of a param group.
    """
    assert param.grad is not None
    if not state:
        state["step"] = torch.tensor(0.0, device="cpu")
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros_like(param, dtype=torch.float32)
    values = param.float()
    rule(
        [values],
        [param.grad.float()],
        [state["exp_avg"]],
        [state["exp_avg_sq"]],
        [],
        [state["step"]],
        foreach=False,
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=float(group["lr"]),
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=group["maximize"],
    )
    param.copy_(values)


class InPlaceAdam(torch.optim.Adam):
    """Adam (arXiv 1412.6980) on values of any dtype; states, and the numbers of a step, are f32.

    Arguments, groups and state names are those of torch.optim.Adam. `amsgrad` is refused by
    `meron.zero`, and `foreach`, `fused` and `capturable` have no effect.
    """

    # Checkpoints keep states in this dtype, and not in that of the param.
    _meron_state_dtype: ClassVar[torch.dtype] = torch.float32
    decoupled: ClassVar[bool] = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step on all params that have a gradient. Returns the result of `closure`."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._update(group, param)
        return loss

    def _update(self, group: dict[str, Any], param: torch.Tensor) -> None:
        update(adamw if self.decoupled else adam, group, param, self.state[param])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but that states stay f32."""
        super().load_state_dict(state_dict)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        for number, param in zip(numbers, params):
            for name, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, torch.Tensor) and name != "step":
                    self.state[param][name] = copy.deepcopy(value).to(param.device, torch.float32)


class InPlaceAdamW(InPlaceAdam):
    """AdamW (arXiv 1711.05101), as InPlaceAdam."""

    decoupled: ClassVar[bool] = True


RULES = {"adam": InPlaceAdam, "adamw": InPlaceAdamW}
