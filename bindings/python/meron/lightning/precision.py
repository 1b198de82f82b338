# SPDX-License-Identifier: Apache-2.0
"""The precision plugins of a tree: they give losses to the engine, and clip on shards."""

from __future__ import annotations

import functools
from typing import Any

import torch

from meron.lightning import optimizers as own
from meron.lightning.trees import tree

PRECISIONS = ("32-true", "16-true", "bf16-true", "16-mixed", "bf16-mixed")


def check_precision(precision: Any) -> str:
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision={precision!r} is not supported by Meron: it must be one of {PRECISIONS}."
        )
    return str(precision)


@functools.cache
def trainer_precision(name: str) -> Any:
    """The class MeronPrecision of the Trainer of a tree."""
    base = tree(name).get("pl.plugins.precision.DeepSpeedPrecision")

    class MeronPrecision(base):  # type: ignore[misc,valid-type]
        """Maps a Trainer's precision to the engine's.

        "16-mixed" and "16-true" compute in fp16, "bf16-*" in bf16. Optimizers update f32 values of
        the trained params. fp16 uses the loss scale of the strategy's arguments.

        Raises ValueError for another precision.
        """

        def __init__(self, precision: str = "32-true") -> None:
            super().__init__(check_precision(precision))

        def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
            """The module: the engine converts its params when it shards them."""
            return module

        def convert_input(self, data: Any) -> Any:
            """Inputs in the dtype that the model computes in; with 32-true as they are."""
            return data if self.precision == "32-true" else super().convert_input(data)

        def backward(
            self, tensor: torch.Tensor, model: Any, optimizer: Any, *args: Any, **kwargs: Any
        ) -> None:
            """`LightningModule.backward` of the loss, times fp16's loss scale."""
            scaled = model.trainer.strategy.session.scaled(tensor)
            model.backward(scaled, *args, **kwargs)

        def optimizer_step(self, optimizer: Any, model: Any, closure: Any, **kwargs: Any) -> Any:
            """Runs the closure and the hooks before a step; then all ranks step."""
            result = closure()
            self._after_closure(model, optimizer)
            if model.automatic_optimization and result is None:
                model.trainer.strategy.refuse_skip()
                return None  # training_step returned None: there is nothing to step for
            model.trainer.strategy.step(optimizer)
            return result

        def clip_gradients(
            self, optimizer: Any, clip_val: Any = 0.0, gradient_clip_algorithm: Any = "norm"
        ) -> None:
            """Clips the gradients of the optimizer's params, over all ranks. Collective.

            If the engine counts micro-batches, it does so at the last of an accumulation only.
            """
            plain = own.bare(optimizer)
            if clip_val is None or clip_val <= 0 or own.waits(plain):
                return
            if getattr(gradient_clip_algorithm, "value", gradient_clip_algorithm) == "value":
                own.clip_value(plain, clip_val)
            else:
                own.clip_norm(plain, clip_val)

    return MeronPrecision


@functools.cache
def fabric_precision(name: str) -> Any:
    """The class MeronPrecision of Fabric of a tree."""
    base = tree(name).get("fabric.plugins.precision.DeepSpeedPrecision")

    class MeronPrecision(base):  # type: ignore[misc,valid-type]
        """As the Trainer's. Losses go through `fabric.backward`."""

        def __init__(self, precision: str = "32-true") -> None:
            super().__init__(check_precision(precision))

        def convert_module(self, module: torch.nn.Module) -> torch.nn.Module:
            """The module: the engine converts its params when it shards them."""
            return module

        def convert_input(self, data: Any) -> Any:
            """Inputs in the dtype that the model computes in; with 32-true as they are."""
            return data if self.precision == "32-true" else super().convert_input(data)

        def backward(self, tensor: torch.Tensor, model: Any, *args: Any, **kwargs: Any) -> None:
            """The backward of a loss that the strategy has scaled."""
            tensor.backward(*args, **kwargs)

    return MeronPrecision
