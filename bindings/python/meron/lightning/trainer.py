# SPDX-License-Identifier: Apache-2.0
"""MeronStrategy: the strategy of a Trainer, one class for each tree of Lightning."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.constants import default_pg_timeout

from meron.lightning import environment, settings
from meron.lightning import optimizers as own
from meron.lightning.guests import check_compiled
from meron.lightning.precision import check_precision, trainer_precision
from meron.lightning.session import Session
from meron.lightning.shared import Shared
from meron.lightning.trainer_checkpoints import TrainerCheckpoints
from meron.lightning.trainer_setup import EMPTY_OPTIMIZER, TrainerSetup
from meron.lightning.trees import tree

if TYPE_CHECKING:  # the class of the tree, which comes after this one
    LightningBase: Any = object
else:
    LightningBase = object

ACCUMULATIONS = ("lightning", "engine")


@functools.cache
def trainer_strategy(name: str) -> Any:
    """The class MeronStrategy of a tree, "lightning" or "pytorch_lightning".

    Raises ImportError: the tree is not installed, or too old.
    """
    found = tree(name)
    return type(
        "MeronStrategy",
        (MeronStrategy, found.get("pl.strategies.DDPStrategy")),
        {"__doc__": MeronStrategy.__doc__, "__module__": __name__, "tree": found},
    )


class MeronStrategy(TrainerSetup, TrainerCheckpoints, Shared, LightningBase):  # type: ignore[misc]
    """Trains a LightningModule with ZeRO on Meron: on CPUs, on GPUs, with any optimizers.

        import meron.lightning
        trainer = Trainer(strategy="meron_stage_3", accelerator="cpu", devices=2)

    The arguments are those of Lightning's DeepSpeedStrategy, in its order and with its
    defaults; `docs/lightning.md` has what each does here. Those up to `logging_batch_size_per_gpu`
    and the four of activation checkpointing become a DeepSpeed config; they are without effect
    if `config` is given, as there.

    Args:
        config: a dict, which is not changed, or a JSON file's path. Default is the file that
            MERON_CONFIG_PATH or PL_DEEPSPEED_CONFIG_PATH names.
        save_distributed_checkpoint: False saves one file, as DDP does: rank 0 gathers and writes.
        gradient_accumulation: "lightning": Lightning counts the micro-batches of
            `accumulate_grad_batches`, and a short last window of an epoch is stepped. "engine":
            as under DeepSpeed, a short window continues in the next epoch, and `optimizer_step` is
            called for every micro-batch.
        reshard_on_load: False refuses checkpoints that another number of ranks has saved.
        leaf_modules: classes of modules that are gathered as one, or their names.

    Raises MisconfigurationException: a path without a file, a config that is none;
    ArgumentError: keys that Meron does not know.
    """

    strategy_name = "meron"

    def __init__(
        self,
        accelerator: Any = None,
        zero_optimization: bool = True,
        stage: int = 2,
        remote_device: str | None = None,
        offload_optimizer: bool = False,
        offload_parameters: bool = False,
        offload_params_device: str = "cpu",
        nvme_path: str = "/local_nvme",
        params_buffer_count: int = 5,
        params_buffer_size: int = 100_000_000,
        max_in_cpu: int = 1_000_000_000,
        offload_optimizer_device: str = "cpu",
        optimizer_buffer_count: int = 4,
        block_size: int = 1048576,
        queue_depth: int = 8,
        single_submit: bool = False,
        overlap_events: bool = True,
        thread_count: int = 1,
        pin_memory: bool = False,
        sub_group_size: int = 1_000_000_000_000,
        contiguous_gradients: bool = True,
        overlap_comm: bool = True,
        allgather_partitions: bool = True,
        reduce_scatter: bool = True,
        allgather_bucket_size: int = 200_000_000,
        reduce_bucket_size: int = 200_000_000,
        zero_allow_untested_optimizer: bool = True,
        logging_batch_size_per_gpu: str | int = "auto",
        config: str | dict[str, Any] | None = None,
        logging_level: int = logging.WARN,
        parallel_devices: list[torch.device] | None = None,
        cluster_environment: Any = None,
        loss_scale: float = 0,
        initial_scale_power: int = 16,
        loss_scale_window: int = 1000,
        hysteresis: int = 2,
        min_loss_scale: int = 1,
        partition_activations: bool = False,
        cpu_checkpointing: bool = False,
        contiguous_memory_optimization: bool = False,
        synchronize_checkpoint_boundary: bool = False,
        load_full_weights: bool = False,
        precision_plugin: Any = None,
        process_group_backend: str | None = None,
        timeout: timedelta | None = default_pg_timeout,
        exclude_frozen_parameters: bool = False,
        *,
        save_distributed_checkpoint: bool = True,
        gradient_accumulation: str = "lightning",
        reshard_on_load: bool = True,
        leaf_modules: Any = (),
    ) -> None:
        given = {key: value for key, value in locals().items() if key in settings.ARGUMENTS}
        self._failure = self.tree.get("pl.utilities.exceptions.MisconfigurationException")
        self._fitting = self.tree.get("pl.trainer.states.TrainerFn").FITTING
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=environment.chosen(self.tree, cluster_environment),
            precision_plugin=precision_plugin,
            process_group_backend=process_group_backend,
            timeout=timeout,
        )
        if gradient_accumulation not in ACCUMULATIONS:
            raise self._failure(
                f"gradient_accumulation is {gradient_accumulation!r}: one of {ACCUMULATIONS}"
            )
        self.gradient_accumulation = gradient_accumulation
        self._take_arguments(given, self._failure, self._failure)
        if self.config.pop("gradient_accumulation_steps", "auto") != "auto":
            raise self._failure(
                "Do not set `gradient_accumulation_steps` in the config, as this will be set "
                "with the `accumulate_grad_batches` argument passed via the Lightning Trainer."
            )
        self.session: Session | None = None
        self._ended: Session | None = None  # the last that trained, which a checkpoint is saved of
        self._failed = False

    # ---- What Lightning asks of a strategy --------------------------------------------------

    @property
    def deepspeed_engine(self) -> Any:
        """meron.zero's engine, as `engine`; after a run the engine that it had, to read what it
        counted. RuntimeError before the first setup."""
        if self.session is None and self._ended is not None:
            return self._ended.engine
        return self.engine

    @property
    def handles_gradient_accumulation(self) -> bool:
        return self.gradient_accumulation == "engine"

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True

    @property
    def lightning_restore_optimizer(self) -> bool:
        return False

    @property
    def precision_plugin(self) -> Any:
        plugin = self._precision_plugin
        return trainer_precision(self.tree.name)() if plugin is None else plugin

    @precision_plugin.setter
    def precision_plugin(self, plugin: Any) -> None:
        """Takes a plugin of any class by its precision."""
        own_class = trainer_precision(self.tree.name)
        if plugin is not None and not isinstance(plugin, own_class):
            plugin = own_class(check_precision(getattr(plugin, "precision", None)))
        self._precision_plugin = plugin

    def connect(self, model: Any) -> None:
        check_compiled(model)
        super().connect(model)

    def setup_environment(self) -> None:
        self._check_accelerator()
        super().setup_environment()

    def setup_distributed(self) -> None:
        self._check_device_indices()
        super().setup_distributed()

    @contextlib.contextmanager
    def tensor_init_context(self, empty_init: bool | None = None) -> Iterator[None]:
        """A context in which tensors are made. At stage 3, zero.Init places them."""
        if not self.zero_stage_3:
            with super().tensor_init_context(empty_init=empty_init):
                yield
            return
        self._check_empty_init(empty_init)
        yield

    @contextlib.contextmanager
    def model_sharded_context(self) -> Iterator[None]:
        """At stage 3 modules that are built within are sharded at once. Collective."""
        self._resolve()
        with self._init_context(self._engine_config()):
            yield

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """No effect: stages 2 and 3 add each micro-batch to shards, in f32, rather than keep
        unsharded gradients. Stages 0 and 1 reduce once per step in any case."""
        yield

    # ---- The life of a run ------------------------------------------------------------------

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, within the model's forward; but with manual optimization, whose steps
        may not be within a forward."""
        module = self._module
        if module.automatic_optimization:
            return super().training_step(*args, **kwargs)
        with self.precision_plugin.train_step_context():
            return module.training_step(*args, **kwargs)

    def step(self, optimizer: Any) -> None:
        """Updates the params of an optimizer; none for EMPTY_OPTIMIZER. Collective.

        Raises MisconfigurationException for an optimizer that configure_optimizers did not return.
        """
        session = self._running
        chosen = session.optimizer_of(optimizer)
        if chosen is not None:
            session.step(chosen)
        elif not isinstance(own.bare(optimizer), self.tree.get(EMPTY_OPTIMIZER)):
            raise self._failure(
                f"this {type(own.bare(optimizer)).__name__} is none of those that "
                "configure_optimizers returned: it has no shards to update. Return it there."
            )

    def refuse_skip(self) -> None:
        """MisconfigurationException if a training_step that returned None would leave other ranks
        waiting."""
        if self.world_size > 1:
            raise self._failure(
                "Skipping backward by returning `None` from your `training_step` is not supported "
                "by MeronStrategy on several ranks: the others would wait for this one's "
                "gradients. Return a loss times 0, or use manual optimization."
            )

    def pre_backward(self, closure_loss: torch.Tensor) -> None:
        """Nothing: no wrapper waits for gradients."""

    def post_backward(self, closure_loss: torch.Tensor) -> None:
        """Nothing, as pre_backward."""

    def on_train_start(self) -> None:
        self._resolve(self.lightning_module.trainer.train_dataloader)

    def on_validation_start(self) -> None:
        self._broadcast_buffers()

    def on_test_start(self) -> None:
        self._broadcast_buffers()

    def on_predict_start(self) -> None:
        self._broadcast_buffers()

    def on_exception(self, exception: BaseException) -> None:
        """Marks the run as failed: its teardown then waits for no other rank."""
        self._failed = True

    def teardown(self) -> None:
        """Frees the engine. The module stays sharded, for another run. Collective, but not
        after an exception."""
        self._release()
        self.precision_plugin.teardown()
        if self.accelerator is not None:
            self.accelerator.teardown()
        self.checkpoint_io.teardown()

    def _release(self) -> None:
        session, self.session = self.session, None
        if session is not None and (session.optimizers or self._ended is None):
            self._ended = session
        module = self.lightning_module
        if module is not None:
            own.Toggle.take_off(module)
            self.model = module
        if session is not None:
            session.abandon() if self._failed else session.close()

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Adds the eight names that begin with "meron"."""
        for alias, (text, arguments) in settings.NAMES.items():
            if alias not in strategy_registry:
                strategy_registry.register(alias, cls, description=text, **arguments)
