# SPDX-License-Identifier: Apache-2.0
"""Common parts of the strategies of the Trainer and of Fabric."""

from __future__ import annotations

import contextlib
import copy
import logging
import os
from collections.abc import Mapping
from typing import Any, Callable

import torch.distributed as dist

import meron.zero
from meron.lightning import checkpoints, settings
from meron.lightning.early import check_config
from meron.lightning.session import Session
from meron.lightning.trees import Tree
from meron.torch.checkpoint.agreement import LoadError, together

DOORS = ("pl", "fabric")  # each has its own classes of accelerators


class Shared:
    """A mixin before Lightning's DDPStrategy.

    Attributes:
        config: the DeepSpeed config that the arguments are, or that the caller gave: a copy. A
            setup adds what the run decides, such as the dtypes, as DeepSpeedStrategy does.
    """

    tree: Tree  # of the class
    config: dict[str, Any]
    session: Session | None
    accelerator: Any
    parallel_devices: Any
    root_device: Any
    world_size: int
    _saved: checkpoints.Saved | None = None
    _added: dict[str, Any]  # to `config`, by the last setup

    def _take_arguments(self, given: Mapping[str, Any], missing: Any, absent: Any) -> None:
        """Keeps the arguments of a constructor; `missing` and `absent` make exceptions."""
        logging.getLogger("meron").setLevel(given["logging_level"])
        config = settings.load_config(given["config"], missing, absent)
        self.config = settings.default_config(given) if config is None else config
        self._added = {}
        settings.add_leaves(self.config, given["leaf_modules"])
        self._scale = {key: given[key] for key in settings.SCALE}
        for each in (self.config, {"fp16": {"enabled": True, **self._scale}}):
            check_config(each)
        self.remote_device = given["remote_device"]
        self.load_full_weights = bool(given["load_full_weights"])
        self.exclude_frozen_parameters = bool(given["exclude_frozen_parameters"])
        self.save_distributed_checkpoint = bool(given["save_distributed_checkpoint"])
        self.reshard_on_load = bool(given["reshard_on_load"])

    @property
    def zero_stage_3(self) -> bool:
        """True if the config shards params."""
        return settings.stage_of(self.config) == 3

    @property
    def engine(self) -> Any:
        """meron.zero's engine, between setup and teardown. RuntimeError otherwise."""
        return self._running.engine

    @property
    def _running(self) -> Session:
        """The session, between setup and teardown. RuntimeError otherwise."""
        if self.session is None:
            raise RuntimeError(
                "there is no engine: the strategy makes one when it sets a model up, and frees it "
                "at teardown"
            )
        return self.session

    def _config_with(self, precision: str) -> dict[str, Any]:
        """The caller's config with the dtypes of a precision."""
        config = copy.deepcopy(settings.without(self.config, self._added))
        settings.add_precision(config, precision, self._scale)
        return config

    def _resolve_config(self, precision: str, more: Mapping[str, Any]) -> None:
        """Adds the dtypes and `more` to `config`, for those who read it. Keys of the caller's stay,
        and what an earlier setup added is replaced."""
        given = settings.without(self.config, self._added)
        resolved = {**more, **self._config_with(precision)}
        self._added = {key: resolved[key] for key in resolved if key not in given}
        self.config.clear()
        self.config.update(given, **copy.deepcopy(self._added))

    def _init_context(self, config: Mapping[str, Any]) -> contextlib.AbstractContextManager[Any]:
        """zero.Init at stage 3, else nothing."""
        if not self.zero_stage_3:
            return contextlib.nullcontext()
        return meron.zero.Init(
            remote_device=self.remote_device,
            config_dict_or_path=settings.without_optimizer(config),
            device=self.root_device,
        )

    def _accelerators(self, kind: str) -> tuple[type, ...]:
        """The classes of an accelerator, "CPUAccelerator" or "CUDAAccelerator"."""
        return tuple(self.tree.get(f"{door}.accelerators.{kind}") for door in DOORS)

    def _check_accelerator(self) -> None:
        """RuntimeError for a device that Meron does not compute on."""
        known = self._accelerators("CPUAccelerator") + self._accelerators("CUDAAccelerator")
        if not isinstance(self.accelerator, known):
            raise RuntimeError(
                "The Meron strategy runs on CPUs and CUDA GPUs, but "
                f"`{type(self.accelerator).__name__}` is used. Pass accelerator='cpu' or 'gpu'."
            )

    def _check_device_indices(self) -> None:
        """RuntimeError for GPUs that are not the ranks of their processes."""
        devices = [device.index for device in self.parallel_devices or ()]
        is_cuda = isinstance(self.accelerator, self._accelerators("CUDAAccelerator"))
        if is_cuda and devices != list(range(len(devices))):
            raise RuntimeError(
                f"The selected device indices {devices} don't match the local rank values of "
                "processes. Set CUDA_VISIBLE_DEVICES, and pass the number of devices."
            )

    def _check_empty_init(self, empty_init: bool | None) -> None:
        if empty_init is False:
            raise NotImplementedError(
                f"`{empty_init=}` is not a valid choice with `{type(self).__name__}` when ZeRO "
                "stage 3 is enabled: modules are sharded when they are built."
            )

    def _broadcast_buffers(self) -> None:
        """Gives all ranks rank 0's buffers, such as running statistics. Collective."""
        if self.session is None or not dist.is_initialized() or dist.get_world_size() == 1:
            return
        for buffer in self.session.engine.module.buffers():
            if not buffer.is_meta and buffer.numel():
                dist.broadcast(buffer.detach(), 0)

    # ---- Checkpoints ----------------------------------------------------------------------------

    def _together(self) -> contextlib.AbstractContextManager[None]:
        """Around a block without collectives: if it raises on any rank, it raises on all."""
        if self.session is None:
            return contextlib.nullcontext()
        return together(self.session.engine.sharding.context)

    def _check_world(self, saved: checkpoints.Saved) -> None:
        """LoadError for a checkpoint of other ranks, if reshard_on_load is False. Local."""
        world = self.world_size
        if not self.reshard_on_load and saved.world != world:
            raise LoadError(
                f"{saved.path} was saved by {saved.world} ranks, this run has {world}, and "
                "reshard_on_load is False",
                subject="reshard_on_load",
                advice=f"Start {saved.world} ranks, or leave reshard_on_load at True.",
            )

    def _load_file(self, load: Callable[..., Any], path: Any, weights_only: bool | None) -> Any:
        """A checkpoint file, by Lightning's own function, whose arguments are its version's."""
        if not os.path.exists(path) and "://" not in str(path):
            checkpoints.check_directory(path)
        try:
            return load(path, weights_only=weights_only)
        except TypeError as error:
            if "weights_only" not in str(error):
                raise
            return load(path)
