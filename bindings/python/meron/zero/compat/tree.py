# SPDX-License-Identifier: Apache-2.0
"""The modules of DeepSpeed by dotted name, and how they get into `sys.modules`."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

import meron.zero
from meron import checkpointing, errors
from meron.zero import (
    estimate,
    leaf,
    monitors,
    ops,
    safe,
    schedulers,
    utils,
    zero_to_fp32,
    zero_to_torch,
)
from meron.zero.compat import (
    accelerator,
    builders,
    checkpoint_names,
    config_values,
    constants,
    deepspeed_files,
    discovery,
    distributed,
    elasticity,
    experts,
    groups,
    helpers,
    hostfiles,
    init,
    logs,
    loss_scaler,
    mpu,
    optimizer_kinds,
    partitions,
    precision_config,
    refused,
    topology,
    universal,
    versions,
    zero_utils,
)
from meron.zero.config import enums
from meron.zero.dropin import launcher, report, version
from meron.zero.dropin.folders import folder
from meron.zero.engine import Engine
from meron.zero.zero_optimizer import DeepSpeedOptimizer

Content = dict[str, Any]

MONITORS = ("MonitorMaster", "TensorBoardMonitor", "WandbMonitor", "CometMonitor", "Monitor")


def public(module: ModuleType) -> Content:
    """The names that a module offers: `__all__`, or else all but modules."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [
            name
            for name, value in vars(module).items()
            if not name.startswith("__") and not isinstance(value, ModuleType)
        ]
    return {name: getattr(module, name) for name in names}


def picked(module: ModuleType, *names: str) -> Content:
    return {name: getattr(module, name) for name in names}


# ---- What modules hold --------------------------------------------------------------------------


def init_part() -> Content:
    return picked(init, "Init", "MiCS_Init")


def partition_parameters() -> Content:
    """zero.Init changes no constructor of tensors, so code that exempts one finds nothing to do."""
    return {
        **init_part(),
        "zero_wrapper_for_fp_tensor_constructor": keep_constructor,
        "_orig_torch_arange": torch.arange,
        "_orig_torch_empty": torch.empty,
        "_orig_torch_zeros": torch.zeros,
        "_orig_torch_ones": torch.ones,
        "_orig_torch_full": torch.full,
        "get_accelerator": accelerator.get_accelerator,
        "is_zero_param": zero_utils.is_zero_param,
    }


def keep_constructor(
    fn: Callable[..., torch.Tensor], *_dtype: Any, **_options: Any
) -> Callable[..., torch.Tensor]:
    """The constructor itself: its dtype is the caller's."""
    return fn


def logging_part() -> Content:
    return {**public(utils), **public(logs), **public(leaf), **public(safe)}


def git_part() -> Content:
    return {
        "version": version.VERSION,
        "git_hash": version.GIT,
        "git_branch": version.GIT,
        "installed_ops": dict.fromkeys(builders.ALL_OPS, True),
        "accelerator_name": "",  # found at run time
    }


def checkpoint_part() -> Content:
    """Checkpoints are universal as they are, so params need no mark for it."""
    return {
        **checkpoint_names.constants(),
        **picked(checkpoint_names, *checkpoint_names.FILE_NAMES),
        "enable_universal_checkpoint": helpers.ignore_params,
    }


def communication_part() -> Content:
    return {**public(distributed), **public(discovery)}


def engine_part() -> Content:
    return {
        "DeepSpeedEngine": Engine,
        "DeepSpeedOptimizerCallable": Any,
        "DeepSpeedSchedulerCallable": Any,
        "MEMORY_OPT_ALLREDUCE_SIZE": 500_000_000,
    }


def optimizer_part() -> Content:
    return {
        "DeepSpeedOptimizer": DeepSpeedOptimizer,
        **picked(optimizer_kinds, "ZeROOptimizer"),
    }


# By dotted name below deepspeed: what the module holds, besides the names of refused.NAMES.
MODULES: dict[str, Callable[[], Content]] = {
    "accelerator": lambda: public(accelerator),
    "accelerator.real_accelerator": lambda: public(accelerator),
    "checkpoint": checkpoint_part,
    "checkpoint.constants": checkpoint_names.constants,
    "checkpoint.ds_to_universal": lambda: public(universal),
    "checkpoint.universal_checkpoint": lambda: {
        "enable_universal_checkpoint": helpers.ignore_params
    },
    "checkpoint.utils": lambda: {
        **picked(helpers, "clone_tensors_for_torch_save"),
        **picked(checkpoint_names, *checkpoint_names.FILE_NAMES),
    },
    "checkpointing": lambda: public(checkpointing),
    "comm": communication_part,
    "comm.comm": communication_part,
    "comm.reduce_op": lambda: picked(distributed, "ReduceOp"),
    "compression.helper": lambda: picked(helpers, "recursive_getattr", "recursive_setattr"),
    "constants": lambda: {
        **picked(constants, "TORCH_DISTRIBUTED_DEFAULT_PORT"),
        **picked(constants, "CROSS_RANK", "CROSS_SIZE", "LOCAL_RANK"),
    },
    "elasticity": lambda: public(elasticity),
    "elasticity.config": lambda: public(elasticity),
    "elasticity.elasticity": lambda: public(elasticity),
    "git_version_info": git_part,
    "launcher": dict,
    "launcher.runner": lambda: {
        **picked(launcher, "main"),
        **public(hostfiles),
        "parse_args": lambda args=None: launcher.make_parser().parse_args(args),
    },
    "moe.utils": lambda: public(experts),
    "env_report": lambda: {"main": report.main, "cli_main": report.main},
    "monitor": dict,
    "monitor.config": dict,
    "monitor.monitor": lambda: {**picked(monitors, *MONITORS), "csvMonitor": monitors.CsvMonitor},
    "monitor.comet": lambda: picked(monitors, "CometMonitor"),
    "monitor.csv_monitor": lambda: {"csvMonitor": monitors.CsvMonitor},
    "monitor.tensorboard": lambda: picked(monitors, "TensorBoardMonitor"),
    "monitor.wandb": lambda: picked(monitors, "WandbMonitor"),
    "ops": lambda: {"__compatible_ops__": builders.compatible_ops()},
    "ops.adagrad": lambda: picked(ops, "DeepSpeedCPUAdagrad"),
    "ops.adagrad.cpu_adagrad": lambda: picked(ops, "DeepSpeedCPUAdagrad"),
    "ops.adam": lambda: picked(ops, "DeepSpeedCPUAdam", "FusedAdam"),
    "ops.adam.cpu_adam": lambda: picked(ops, "DeepSpeedCPUAdam"),
    "ops.adam.fused_adam": lambda: picked(ops, "FusedAdam"),
    "ops.lion": lambda: picked(ops, "DeepSpeedCPULion", "FusedLion"),
    "ops.lion.cpu_lion": lambda: picked(ops, "DeepSpeedCPULion"),
    "ops.lion.fused_lion": lambda: picked(ops, "FusedLion"),
    "ops.aio": lambda: picked(builders, "AsyncIOBuilder"),
    "ops.op_builder": lambda: public(builders),
    "ops.op_builder.async_io": lambda: picked(builders, "AsyncIOBuilder"),
    "ops.op_builder.builder": lambda: picked(builders, "CUDAOpBuilder", "OpBuilder"),
    "ops.op_builder.cpu_adam": lambda: picked(builders, "CPUAdamBuilder"),
    "ops.op_builder.fused_adam": lambda: picked(builders, "FusedAdamBuilder"),
    "runtime": optimizer_part,
    "runtime.activation_checkpointing": dict,
    "runtime.activation_checkpointing.checkpointing": lambda: public(checkpointing),
    "runtime.base_optimizer": optimizer_part,
    "runtime.bf16_optimizer": lambda: picked(optimizer_kinds, "BF16_Optimizer"),
    "runtime.compiler": lambda: picked(helpers, "is_compile_supported"),
    "runtime.config": lambda: {**public(constants), **config_values.readers()},
    "runtime.config_utils": lambda: picked(
        config_values, "get_dict_param", "get_list_param", "get_scalar_param"
    ),
    "runtime.constants": lambda: public(constants),
    "runtime.dataloader": lambda: {
        **picked(helpers, "RepeatingLoader"),
        "DeepSpeedDataLoader": refused.refusing(
            "runtime.dataloader", "DeepSpeedDataLoader", refused.LOADER
        ),
    },
    "runtime.engine": engine_part,
    "runtime.fp16": dict,
    "runtime.fp16.fused_optimizer": lambda: picked(optimizer_kinds, "FP16_Optimizer"),
    "runtime.fp16.loss_scaler": lambda: public(loss_scaler),
    "runtime.lr_schedules": lambda: public(schedulers),
    "runtime.pipe": lambda: picked(topology, "ProcessTopology"),
    "runtime.pipe.engine": lambda: {"DeepSpeedEngine": Engine},
    "runtime.pipe.topology": lambda: public(topology),
    "runtime.precision_config": lambda: public(precision_config),
    "runtime.utils": lambda: {
        **picked(helpers, *helpers.RUNTIME_UTILS),
        **picked(partitions, *partitions.NAMES),
    },
    "runtime.zero": init_part,
    "runtime.zero.config": lambda: picked(enums, "ZeroStageEnum"),
    "runtime.zero.offload_config": lambda: picked(
        enums, "OffloadDeviceEnum", "OffloadStateTypeEnum"
    ),
    "runtime.zero.partition_parameters": partition_parameters,
    "runtime.zero.mics": lambda: picked(init, "MiCS_Init"),
    "runtime.zero.stage3": lambda: {
        **public(estimate),
        **picked(optimizer_kinds, "DeepSpeedZeroOptimizer_Stage3"),
    },
    "runtime.zero.stage_1_and_2": lambda: {
        **public(estimate),
        **picked(optimizer_kinds, "DeepSpeedZeroOptimizer"),
    },
    "runtime.zero.leaf_module_config": lambda: {
        "DEFAULT_LEAF_MODULE_CLASSES": list(meron.zero.config.KNOWN_MIXTURES),
        "DEFAULT_LEAF_MODULE_NAMES": [],
        "DEFAULT_LEAF_MODULE_NAME_SUFFIXES": [],
    },
    "runtime.zero.tiling": dict,
    "runtime.zero.utils": lambda: public(zero_utils),
    "utils": lambda: {
        **logging_part(),
        **picked(helpers, "OnDevice", "RepeatingLoader", "instrument_w_nvtx"),
        **picked(helpers, "recursive_getattr", "recursive_setattr"),
    },
    "utils.bwc": lambda: public(mpu),
    "utils.init_on_device": lambda: picked(helpers, "OnDevice"),
    "utils.groups": lambda: public(groups),
    "utils.logging": lambda: public(logs),
    "utils.numa": lambda: picked(helpers, "parse_range_list"),
    "utils.nvtx": lambda: picked(helpers, "instrument_w_nvtx"),
    "utils.tensor_fragment": lambda: public(safe),
    "utils.torch": lambda: public(versions),
    "utils.z3_leaf_module": lambda: public(leaf),
    "utils.zero_to_fp32": lambda: {
        **public(zero_to_fp32),
        **public(zero_to_torch),
        "__file__": zero_to_fp32.__file__,
        **public(deepspeed_files),
    },
    "utils.zero_to_torch": lambda: {
        **public(zero_to_torch),
        "main": zero_to_torch.main,
        "__file__": zero_to_torch.__file__,
    },
    "zero": init_part,
}


def module_names() -> list[str]:
    """All modules, also those that Meron does not implement, parents first. (The root is compat's
    own.)"""
    return sorted({*MODULES, *refused.NAMES} - {""})


def content_of(dotted: str) -> Content:
    """The names of a module, with the refused ones."""
    refusals = refused.names_of(dotted) if dotted in refused.NAMES else {}
    return {**refusals, **MODULES.get(dotted, dict)()}


# Modules that `python -m` runs: their main.
RUNNABLE: dict[str, Callable[[], Any]] = {
    "checkpoint.ds_to_universal": universal.main,
    "env_report": report.main,
    "launcher.runner": launcher.main,
    "utils.zero_to_fp32": zero_to_fp32.main,
    "utils.zero_to_torch": zero_to_torch.main,
}


class MainLoader:
    """The loader of a module of the tree that `python -m` runs."""

    def __init__(self, main: Callable[[], Any]) -> None:
        self.main = main

    def get_code(self, _name: str) -> Any:
        """Code that calls the main function of the module."""
        source = f"from {self.main.__module__} import main\nmain()"
        return compile(source, inspect.getfile(self.main), "exec")


# Modules whose further names are those of another module, whenever they are asked for.
REST: dict[str, ModuleType] = {
    "monitor.config": meron.zero.config,
    "runtime.config": meron.zero.config,
    "runtime.config_utils": meron.zero.config,
    "runtime.precision_config": meron.zero.config,
    "runtime.zero.config": meron.zero.config,
    "runtime.zero.leaf_module_config": meron.zero.config,
    "runtime.zero.offload_config": meron.zero.config,
    "runtime.zero": meron.zero,
    "runtime.zero.partition_parameters": meron.zero,
    "runtime.zero.tiling": meron.zero,
    "zero": meron.zero,
}


class Part(ModuleType):
    """A module of the tree. Names that it lacks are those of another module, if it has one."""

    _rest: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self._rest is None:
            raise AttributeError(
                f"{self.__name__} of Meron {meron.__version__} has no {name!r} (it has the names "
                "that docs/torch_deepspeed.md lists)"
            )
        return getattr(self._rest, name)

    def __dir__(self) -> list[str]:
        rest = dir(self._rest) if self._rest is not None else []
        return sorted({*super().__dir__(), *rest})


parts: dict[str, ModuleType] = {}


def fill(root: ModuleType) -> None:
    """Makes all modules and gives `root` the ones below it as attributes.

    A function keeps its name in a module that has a part of the same name, as z3_leaf_module in
    deepspeed.utils. The part is found in sys.modules.
    """
    for dotted in module_names():
        part = Part(f"deepspeed.{dotted}", f"deepspeed.{dotted} over meron.zero.")
        vars(part).update(content_of(dotted))
        part.__path__ = []
        part.__package__ = part.__name__
        main = RUNNABLE.get(dotted)
        loader: Any = MainLoader(main) if main is not None else None
        part.__spec__ = importlib.machinery.ModuleSpec(
            part.__name__,
            loader,
            origin=inspect.getfile(main) if main is not None else None,
            is_package=main is None,
        )
        part._rest = REST.get(dotted)
        if part._rest is meron.zero:
            vars(part)["__all__"] = [*meron.zero.__all__]
        parts[dotted] = part
        above, _, name = dotted.rpartition(".")
        parent = parts[above] if above else root
        if not callable(vars(parent).get(name)):
            setattr(parent, name, part)


def put(name: str, root: ModuleType) -> None:
    """Lets `import NAME` and imports of its parts mean the tree."""
    sys.modules[name] = root
    for dotted, part in parts.items():
        sys.modules[f"{name}.{dotted}"] = part


def real_version(name: str = "deepspeed") -> str | None:
    """The version of a package of that name that is not Meron's; None if there is none.

    A source tree on the path has no metadata of a distribution: its version is "(a source tree)".
    """
    for distribution in importlib.metadata.distributions(name=name):
        if not distribution.version.endswith(version.SUFFIX):
            return distribution.version
    for place in sys.path:
        found = importlib.machinery.PathFinder.find_spec(name, [place])
        origin = found.origin if found is not None else None
        if origin is not None and not origin.startswith(folder()):
            return "(a source tree)"
    return None


def install(name: str = "deepspeed", replace: bool = False) -> None:
    """Lets `import deepspeed` in this process mean meron.zero.compat, before it is imported.

    Args:
        name: the name to import by.
        replace: takes the place of an installed DeepSpeed too.

    Raises StateError if DeepSpeed is imported already, or if it is installed and `replace` is not
    given: one program must not mix two engines.
    """
    root = sys.modules["meron.zero.compat"]
    found = sys.modules.get(name)
    if found is root or getattr(found, "__version__", None) == version.VERSION:
        return
    if found is not None:
        raise errors.StateError(
            f"{name} is imported already, from {getattr(found, '__file__', 'an unknown place')}",
            operation="install",
            advice="Call meron.zero.compat.install() before anything imports it.",
        )
    real = real_version(name)
    if real is not None and not replace:
        raise errors.StateError(
            f"{name} {real} is installed in this environment",
            operation="install",
            advice="Call meron.zero.compat.install(replace=True) to use Meron in its place in this "
            "process, or `import meron.zero.compat as deepspeed`.",
        )
    put(name, root)
