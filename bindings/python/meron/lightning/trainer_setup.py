# SPDX-License-Identifier: Apache-2.0
"""Makes a session of the module and the optimizers of a Trainer's strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from meron.lightning import optimizers as own
from meron.lightning import settings
from meron.lightning.early import agreed, check_config, setting_up, shard_early
from meron.lightning.guests import check_callbacks, hook_norms
from meron.lightning.session import Session

MAKE_OPTIMIZERS = "pl.core.optimizer._init_optimizers_and_lr_schedulers"
EMPTY_OPTIMIZER = "pl.core.optimizer._MockOptimizer"
SCHEDULER_CONFIG = "pl.utilities.types.LRSchedulerConfig"
INFO = "pl.utilities.rank_zero.rank_zero_info"

if TYPE_CHECKING:
    Base: Any = object
else:
    Base = object


class TrainerSetup(Base):  # type: ignore[misc,unused-ignore]
    """A mixin of the strategy. After an exception the module is free for another run."""

    session: Session | None
    _ended: Session | None

    @property
    def _module(self) -> Any:
        """The LightningModule. RuntimeError if a Trainer has connected none."""
        if self.lightning_module is None:
            raise RuntimeError(
                "the strategy has no LightningModule: pass it to a Trainer, whose fit, validate, "
                "test and predict connect one"
            )
        return self.lightning_module

    def setup(self, trainer: Any) -> None:
        """Shards the model, makes its optimizers, and connects them. Collective."""
        self.accelerator.setup(trainer)
        module = self._module
        fits = trainer.state.fn == self._fitting
        self._failed = False
        self._release()
        self._resolve()
        config = self._engine_config()
        if not fits:  # an evaluation updates nothing
            config = settings.without_optimizer(config)
        if fits:
            check_callbacks(self.tree, trainer, self.handles_gradient_accumulation, self._failure)
            self._sync_layers(module)
        hook_norms(self.tree, module)
        self.model = self.precision_plugin.convert_module(module)
        shard_early(module, config, self.root_device, self.remote_device, trains=fits)
        if fits or not self._ended_with(module):
            self._ended = None  # no sooner: shard_early ends the optimizers that it made
        with setting_up(module):
            if fits:
                self.setup_optimizers(trainer)
            else:
                self._start(config, [], [])
            self._broadcast_buffers()
        self.model = self.engine
        self.setup_precision_plugin()
        self.barrier()

    def _ended_with(self, module: torch.nn.Module) -> bool:
        """True if the last run of this strategy trained a module, whose optimizers exist still."""
        ended = self._ended
        return ended is not None and not ended.released and ended.engine.module is module

    def setup_optimizers(self, trainer: Any) -> None:
        """Calls `configure_optimizers`, and makes what it returns run on shards. Collective."""
        module, config = self._module, self._engine_config()
        given: list[Any] = []
        schedules: list[Any] = []
        if "optimizer" in config:
            self.tree.get(INFO)(
                "You have specified an optimizer and/or scheduler within the config: "
                "`configure_optimizers` is not called."
            )
        else:
            with agreed(module):
                given, schedules = self.tree.get(MAKE_OPTIMIZERS)(module)
            given = [each for each in given if not isinstance(each, self.tree.get(EMPTY_OPTIMIZER))]
        if len(given) > 1:
            settings.check_several(config, self._failure)
        self._start(config, given, [each.scheduler for each in schedules])
        session = self._running
        if session.scheduler is not None:
            schedules = [self.tree.get(SCHEDULER_CONFIG)(session.scheduler, interval="step")]
        self.optimizers = session.optimizers or [self.tree.get(EMPTY_OPTIMIZER)()]
        self.lr_scheduler_configs = schedules
        own.Toggle(session.optimizers).put_on(module)

    def _start(self, config: dict[str, Any], optimizers: Any, schedulers: Any) -> None:
        counts = self.handles_gradient_accumulation
        for each in optimizers:
            if isinstance(each, torch.optim.LBFGS):
                raise self._failure(
                    "Meron and the LBFGS optimizer are not compatible: it is not elementwise."
                )
        if counts and len(optimizers) > 1:
            raise self._failure(
                "gradient_accumulation='engine' takes a single optimizer. Leave it at "
                "'lightning' for several."
            )
        self.session = Session(
            self.lightning_module,
            config,
            self.root_device,
            optimizers,
            schedulers,
            counts=counts,
        )

    def _sync_layers(self, module: torch.nn.Module) -> None:
        if not self._layer_sync:
            return
        if own.sharded(module):
            raise self._failure(
                "sync_batchnorm replaces modules, and these are sharded already. Call "
                "torch.nn.SyncBatchNorm.convert_sync_batchnorm in configure_model."
            )
        self._layer_sync.apply(module)

    def _engine_config(self) -> dict[str, Any]:
        """The config of the engine: the caller's, with what the Trainer knows."""
        config: dict[str, Any] = self._config_with(self.precision_plugin.precision)
        trainer = getattr(self.lightning_module, "_trainer", None)
        if trainer is None:
            return config
        counts = self.handles_gradient_accumulation
        settings.add_trainer(config, trainer, counts, self._failure)
        check_config(config)
        return config

    def _resolve(self, loader: Any = None) -> None:
        """Adds to `config` what the Trainer decides: for readers only.

        Args:
            loader: of training. Lightning makes it after the setup; its batch size is 1 until then.
        """
        trainer = getattr(self.lightning_module, "_trainer", None)
        if trainer is None:
            return
        more = {
            "gradient_accumulation_steps": trainer.accumulate_grad_batches,
            "gradient_clipping": trainer.gradient_clip_val or 0.0,
            "train_micro_batch_size_per_gpu": settings.batch_size_of(loader),
        }
        self._resolve_config(self.precision_plugin.precision, more)
