# SPDX-License-Identifier: Apache-2.0
"""The engine's update rules as optimizers of torch: one pass over each shard, with the exact global
norm.

    model = mt.shard(GPT(), units=Block)
    decay = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = mt.AdamW([{"params": decay}, {"params": others, "weight_decay": 0.0}], lr=3e-4)

Arguments and defaults are torch's. `params` is a sharded module, or params or param groups of
sharded modules. If a param of a unit is in a group, the optimizer owns all params of the unit; it
does not change those in no group. Each group has its own numbers, which may change between steps.
`foreach`, `fused` and `capturable` have no effect; the log `meron.torch` says so once. True for
`amsgrad`, `maximize` or `differentiable` is an UnsupportedError.

`max_norm`: gradients are scaled to at most this 2-norm over all params and ranks; 0 does not clip.

Making one is collective. It replaces earlier optimizers that have its params: their calls raise
StateError. It raises ArgumentError (a number out of range, a param that is not sharded, or a module
with trainable params in no unit), DuplicateError (a unit has an optimizer of other params of it),
OutOfMemoryError; with states on a drive it blocks on that, and raises NoSpaceError, NotFoundError,
InputOutputError.
"""

from __future__ import annotations

from typing import Any, ClassVar

import meron
from meron import errors
from meron.torch.optim.engine import EngineOptimizer, Numbers, Params


def pair(betas: Any) -> tuple[float, float]:
    first, second = betas
    return float(first), float(second)


class Adam(EngineOptimizer):
    """Adam (arXiv 1412.6980); weight decay is part of the gradient. States: exp_avg, exp_avg_sq.

    Arguments, blocking and errors: as said in meron.torch.optim.rules.
    """

    state_names: ClassVar[dict[str, str]] = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
    decoupled: ClassVar[bool] = False

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
        max_norm: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay or self.decoupled,
        }
        super().__init__(params, defaults, max_norm)

    def create(self, units: list[meron.Unit], group: dict[str, Any]) -> meron.Optimizer:
        context = self.sharding.context
        make = context.adamw if self.decoupled else context.adam
        return make(units, max_norm=self.max_norm, **self.numbers(group))

    def numbers(self, group: dict[str, Any]) -> Numbers:
        return {
            "lr": float(group["lr"]),
            "betas": pair(group["betas"]),
            "eps": float(group["eps"]),
            "weight_decay": float(group["weight_decay"]),
        }

    def _check_group(self, number: int) -> None:
        super()._check_group(number)
        if bool(self.param_groups[number]["decoupled_weight_decay"]) != self.decoupled:
            name, other = ("AdamW", "Adam") if self.decoupled else ("Adam", "AdamW")
            raise errors.UnsupportedError(
                f"{name} with decoupled_weight_decay={not self.decoupled} (param group {number}): "
                f"this is the rule of meron.torch.{other}",
                subject="decoupled_weight_decay",
                advice=f"Use {other}.",
            )


class AdamW(Adam):
    """AdamW (arXiv 1711.05101). States: exp_avg, exp_avg_sq.

    Arguments, blocking and errors: as said in meron.torch.optim.rules.
    """

    decoupled: ClassVar[bool] = True

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        max_norm: float = 0.0,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            max_norm=max_norm,
        )


class Adagrad(EngineOptimizer):
    """Adagrad (JMLR 12, 2011); weight decay is part of the gradient. State: sum.

    Arguments, blocking and errors: as said in meron.torch.optim.rules.
    """

    state_names: ClassVar[dict[str, str]] = {"sum": "exp_avg_sq"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        max_norm: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults, max_norm)

    def create(self, units: list[meron.Unit], group: dict[str, Any]) -> meron.Optimizer:
        return self.sharding.context.adagrad(units, max_norm=self.max_norm, **self.numbers(group))

    def numbers(self, group: dict[str, Any]) -> Numbers:
        return {
            "lr": float(group["lr"]),
            "eps": float(group["eps"]),
            "weight_decay": float(group["weight_decay"]),
            "lr_decay": float(group["lr_decay"]),
        }

    def initial_states(self, group: dict[str, Any]) -> dict[str, float]:
        value = float(group["initial_accumulator_value"])
        return {"sum": value} if value else {}

    def _check_group(self, number: int) -> None:
        super()._check_group(number)
        for key in ("lr_decay", "initial_accumulator_value"):
            if not self.param_groups[number][key] >= 0:
                raise errors.argument(
                    f"param group {number} of Adagrad: {key} is {self.param_groups[number][key]}",
                    subject=key,
                    advice="Give 0 or more.",
                )


class Lion(EngineOptimizer):
    """Lion (arXiv 2302.06675), with the defaults of its paper. State: exp_avg.

    Args:
        betas: of the direction that is taken, and of the average that is kept.
        others, blocking and errors: as said in meron.torch.optim.rules.
    """

    state_names: ClassVar[dict[str, str]] = {"exp_avg": "exp_avg"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        max_norm: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay}, max_norm)

    def create(self, units: list[meron.Unit], group: dict[str, Any]) -> meron.Optimizer:
        return self.sharding.context.lion(units, max_norm=self.max_norm, **self.numbers(group))

    def numbers(self, group: dict[str, Any]) -> Numbers:
        return {
            "lr": float(group["lr"]),
            "betas": pair(group["betas"]),
            "weight_decay": float(group["weight_decay"]),
        }


class SGD(EngineOptimizer):
    """Stochastic gradient descent, as torch.optim.SGD. State, with a momentum: momentum_buffer.

    `momentum` may differ between groups, but is 0 in all of them or in none; `dampening` and
    `nesterov` are those of all groups.

    Arguments, blocking and errors: as said in meron.torch.optim.rules.
    """

    state_names: ClassVar[dict[str, str]] = {"momentum_buffer": "exp_avg"}
    number_names: ClassVar[dict[str, str]] = {**EngineOptimizer.number_names, "beta1": "momentum"}
    common: ClassVar[dict[str, str]] = {
        "momentum": "0 in all param groups or in none",
        "dampening": "equal in all param groups",
        "nesterov": "equal in all param groups",
    }

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
        max_norm: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults, max_norm)

    def create(self, units: list[meron.Unit], group: dict[str, Any]) -> meron.Optimizer:
        return self.sharding.context.sgd(
            units,
            float(group["lr"]),
            float(group["momentum"]),
            float(group["dampening"]),
            nesterov=bool(group["nesterov"]),
            weight_decay=float(group["weight_decay"]),
            max_norm=self.max_norm,
        )

    def numbers(self, group: dict[str, Any]) -> Numbers:
        return {
            "lr": float(group["lr"]),
            "betas": (float(group["momentum"]), 0.0),
            "weight_decay": float(group["weight_decay"]),
        }

    def has_states(self, group: dict[str, Any]) -> bool:
        return bool(group["momentum"])

    def common_of(self, group: dict[str, Any]) -> dict[str, Any]:
        return {**super().common_of(group), "momentum": self.has_states(group)}
