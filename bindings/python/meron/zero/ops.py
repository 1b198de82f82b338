# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizer classes, for scripts that make one before `initialize`: torch's rules, with
DeepSpeed's arguments and defaults. `initialize` runs them on shards."""

from __future__ import annotations

from typing import Any

import torch

from meron import errors


def refuse_options(kind: str, unsupported: dict[str, bool]) -> None:
    names = [name for name, given in unsupported.items() if given]
    if names:
        raise errors.UnsupportedError(
            f"Meron does not have yet: {kind} with {', '.join(names)}",
            subject=names[0],
            advice="Leave it out, or pass torch.optim.Adam to initialize.",
        )


class FusedAdam(torch.optim.AdamW):
    """torch's AdamW with the defaults of DeepSpeed's class: no weight decay unless asked for."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
    ) -> None:
        unsupported = {
            "bias_correction=False": not bias_correction,
            "adam_w_mode=False with weight_decay": not adam_w_mode and weight_decay != 0,
            "set_grad_none=False": not set_grad_none,  # gradients never stay after a step
        }
        refuse_options(type(self).__name__, unsupported)
        super().__init__(
            params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad
        )


class DeepSpeedCPUAdam(FusedAdam):
    """The same under another name; the order of its options differs."""

    def __init__(
        self,
        model_params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        adamw_mode: bool = True,
        fp32_optimizer_states: bool = True,
    ) -> None:
        refuse_options(
            type(self).__name__, {"fp32_optimizer_states=False": not fp32_optimizer_states}
        )
        super().__init__(
            model_params, lr, bias_correction, betas, eps, adamw_mode, weight_decay, amsgrad
        )


class DeepSpeedCPUAdagrad(torch.optim.Adagrad):
    """torch's Adagrad with the options of DeepSpeed's class."""

    def __init__(
        self,
        model_params: Any,
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        fp32_optimizer_states: bool = True,
    ) -> None:
        unsupported = {
            "amsgrad": amsgrad,
            "fp32_optimizer_states=False": not fp32_optimizer_states,
        }
        refuse_options(type(self).__name__, unsupported)
        super().__init__(model_params, lr=lr, eps=eps, weight_decay=weight_decay)


class FusedLion(torch.optim.Optimizer):
    """Lion (arXiv 2302.06675), on tensors of torch. State: exp_avg."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
    ) -> None:
        refuse_options(type(self).__name__, {"set_grad_none=False": not set_grad_none})
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step for every param that has a gradient. Returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            first, second = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param)
                average = state["exp_avg"]
                direction = average.mul(first).add_(param.grad, alpha=1 - first).sign_()
                param.mul_(1 - group["lr"] * group["weight_decay"])
                param.add_(direction, alpha=-group["lr"])
                average.mul_(second).add_(param.grad, alpha=1 - second)
        return loss


class DeepSpeedCPULion(FusedLion):
    """The same with the other defaults of DeepSpeed's class for the CPU."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        fp32_optimizer_states: bool = True,
    ) -> None:
        refuse_options(
            type(self).__name__, {"fp32_optimizer_states=False": not fp32_optimizer_states}
        )
        super().__init__(params, lr, betas, weight_decay)
