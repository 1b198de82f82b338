# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's optimizer classes, for scripts that make one before `initialize`: torch's rules, with
DeepSpeed's arguments and defaults. `initialize` runs them on shards."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.adamw import adamw

from meron import errors


def refuse_options(kind: str, unsupported: dict[str, bool]) -> None:
    names = [name for name, given in unsupported.items() if given]
    if names:
        raise errors.UnsupportedError(
            f"Meron does not have yet: {kind} with {', '.join(names)}",
            subject=names[0],
            advice="Leave it out, or pass torch.optim.Adam to initialize.",
        )


def update_in_f32(group: dict[str, Any], param: torch.Tensor, state: dict[str, Any]) -> None:
    """One step of AdamW in f32 on a param of any dtype, with f32 states, which the first one makes.

    group: the numbers of a param group.
    """
    assert param.grad is not None
    if not state:
        state["step"] = torch.tensor(0.0, device="cpu")
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = torch.zeros_like(param, dtype=torch.float32)
    values = param.float()
    adamw(
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


class FusedAdam(torch.optim.AdamW):
    """torch's AdamW with the defaults of DeepSpeed's class. The default weight decay is 0."""

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

    @torch.no_grad()
    def step_subgroup(self, subgroup_id: int, closure: Any = None) -> Any:
        """One step of the param that has a gradient, with the states of a sub-group. Local.

        For code that keeps one flat param and swaps the values and gradients of one sub-group after
        the other into it, as DeepSpeed's stage 3 does. The states are state[subgroup_id]: step,
        exp_avg and exp_avg_sq, which are f32.

        Returns the result of `closure`. If no param has a gradient, nothing changes. Raises
        StateError if several params have gradients, or if the optimizer is an engine's;
        UnsupportedError for amsgrad.
        """
        loss, found = self._subgroup("step_subgroup", closure)
        if found is None:
            return loss
        group, param = found
        state = self.state[subgroup_id]  # type: ignore[index]
        update_in_f32(group, param, state)
        return loss

    @torch.no_grad()
    def rollback_subgroup(self, sub_group_id: int, closure: Any = None) -> Any:
        """Undoes the last step_subgroup of a sub-group, up to rounding. Local.

        The param must hold the values and the gradient of that step.

        Returns the result of `closure`. Raises StateError as step_subgroup, and for a sub-group
        that has no step to undo.
        """
        loss, found = self._subgroup("rollback_subgroup", closure)
        state = self.state.get(sub_group_id)  # type: ignore[call-overload]
        if not state or not state["step"] > 0:
            raise errors.StateError(
                f"sub-group {sub_group_id} has no step to undo",
                operation="rollback_subgroup",
                advice="Call step_subgroup with its number first.",
            )
        if found is None:
            return loss
        group, param = found
        step, (first, second) = float(state["step"]), group["betas"]
        gradient = param.grad.float()
        average, square = state["exp_avg"], state["exp_avg_sq"]
        size = group["lr"] / (1 - first**step)
        scale = (square / (1 - second**step)).sqrt_().add_(group["eps"])
        values = param.float().addcdiv_(average, scale, value=size)
        param.copy_(values.div_(1 - group["lr"] * group["weight_decay"]))
        for mean, beta, sample in ((average, first, gradient), (square, second, gradient.square())):
            mean.sub_(sample, alpha=1 - beta)
            mean.div_(beta) if beta and step > 1 else mean.zero_()
        state["step"] -= 1
        return loss

    def _subgroup(self, operation: str, closure: Any) -> tuple[Any, Any]:
        """The result of `closure`, and the group and param that have a gradient (or None)."""
        if hasattr(self, "_meron_shards"):
            raise errors.StateError(
                "this optimizer is an engine's, which steps its shards",
                operation=operation,
                advice="Call engine.step().",
            )
        refuse_options(operation, {"amsgrad": any(g["amsgrad"] for g in self.param_groups)})
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        found = [
            (group, param)
            for group in self.param_groups
            for param in group["params"]
            if param.grad is not None
        ]
        if len(found) > 1:
            raise errors.StateError(
                f"{len(found)} params have gradients: a sub-group is one flat param",
                operation=operation,
                advice="Flatten the params of the sub-group into one tensor, or call step().",
            )
        return loss, found[0] if found else None


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
