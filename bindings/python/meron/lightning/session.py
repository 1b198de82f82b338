# SPDX-License-Identifier: Apache-2.0
"""A model with its engine and its optimizers, from setup to teardown.

The engine is meron.zero's, which takes everything of a config. It knows one optimizer; a session
has any number, and each one steps its own units.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch

import meron.torch as mt
import meron.zero
from meron import errors
from meron.lightning import optimizers as own
from meron.lightning.settings import check_several, on_nvme

Schedulers = Sequence[Any]


class Session:
    """Trains or runs one model.

    Attributes:
        engine:     meron.zero's, of the model.
        optimizers: on shards, in the caller's order; the config's own, if it names one.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        config: Mapping[str, Any],
        device: torch.device,
        optimizers: Sequence[torch.optim.Optimizer] = (),
        schedulers: Schedulers = (),
        *,
        counts: bool = False,
        divided: bool = True,
    ) -> None:
        """Shards the model and makes its optimizers run on shards. Collective.

        Args:
            schedulers: of learning rates; they follow their optimizer, if it is replaced.
            counts: the engine counts micro-batches, rather than that each step updates.
            divided: losses are means over an accumulation already, when they arrive.

        Raises ArgumentError for several optimizers where the engine counts, or under the dynamic
        loss scale of fp16: nothing was changed.
        """
        self.counts, self.divided = counts, divided
        self.closed = self.released = False
        given = list(optimizers)
        if len(given) > 1:
            check_several(config, errors.argument)
            if counts:
                raise errors.argument(
                    f"{len(given)} optimizers were given, and gradient_accumulation_steps of the "
                    "config takes a single one",
                    subject="gradient_accumulation_steps",
                    advice="Leave it out, and step each optimizer after its last micro-batch.",
                )
        if given and on_nvme(config):
            twins = [own.engine_twin(optimizer) for optimizer in given]
            for old, new in zip(given, twins):
                if new is not old:
                    own.move_schedulers(schedulers, old, new)
            given = twins
        engine, _, _, scheduler = meron.zero.initialize(
            model=model,
            optimizer=given[0] if given else None,
            config=dict(config),
            device=device,
        )
        for unit in engine.units:
            unit.local_state = (
                False  # module.state_dict() has all values, as under other strategies
            )
        self.engine: Any = engine
        self.optimizers: list[torch.optim.Optimizer] = given
        self.scheduler = scheduler  # the config's: the caller's loop steps it
        engine.lr_scheduler = None
        try:
            for other in given[1:]:
                if not isinstance(other, mt.EngineOptimizer):
                    mt.shard_optimizer(model, other, in_place=engine.config.in_place)
        except BaseException:
            self.abandon()
            raise
        self.optimizers = given or ([engine.optimizer] if engine.optimizer is not None else [])
        for optimizer in self.optimizers:
            if counts:
                self._keep_windows(optimizer)
            own.delegate(optimizer)
            optimizer._meron_session = weakref.ref(self)  # type: ignore[attr-defined]
        trained = session_of(model)
        if self.optimizers or trained is None or trained.released:
            model.__dict__["_meron_session"] = weakref.ref(self)

    def _keep_windows(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets `zero_grad` keep what an accumulation has so far, which the engine ends."""
        plain = optimizer.zero_grad

        def zero_grad(set_to_none: bool = True) -> None:
            if self.engine._accumulated == 0:
                plain(set_to_none)

        optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    # ---- Training ------------------------------------------------------------------------------

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times fp16's loss scale, ready for a backward."""
        value: torch.Tensor = self.engine.scale(loss)
        if self.counts and self.divided:  # the engine divides all of them
            value = value * self.engine.gradient_accumulation_steps()
        return value

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Updates the units of one optimizer, unless fp16 or bf16 has overflowed. Collective.

        With `counts` this ends a micro-batch. The last micro-batch updates.

        Raises NonFiniteError in f32, StateError for a loss that was not scaled and while params are
        gathered.
        """
        engine = self.engine
        if self.counts:
            engine._backward_ran = True  # a loss without a graph updates nothing
            engine.step()
        else:
            engine.step_units(optimizer, own.units_of(optimizer))

    def waits(self) -> bool:
        """True if gradients are incomplete, as the next step only ends a micro-batch."""
        return self.counts and not self.engine.is_gradient_accumulation_boundary()

    def optimizer_of(self, optimizer: Any) -> torch.optim.Optimizer | None:
        """The session's optimizer behind a wrapper of Lightning's; None if it is another's."""
        plain = own.bare(optimizer)
        return next((each for each in self.optimizers if each is plain), None)

    # ---- The end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives the model back, sharded, and free for another session. Collective.

        Optimizers keep their states, so that a checkpoint can be saved still, until another session
        takes the model.
        """
        if not self.closed:
            self.closed = True
            self.engine._owns_optimizer = False
            self.engine.destroy()

    def abandon(self) -> None:
        """The same after an error, when other ranks may not come. Local."""
        if not self.closed:
            self.closed = True
            self.engine._owns_optimizer = False
            self.engine._release_model()

    def release(self) -> None:
        """Ends the engine's optimizers, because a unit has one at a time. Local."""
        for optimizer in self.optimizers:
            if isinstance(optimizer, mt.EngineOptimizer):
                optimizer.release()
        self.released = True


def session_of(model: torch.nn.Module) -> Session | None:
    """The last session that trained a model; if none did, the last one. None if it is freed."""
    reference = model.__dict__.get("_meron_session")
    found: Session | None = reference() if reference is not None else None
    return found
