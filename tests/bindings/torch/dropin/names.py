# SPDX-License-Identifier: Apache-2.0
"""Checks the names for programs that import deepspeed, with the drop-in's folder on PYTHONPATH."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import tempfile
from pathlib import Path

import torch
from refusals import check_fails

import meron

# Module, and the names that transformers, accelerate, TRL, PEFT, Lightning, OpenRLHF and ms-swift
# read in it.
WANTED = {
    "": "initialize init_distributed DeepSpeedEngine add_config_arguments comm zero utils ops "
    "runtime checkpointing accelerator OnDevice tp_model_init init_inference __version__",
    "accelerator": "get_accelerator",
    "checkpoint.utils": "clone_tensors_for_torch_save",
    "comm": "is_initialized init_distributed get_rank get_world_size barrier all_gather "
    "all_gather_into_tensor all_gather_object reduce reduce_scatter gather scatter send recv "
    "all_to_all_single broadcast_object_list new_group get_global_rank get_backend "
    "destroy_process_group broadcast all_reduce",
    "elasticity": "compute_elastic_config",
    "git_version_info": "version git_hash git_branch",
    "launcher.runner": "DEEPSPEED_ENVIRONMENT_NAME",
    "module_inject.layers": "GatherReplacedLayerParams",
    "ops.adagrad": "DeepSpeedCPUAdagrad",
    "ops.adam": "DeepSpeedCPUAdam FusedAdam",
    "ops.lion": "DeepSpeedCPULion FusedLion",
    "ops.op_builder": "AsyncIOBuilder CPUAdamBuilder FusedAdamBuilder UtilsBuilder",
    "runtime.base_optimizer": "DeepSpeedOptimizer",
    "ops.adam.cpu_adam": "DeepSpeedCPUAdam",
    "runtime.precision_config": "BFLOAT16 FP16 get_float16_config get_bfloat16_config",
    "runtime.zero.config": "ZeroStageEnum",
    "runtime.config": "TRAIN_BATCH_SIZE GRADIENT_ACCUMULATION_STEPS ADAM_OPTIMIZER",
    "runtime.engine": "DeepSpeedEngine",
    "runtime.lr_schedules": "VALID_LR_SCHEDULES WarmupLR WarmupDecayLR",
    "runtime.sequence_parallel.ulysses_sp": "UlyssesSPAttentionHF UlyssesSPDataLoaderAdapter",
    "runtime.utils": "see_memory_usage move_to_device",
    "runtime.zero": "Init GatheredParameters",
    "runtime.zero.offload_config": "OffloadDeviceEnum OffloadStateTypeEnum",
    "runtime.zero.partition_parameters": "ZeroParamStatus GatheredParameters Init "
    "zero_wrapper_for_fp_tensor_constructor _orig_torch_arange get_accelerator",
    "runtime.zero.stage3": "estimate_zero3_model_states_mem_needs_all_live",
    "utils": "logger log_dist safe_get_full_grad safe_get_full_fp32_param set_z3_leaf_modules "
    "groups OnDevice RepeatingLoader",
    "utils.groups": "_get_sequence_parallel_group _get_sequence_parallel_world_size",
    "utils.logging": "logger log_dist set_log_level_from_string",
    "utils.zero_to_fp32": "get_fp32_state_dict_from_zero_checkpoint get_model_state_file "
    "get_optim_files",
    "zero": "Init GatheredParameters register_external_parameter",
}


def check_gates() -> None:
    """In the order in which libraries look: before anything imports deepspeed."""
    spec = importlib.util.find_spec("deepspeed")
    assert spec is not None and spec.origin is not None and "dropin" in spec.origin
    assert importlib.metadata.version("deepspeed") == "0.19.8+meron"
    assert importlib.metadata.metadata("deepspeed")["Name"] == "deepspeed"
    if importlib.util.find_spec("packaging") is not None:
        from packaging.version import Version

        assert Version("0.19.8+meron") >= Version("0.18.2")
    if importlib.util.find_spec("transformers") is not None:
        from transformers.integrations.deepspeed import is_deepspeed_available

        assert is_deepspeed_available()
    if importlib.util.find_spec("accelerate") is not None:
        from accelerate.utils import compare_versions, is_deepspeed_available

        assert is_deepspeed_available() and compare_versions("deepspeed", ">=", "0.18.2")


def check_names() -> None:
    import deepspeed
    from deepspeed.runtime.zero import partition_parameters as pp

    assert deepspeed.__version__ == importlib.metadata.version("deepspeed")
    for module, names in WANTED.items():
        found = importlib.import_module(f"deepspeed.{module}" if module else "deepspeed")
        for name in names.split():
            assert hasattr(found, name), f"deepspeed.{module}.{name}"
            exec(f"from {found.__name__} import {name}")
    numbers = (deepspeed.__version_major__, deepspeed.__version_minor__)
    assert numbers == (0, 19) and deepspeed.git_hash == deepspeed.__git_hash__
    assert deepspeed.zero.Init is deepspeed.runtime.zero.Init is pp.Init
    assert issubclass(deepspeed.zero.MiCS_Init, deepspeed.zero.Init)
    assert issubclass(deepspeed.zero.Init, meron.zero.Init)
    for name in ("Init", "MiCS_Init"):
        theirs, ours = (getattr(module.zero, name) for module in (deepspeed, meron))
        assert inspect.signature(theirs) == inspect.signature(ours)
    assert isinstance(deepspeed.DeepSpeedEngine, type)
    assert deepspeed.runtime.engine.DeepSpeedEngine is deepspeed.DeepSpeedEngine
    assert issubclass(deepspeed.DeepSpeedEngine, torch.nn.Module)
    assert importlib.util.find_spec("deepspeed.comm") is not None
    save = inspect.signature(deepspeed.DeepSpeedEngine.save_checkpoint).parameters
    assert "exclude_frozen_parameters" in save
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("deepspeed.nothing")
        raise AssertionError("deepspeed.nothing was imported")
    assert not hasattr(deepspeed, "nothing") and not hasattr(deepspeed.comm, "nothing")


def check_refusals() -> None:
    """Names can be imported and used by isinstance; a call says what to use."""
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.pipe import PipelineModule
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    assert not isinstance(torch.nn.Linear(1, 1), (MoE, PipelineModule))
    check_fails(
        meron.UnsupportedError,
        (lambda: MoE(8), "set_z3_leaf_modules"),
        (lambda: PipelineModule([], 2), "stage 3"),
        (lambda: deepspeed.tp_model_init(model=None), "tensor parallelism"),
        (lambda: deepspeed.init_inference(None), "engine"),
        (lambda: UlyssesSPAttentionHF.register_with_transformers(), "context parallelism"),
    )


def check_meanings() -> None:
    from deepspeed.accelerator import get_accelerator
    from deepspeed.checkpoint.utils import clone_tensors_for_torch_save
    from deepspeed.launcher.runner import DEEPSPEED_ENVIRONMENT_NAME
    from deepspeed.ops.op_builder import AsyncIOBuilder, CPUAdamBuilder
    from deepspeed.runtime.zero import partition_parameters as pp
    from deepspeed.utils import OnDevice, RepeatingLoader

    assert get_accelerator().current_device_name() in ("cpu", "cuda:0")
    assert get_accelerator().memory_allocated() >= 0 and get_accelerator().total_memory() > 0
    assert DEEPSPEED_ENVIRONMENT_NAME == ".deepspeed_env"
    assert AsyncIOBuilder().is_compatible() and CPUAdamBuilder().is_compatible()
    assert AsyncIOBuilder().load().aio_handle is meron.io.AsyncIOHandle
    plain = pp.zero_wrapper_for_fp_tensor_constructor
    assert plain(pp._orig_torch_arange, torch.bfloat16) is torch.arange
    pp.zero_wrapper_for_fp_tensor_constructor = None
    pp.zero_wrapper_for_fp_tensor_constructor = plain
    table = torch.arange(12.0).view(3, 4)
    state = torch.nn.Linear(4, 3).state_dict()
    state["view"], state["tied"] = table[0], table[0]
    cloned = clone_tensors_for_torch_save(state)
    assert type(cloned) is type(state) and list(cloned) == list(state)
    assert cloned["view"].untyped_storage().nbytes() == 16
    assert cloned["view"] is cloned["tied"] and torch.equal(cloned["weight"], state["weight"])
    with OnDevice(dtype=torch.bfloat16, device="meta"):
        layer = torch.nn.Linear(4, 3)
    assert layer.weight.is_meta and layer.weight.dtype is torch.bfloat16
    assert torch.get_default_dtype() is torch.float32
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.runtime.zero.offload_config import OffloadDeviceEnum

    assert OffloadDeviceEnum is meron.zero.OffloadDeviceEnum and ZeroStageEnum.weights == 3
    endless = RepeatingLoader([1, 2])
    assert [next(endless) for _ in range(5)] == [1, 2, 1, 2, 1]


def check_configs() -> None:
    """The config classes, by each of their paths, and the error that callers catch."""
    if importlib.util.find_spec("pydantic") is None:
        return
    from deepspeed.runtime import config as configs
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel
    from deepspeed.runtime.precision_config import (
        DeepSpeedBF16Config,
        DeepSpeedFP16Config,
        get_bfloat16_config,
        get_float16_config,
    )

    old = get_bfloat16_config({"bfloat16": {"enabled": True}})
    assert isinstance(old, DeepSpeedBF16Config) and old.enabled
    assert issubclass(DeepSpeedFP16Config, DeepSpeedConfigModel)
    assert get_float16_config({}).initial_scale_power == 16
    for wrong in ({"zero_optimization": {"stge": 1}}, {"amp": {"enabled": True}}):
        try:
            configs.DeepSpeedConfig(wrong)
        except configs.DeepSpeedConfigError:
            continue
        raise AssertionError(wrong)


def check_files_of_checkpoints() -> None:
    """The functions that Lightning's converter needs accept only folders of DeepSpeed."""
    from deepspeed.utils import zero_to_fp32 as files

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rank in (10, 2, 0):
            for kind in ("optim", "model"):
                (folder / f"zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt").touch()
        found = [Path(file).name.split("_")[3] for file in files.get_optim_files(name)]
        assert found == ["0", "2", "10"] and len(files.get_model_state_files(folder)) == 3
        assert Path(files.get_model_state_file(name, 3)).name.startswith("zero_pp_rank_0_")
        other = meron_folder(folder)
        check_fails(
            FileNotFoundError,
            (lambda: files.get_model_state_file(name, 2), "no file mp_rank_00_model_states.pt"),
            (lambda: files.get_optim_files(folder / "none"), "no directory"),
            (lambda: files.get_checkpoint_files(other, "*_optim_states.pt"), "Meron"),
        )


def meron_folder(folder: Path) -> Path:
    """A folder that has the manifest of a checkpoint."""
    made = folder / "global_step1"
    made.mkdir()
    (made / "meron.json").touch()
    return made


def check_logs_are_local() -> None:
    """One rank of two may log alone: no peer is waited for."""
    from deepspeed.runtime.utils import see_memory_usage
    from deepspeed.utils import log_dist

    os.environ.update(RANK="1", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    try:
        log_dist("alone", ranks=[1])
        see_memory_usage("alone", force=True, ranks=[1])
    finally:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]


def check_comm_alone() -> None:
    """One process without a launcher."""
    import deepspeed

    deepspeed.init_distributed()
    assert torch.distributed.get_world_size() == deepspeed.comm.get_world_size() == 1
    deepspeed.comm.destroy_process_group()
    # Ranks that the caller numbers itself are not taken for one process of their own.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    try:
        deepspeed.init_distributed(rank=0, world_size=1)
        assert torch.distributed.get_world_size() == 1
        deepspeed.comm.destroy_process_group()
        limit = datetime.timedelta(seconds=1)
        try:
            deepspeed.init_distributed(rank=0, world_size=2, timeout=limit)
        except torch.distributed.DistError:
            pass  # the second rank has not arrived
        else:
            raise AssertionError(f"{torch.distributed.get_world_size()} ranks")
    finally:
        del os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]


if __name__ == "__main__":
    check_gates()
    check_names()
    check_refusals()
    check_meanings()
    check_configs()
    check_files_of_checkpoints()
    check_logs_are_local()
    check_comm_alone()
    print("done")
