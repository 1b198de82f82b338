# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's interface of an engine's optimizer: `overflow`, `optimizer`, `step` by itself.

`adopt` makes the class of an optimizer a subclass of its own, in place, with the same name, so that
isinstance(), checkpoints and messages stay as they were.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from meron.torch.torch_internals import keep_scheduler_mark
from meron.zero.loss_scale import LossScale
from meron.zero.owner import destroyed
from meron.zero.wrapper import Wrapper

if TYPE_CHECKING:
    from meron.zero.engine import Engine


class DeepSpeedOptimizer:
    """The base of every engine's optimizer, as deepspeed.runtime.base_optimizer has it."""


class ZeroOptimizer(DeepSpeedOptimizer):
    """An engine's optimizer. Instances are optimizers of torch or of meron.torch too.

    Attributes:
        overflow: True if the last step was skipped, because a gradient was NaN or infinite.
    """

    overflow = False
    _zero_engine: weakref.ref[Engine] | None = None

    @property
    def optimizer(self) -> Any:
        """The optimizer that changes the shards: itself."""
        return self

    @property
    def loss_scale(self) -> float:
        """The factor of the next loss; 1 without fp16."""
        engine = engine_of_optimizer(self)
        return engine.cur_scale if engine is not None else 1.0

    cur_scale = loss_scale

    @property
    def loss_scaler(self) -> ScaleView:
        """The loss scale, with DeepSpeed's names of its numbers."""
        engine = engine_of_optimizer(self)
        return ScaleView(None if engine is None else engine.loss_scaler)

    loss_scale_config = loss_scaler

    @property
    def dynamic_loss_scale(self) -> bool:
        """True if there is a loss scale and it is dynamic."""
        return self.loss_scaler.dynamic

    @property
    def clip_grad(self) -> float:
        """The norm that gradients are clipped to; 0 is off."""
        engine = engine_of_optimizer(self)
        return engine.gradient_clipping() if engine is not None else 0.0

    @property
    def bit16_groups(self) -> list[list[torch.Tensor]]:
        """The params of each group, which the model computes with."""
        return [list(group["params"]) for group in self.param_groups]  # type: ignore[attr-defined]

    fp16_groups = bit16_groups  # of DeepSpeed's stage 3

    def refresh_fp32_params(self) -> None:
        """Nothing: whatever writes to a param writes to the f32 value that this updates."""

    @property
    def parameter_offload(self) -> ParameterHooks:
        """Stage 3 only: the hooks that TRL removes for generation. There are none."""
        engine = engine_of_optimizer(self)
        if engine is None or engine.zero_optimization_stage() < 3:
            raise AttributeError("parameter_offload: this engine's stage is below 3")
        return ParameterHooks(engine.module)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the engine: loss scale, clipping and counters too. Collective.

        If no backward ran since the last step, nothing changes.

        The engine's scheduler does not step: only engine.step() does that. Returns what `closure`
        returns.
        """
        plain = functools.partial(super().step, closure)  # type: ignore[misc]
        return step_of(self, plain, closure)

    def backward(self, loss: torch.Tensor, retain_graph: bool = False) -> None:
        """As engine.backward. Raises StateError if the engine was destroyed."""
        self._engine("backward").backward(loss, retain_graph=retain_graph)

    def offload_states(self, *arguments: Any, **named: Any) -> None:
        """As engine.offload_states, with its arguments. Raises StateError if the engine was
        destroyed."""
        self._engine("offload_states").offload_states(*arguments, **named)

    def reload_states(self, non_blocking: bool = False) -> None:
        """As engine.reload_states. Raises StateError if the engine was destroyed."""
        self._engine("reload_states").reload_states(non_blocking)

    def _set_fp32_optimizer_param_groups(self) -> None:
        """Nothing: the param groups are those of the f32 values at all times."""

    _clear_fp32_optimizer_param_groups = _set_fp32_optimizer_param_groups

    def _engine(self, operation: str) -> Engine:
        engine = engine_of_optimizer(self)
        if engine is None:
            last = self._zero_engine() if self._zero_engine is not None else None
            end = "was destroyed" if last is None else last._end
            raise destroyed("the engine of this optimizer", operation, end)
        return engine


class ScaleView:
    """The loss scale of an engine, read only. Without one it is 1 and static.

    Attributes:
        cur_scale, loss_scale: the factor of the next loss.
        dynamic, dynamic_loss_scale: True if it follows overflows.
        scale_window, min_loss_scale, delayed_shift, consecutive_hysteresis: of a dynamic one, the
            config's loss_scale_window, min_loss_scale, hysteresis and consecutive_hysteresis.
        cur_hysteresis: overflows until it halves.
    """

    def __init__(self, scale: LossScale | None) -> None:
        self.cur_scale = self.loss_scale = 1.0 if scale is None else scale.value
        self.dynamic = self.dynamic_loss_scale = scale is not None and scale.dynamic
        if scale is not None and scale.dynamic:
            self.scale_window = scale.window
            self.min_loss_scale = scale.floor
            self.delayed_shift = scale.hysteresis
            self.consecutive_hysteresis = scale.consecutive
            self.cur_hysteresis = scale.left


class ParameterHooks:
    """The hooks that TRL removes before generation and registers again after it. There are none:
    Meron gathers params within forward passes of any kind.

    Attributes: `module` (forwards to the model), `forward_hooks` and `backward_hooks` (empty),
    `param_coordinator`.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = HookedModule(module)
        self.forward_hooks: list[Any] = []
        self.backward_hooks: list[Any] = []
        self.param_coordinator = self

    def is_invalid_trace(self) -> bool:
        """True: no order of uses is kept that could be wrong."""
        return True

    def _invalidate_trace(self) -> None:
        """Nothing: no order of uses is kept."""

    def _register_deepspeed_module(self, module: torch.nn.Module) -> None:
        """Nothing: hooks were not removed."""


class HookedModule(Wrapper):
    """The model, with the params that its own forward uses of other modules."""

    def ds_external_parameters(self) -> list[tuple[int, torch.nn.Parameter]]:
        """Pairs of a param's ds_id and the param that was registered as external."""
        external = self.module.__dict__.get("_meron_external", {})
        return [(getattr(param, "ds_id", key), param) for key, param in external.items()]


def engine_of_optimizer(optimizer: ZeroOptimizer) -> Engine | None:
    """The engine that an optimizer belongs to, if it is alive."""
    engine = optimizer._zero_engine() if optimizer._zero_engine is not None else None
    return None if engine is None or engine._destroyed else engine


def step_of(
    optimizer: ZeroOptimizer, plain: Callable[[], Any], closure: Callable[[], Any] | None
) -> Any:
    engine = engine_of_optimizer(optimizer)
    if engine is None or engine._stepping:
        return plain()
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    if engine._had_backward():
        engine._step_without_schedule()
    return loss


@functools.cache
def zero_optimizer_class(kind: Any) -> type[torch.optim.Optimizer]:
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (ZeroOptimizer, kind), names)


def adopt(engine: Engine, optimizer: torch.optim.Optimizer) -> None:
    """Makes an optimizer the engine's, in place."""
    if not isinstance(optimizer, ZeroOptimizer):
        kind: Any = type(optimizer)
        optimizer.__class__ = zero_optimizer_class(kind)
        plain = optimizer.__dict__.get("step")  # of shard_optimizer, or of a scheduler
        if plain is not None:
            wrap_step(optimizer, plain)
    optimizer._zero_engine = weakref.ref(engine)  # type: ignore[attr-defined]


def wrap_step(optimizer: Any, plain: Callable[..., Any]) -> None:
    """Puts the engine's step before one that the object has itself, rather than its class."""

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        return step_of(self, functools.partial(plain, closure), closure)

    keep_scheduler_mark(plain, step)
    optimizer.step = types.MethodType(step, optimizer)
