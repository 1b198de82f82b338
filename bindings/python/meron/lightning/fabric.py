# SPDX-License-Identifier: Apache-2.0
"""The strategy of Fabric, one class for each tree of Lightning."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.constants import default_pg_timeout

from meron.lightning import checkpoints, environment, settings, unsharded
from meron.lightning import optimizers as own
from meron.lightning.early import check_config, setting_up, shard_early
from meron.lightning.fabric_checkpoints import FabricCheckpoints
from meron.lightning.precision import check_precision, fabric_precision
from meron.lightning.session import Session
from meron.lightning.shared import Shared
from meron.lightning.trees import Tree, tree
from meron.zero import Engine, full_state_dict
from meron.zero.owner import engine_of

if TYPE_CHECKING:  # the class of the tree, which comes after this one
    LightningBase: Any = object
else:
    LightningBase = object


@functools.cache
def fabric_strategy(name: str) -> Any:
    """The class MeronFabricStrategy of a tree, "lightning" or "pytorch_lightning".

    Raises ImportError: the tree is not installed, or too old.
    """
    found = tree(name)
    bases = (found.get("fabric.strategies.DDPStrategy"), found.get(SHARDED))
    return type(
        "MeronFabricStrategy",
        (MeronFabricStrategy, *bases),
        {"__doc__": MeronFabricStrategy.__doc__, "__module__": __name__, "tree": found},
    )


SHARDED = "fabric.strategies.strategy._Sharded"
SYNC_CONTROL = "fabric.strategies.strategy._BackwardSyncControl"


def no_sync_control(tree: Tree) -> Any:
    """For Fabric's `no_backward_sync`. It blocks nothing: micro-batches are added to shards, or
    reduced once per step."""

    def no_backward_sync(
        _self: Any, module: torch.nn.Module, enabled: bool = True
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    return type("NoSync", (tree.get(SYNC_CONTROL),), {"no_backward_sync": no_backward_sync})()


class MeronFabricStrategy(FabricCheckpoints, Shared, LightningBase):  # type: ignore[misc]
    """Trains with ZeRO on Meron in a loop of your own.

        fabric = Fabric(strategy="meron_stage_3", accelerator="cpu", devices=2)
        fabric.launch()
        model, optimizer = fabric.setup(model, optimizer)

    The arguments are those of Fabric's DeepSpeedStrategy, in its order and with its defaults,
    and those by keyword are MeronStrategy's. Any number of models and optimizers can be set
    up; a checkpoint holds one model.

    Raises FileNotFoundError: a config's path without a file; ValueError: a config that is none;
    ArgumentError: keys that Meron does not know.
    """

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
        logging_batch_size_per_gpu: int | None = None,
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
        precision: Any = None,
        process_group_backend: str | None = None,
        timeout: timedelta | None = default_pg_timeout,
        exclude_frozen_parameters: bool = False,
        *,
        save_distributed_checkpoint: bool = True,
        reshard_on_load: bool = True,
        leaf_modules: Any = (),
    ) -> None:
        given = {key: value for key, value in locals().items() if key in settings.ARGUMENTS}
        super().__init__(
            accelerator=accelerator,
            parallel_devices=parallel_devices,
            cluster_environment=environment.chosen(self.tree, cluster_environment),
            precision=precision,
            process_group_backend=process_group_backend,
            timeout=timeout,
        )
        self._backward_sync_control = no_sync_control(self.tree)
        self._take_arguments(given, FileNotFoundError, ValueError)
        self.sessions: list[Session] = []
        self.session: Session | None = None  # the last one

    # ---- What Fabric asks of a strategy -----------------------------------------------------

    @property
    def precision(self) -> Any:
        plugin = self._precision
        return fabric_precision(self.tree.name)() if plugin is None else plugin

    @precision.setter
    def precision(self, plugin: Any) -> None:
        """Takes a plugin of any class by its precision."""
        own_class = fabric_precision(self.tree.name)
        if plugin is not None and not isinstance(plugin, own_class):
            plugin = own_class(check_precision(getattr(plugin, "precision", None)))
        self._precision = plugin

    def setup_environment(self) -> None:
        self._check_accelerator()
        super().setup_environment()

    def _setup_distributed(self) -> None:
        self._check_device_indices()
        super()._setup_distributed()
        self._resolve_config(self.precision.precision, {"train_micro_batch_size_per_gpu": 1})

    def module_to_device(self, module: torch.nn.Module) -> None:
        """Moves a module that is not sharded. The engine places the others."""
        if not own.sharded(module):
            super().module_to_device(module)

    def module_init_context(
        self, empty_init: bool | None = None
    ) -> contextlib.AbstractContextManager[Any]:
        """A context in which modules are built; at stage 3 sharded at once, and then collective."""
        if not self.zero_stage_3:
            plain: contextlib.AbstractContextManager[Any]
            plain = super().module_init_context(empty_init=empty_init)
            return plain
        self._check_empty_init(empty_init)
        stack = contextlib.ExitStack()
        stack.enter_context(self.precision.module_init_context())
        stack.enter_context(self.module_sharded_context())
        return stack

    def module_sharded_context(self) -> contextlib.AbstractContextManager[Any]:
        """zero.Init at stage 3."""
        return self._init_context(self._engine_config())

    def _engine_config(self) -> dict[str, Any]:
        config = self._config_with(self.precision.precision)
        if not self._counts:  # steps are the caller's
            config.setdefault("managed_gradient_accumulation", False)
        check_config(config)
        return config

    @property
    def _counts(self) -> bool:
        """True if the config has the engine count micro-batches, as under DeepSpeed."""
        return self.config.get("gradient_accumulation_steps", "auto") not in ("auto", 1)

    def setup_module_and_optimizers(
        self, module: torch.nn.Module, optimizers: list[Any], scheduler: Any = None
    ) -> tuple[Any, ...]:
        """Shards a model, and makes its optimizers run on shards. Collective.

        Returns the engine, the optimizers and, from Lightning 2.6 on, the scheduler. The optimizers
        count rather than the config's, which is made if there are none.
        """
        made = self._set_up(module, list(optimizers), scheduler)
        # Fabric 2.5 has no schedulers, and takes two.
        plain = inspect.signature(super().setup_module_and_optimizers)
        return made if "scheduler" in plain.parameters else made[:2]

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Shards a model to run it. For training see setup_module_and_optimizers. Collective."""
        return self._set_up(module, [], None)[0]

    def _set_up(
        self, module: torch.nn.Module, optimizers: list[Any], scheduler: Any
    ) -> tuple[torch.nn.Module, list[Any], Any]:
        config = self._engine_config()
        shard_early(module, config, self.root_device, self.remote_device)
        schedulers = [scheduler] if scheduler is not None else []
        with setting_up(module):
            session = Session(
                module,
                config,
                self.root_device,
                optimizers,
                schedulers,
                counts=self._counts,
                divided=False,
            )
        self.sessions.append(session)
        self.session = session
        self._broadcast_buffers()
        return session.engine, session.optimizers, session.scheduler or scheduler

    def setup_optimizer(self, optimizer: Any) -> Any:
        """Optimizers are set up with their model. NotImplementedError."""
        raise NotImplementedError(
            f"The `{type(self).__name__}` requires the model and its optimizers to be set up "
            "together: `model, optimizer = fabric.setup(model, optimizer)`."
        )

    def backward(self, tensor: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        """The backward of a loss, times fp16's loss scale.

        Raises ValueError for several models with a loss scale and none given.
        """
        session = self._session_of(module)
        self.precision.pre_backward(tensor, module)
        self.precision.backward(session.scaled(tensor), module, *args, **kwargs)
        self.precision.post_backward(tensor, module)

    def _session_of(self, module: Any) -> Session:
        if not self.sessions:
            raise RuntimeError(
                "No models were set up for backward. Did you forget to call `fabric.setup()`?"
            )
        if module is None:
            scaled = [s for s in self.sessions if s.engine.loss_scaler is not None]
            if len(self.sessions) > 1 and scaled:
                raise ValueError(
                    "With several models and fp16, provide the model whose loss it is: "
                    "`fabric.backward(loss, model=model)`."
                )
            return self.sessions[-1]
        engine = module if isinstance(module, Engine) else engine_of(module)
        for session in self.sessions:
            if session.engine is engine:
                return session
        raise ValueError("this model was not set up: call `fabric.setup(model, optimizer)`.")

    def optimizer_step(self, optimizer: Any, **kwargs: Any) -> Any:
        """Runs a closure if there is one; then all ranks step. Collective."""
        closure = kwargs.get("closure")
        result = closure() if closure is not None else None
        for session in self.sessions:
            chosen = session.optimizer_of(optimizer)
            if chosen is not None:
                session.step(chosen)
                return result
        raise RuntimeError("this optimizer was not set up: call `fabric.setup(model, optimizer)`.")

    def clip_gradients_norm(
        self,
        module: torch.nn.Module,
        optimizer: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = True,
    ) -> torch.Tensor:
        """Scales gradients to at most a norm over all ranks, and returns it. Collective."""
        plain = own.bare(optimizer)
        return own.clip_norm(plain, float(max_norm), float(norm_type), error_if_nonfinite)

    def clip_gradients_value(
        self, module: torch.nn.Module, optimizer: Any, clip_val: float
    ) -> None:
        """Clamps gradients to [-clip_val, clip_val]. Collective."""
        own.clip_value(own.bare(optimizer), float(clip_val))

    def get_module_state_dict(self, module: torch.nn.Module) -> dict[str, Any]:
        """Unsharded tensors, on every rank; f32 ones for a single file. Collective."""
        if self.save_distributed_checkpoint:
            return full_state_dict(module)
        return checkpoints.read_values(checkpoints.full_model_state(module), keep=True)

    def get_optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        """This rank's shard of an optimizer's states; save_checkpoint saves those of all ranks. For
        a single file, unsharded states. Collective then."""
        plain = own.bare(optimizer)
        if self.save_distributed_checkpoint:
            return dict(plain.state_dict())
        return unsharded.full_states(plain)

    def load_module_state_dict(
        self, module: torch.nn.Module, state_dict: Any, strict: bool = True
    ) -> None:
        """Loads unsharded tensors, the same on all ranks. Collective."""
        module.load_state_dict(state_dict, strict=strict)

    def teardown(self) -> None:
        """Frees the engines. Collective."""
        for session in self.sessions:
            session.close()
        self.sessions, self.session = [], None
        super().teardown()

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Adds the eight names that begin with "meron"."""
        for alias, (text, arguments) in settings.NAMES.items():
            if alias not in strategy_registry:
                strategy_registry.register(alias, cls, description=text, **arguments)
