# SPDX-License-Identifier: Apache-2.0
"""The part of a context that makes optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meron._base_context import BaseContext
from meron._native import lib
from meron.optimizer import Optimizer
from meron.unit import Unit

# The engine's names of arguments.
NAMES = {"lr": "learning_rate", "eps": "epsilon", "momentum": "beta1"}


def optimizer_of(rule: int, arguments: dict[str, Any]) -> Optimizer:
    """The optimizer of a rule, by the arguments of its method."""
    values = dict(arguments)
    context, units = values.pop("self"), values.pop("units")
    if "betas" in values:
        betas = values.pop("betas")
        values["beta1"], values["beta2"] = betas[0], betas[1]
    return Optimizer(context, units, rule, **{NAMES.get(k, k): v for k, v in values.items()})


class Optimizing(BaseContext):
    """What `meron.Context` has of optimizers: a function for each rule."""

    def adamw(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An AdamW optimizer (arXiv 1711.05101) for the trainable params of some units.

        Its states are zero at first, and lie where and as the plan says. Collective over the units'
        group.

        Args:
            lr: the learning rate, 0 or more.
            betas: the decay rates of the two moments, each 0 or more and below 1.
            eps: above 0.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this global 2-norm; 0 does not clip.

        Raises ArgumentError, DuplicateError (a unit has an optimizer already), OutOfMemoryError;
        with states on tier nvme also NoSpaceError, NotFoundError, InputOutputError. Blocks on this
        rank's drive where states lie on nvme: they are written once here; never on peers.
        """
        return optimizer_of(lib.MERON_ADAMW, locals())

    def adam(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An Adam optimizer (arXiv 1412.6980); weight decay is part of the gradient.

        Else as `adamw`.
        """
        return optimizer_of(lib.MERON_ADAM, locals())

    def adagrad(
        self,
        units: Iterable[Unit],
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An Adagrad optimizer (JMLR 12, 2011); weight decay is part of the gradient.

        It keeps the sum of squared gradients, as state "exp_avg_sq". Else as `adamw`.
        """
        return optimizer_of(lib.MERON_ADAGRAD, locals())

    def lion(
        self,
        units: Iterable[Unit],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """A Lion optimizer (arXiv 2302.06675).

        It keeps an average of gradients, as state "exp_avg". Else as `adamw`.

        Args:
            betas: of the direction that is taken, and of the average that is kept.
        """
        return optimizer_of(lib.MERON_LION, locals())

    def sgd(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.

        With a momentum it keeps a state, "exp_avg"; without, none. Else as `adamw`.

        Args:
            momentum: 0 or more and below 1; in `ParamGroup` it is betas[0].
            dampening: of the gradient that is added to the state; 0 or more and below 1.
            nesterov: Nesterov's momentum, which needs a momentum and no dampening.
        """
        nesterov = bool(nesterov)
        return optimizer_of(lib.MERON_SGD, locals())
