# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""The part of a context that makes optimizers."""

from __future__ import annotations

from collections.abc import Iterable

from meron._base_context import BaseContext
from meron._native import lib
from meron.optimizer import Optimizer
from meron.unit import Unit


class Optimizing(BaseContext):
    """The functions of `meron.Context` that create optimizers, one for each rule.

    Creates an optimizer and its states (zero) for the trainable params of some units: the
    states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    params have 16 bits. A master begins with the param's value at this call, and later updates
    write it too, so initial values may be written before or after. States on tier nvme are
    written once here, so that steps only overwrite existing data; if that takes long, the log
    reports the progress. Collective over the units' group.

    Blocks as `barrier_begin`; while a save copies states, without a deadline; also on this
    rank's drive if states are on nvme.

    Raises ArgumentError, HandleError, StaleError, StateError, DuplicateError, OutOfMemoryError,
    InputOutputError, NotFoundError, NoSpaceError, DeadlineError, PeerDeadError,
    PeerClosedError, MismatchError, AbortedError, AuthError, VersionError.
    """

    def adamw(
        self,
        units: Iterable[Unit],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0.01,
        *,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """AdamW (Loshchilov and Hutter, arXiv 1711.05101).

        Args:
            lr: 0 or more.
            betas: the first: 0 or more, below 1; the second: 0 or more, below 1.
            eps: above 0.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this 2-norm, of all gradients of the
            optimizer together, as meron_gradient_clip does; 0: no clipping.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_OPTIMIZER_ADAMW,
            learning_rate=lr,
            betas=betas,
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def adam(
        self,
        units: Iterable[Unit],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        *,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.

        Args:
            lr: 0 or more.
            betas: the first: 0 or more, below 1; the second: 0 or more, below 1.
            eps: above 0.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this 2-norm, of all gradients of the
            optimizer together, as meron_gradient_clip does; 0: no clipping.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_OPTIMIZER_ADAM,
            learning_rate=lr,
            betas=betas,
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def adagrad(
        self,
        units: Iterable[Unit],
        lr: float = 0.01,
        *,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
        lr_decay: float = 0.0,
    ) -> Optimizer:
        """Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient.
        Keeps the sum of squared gradients.

        Args:
            lr: 0 or more.
            eps: above 0.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this 2-norm, of all gradients of the
            optimizer together, as meron_gradient_clip does; 0: no clipping.
            lr_decay: 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
        """
        return Optimizer(
            self,
            units,
            lib.MERON_OPTIMIZER_ADAGRAD,
            learning_rate=lr,
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
            lr_decay=lr_decay,
        )

    def lion(
        self,
        units: Iterable[Unit],
        lr: float = 0.0001,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.

        Args:
            lr: 0 or more.
            betas: the first: of the direction of the update; 0 or more, below 1; the second: of
            the stored average; 0 or more, below 1.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this 2-norm, of all gradients of the
            optimizer together, as meron_gradient_clip does; 0: no clipping.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_OPTIMIZER_LION,
            learning_rate=lr,
            betas=betas,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def sgd(
        self,
        units: Iterable[Unit],
        lr: float = 0.001,
        momentum: float = 0.0,
        dampening: float = 0.0,
        *,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.
        With a momentum it keeps an average of gradients; without one, no state.

        Args:
            lr: 0 or more.
            momentum: 0 or more, below 1; beta1 of an optimizer group.
            dampening: of the gradient that is added to the state; 0 or more, below 1.
            nesterov: Nesterov's momentum, which needs a momentum and no dampening.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this 2-norm, of all gradients of the
            optimizer together, as meron_gradient_clip does; 0: no clipping.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_OPTIMIZER_SGD,
            learning_rate=lr,
            beta1=momentum,
            dampening=dampening,
            nesterov=nesterov,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )
