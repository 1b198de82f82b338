# SPDX-License-Identifier: Apache-2.0
"""Functions in the modules of meron.zero.compat that work without ranks."""

from __future__ import annotations

import importlib
import itertools
import logging
import os
import random
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.zero.compat as deepspeed
from meron.zero.compat import (
    accelerator,
    builders,
    config_values,
    discovery,
    distributed,
    experts,
    groups,
    helpers,
    hostfiles,
    mpu,
    partitions,
    refused,
    tree,
    versions,
    zero_utils,
)
from meron.zero.dropin import launcher
from meron.zero.zero_optimizer import DeepSpeedOptimizer


def module(name: str) -> Any:
    return tree.parts[name]


# ---- Modules -------------------------------------------------------------------------------------


def test_a_function_keeps_its_name_beside_a_module() -> None:
    """deepspeed.utils.z3_leaf_module is both."""
    layer = torch.nn.Linear(2, 2)
    assert deepspeed.utils.z3_leaf_module(layer) is False
    deepspeed.utils.set_z3_leaf_modules(layer, [torch.nn.Linear])
    assert deepspeed.utils.z3_leaf_module(layer) is True
    assert module("utils.z3_leaf_module").z3_leaf_module is deepspeed.utils.z3_leaf_module
    for dotted, part in tree.parts.items():
        above, _, name = dotted.rpartition(".")
        content = tree.content_of(above) if above else {}
        assert not callable(content.get(name)) or getattr(tree.parts[above], name) is not part


def test_parts_are_found_below_their_parents() -> None:
    for dotted in tree.parts:
        above = dotted.rpartition(".")[0]
        assert not above or above in tree.parts, dotted


@pytest.mark.parametrize("name", [name for name in refused.NAMES if name])
def test_refused_names_are_refused_at_use_with_the_page(name: str) -> None:
    for own in refused.NAMES[name]:
        found = getattr(module(name), own)
        if isinstance(found, type):
            assert not isinstance(torch.nn.Linear(1, 1), found)
        with pytest.raises(meron.UnsupportedError, match=r"docs/integrations\.md"):
            found(1, a=2)


# ---- moe.utils -----------------------------------------------------------------------------------


def test_a_dense_model_has_no_experts() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    assert experts.has_moe_layers(model) == (False, 0)
    params = list(model.parameters())
    assert not any(map(experts.is_moe_param, params))
    assert experts.split_params_into_shared_and_expert_params(params) == (params, [])
    params[0].grad = torch.ones(2, 2)
    shared, expert = experts.split_params_grads_into_shared_and_expert_params(params)
    assert torch.equal(shared[0], torch.ones(2, 2)) and len(shared) == 1 and expert == []


def test_param_groups_of_a_dense_model() -> None:
    model = torch.nn.Linear(2, 2)
    split = experts.split_params_into_different_moe_groups_for_optimizer
    (group,) = split({"params": model.parameters(), "name": "all", "lr": 0.1})
    assert group["params"] == list(model.parameters()) and group["lr"] == 0.1
    assert not experts.is_moe_param_group(group) and experts.is_moe_param_group({"moe": True})
    assert [g["lr"] for g in split(({"params": [], "lr": 1}, {"params": [], "lr": 2}))] == [1, 2]
    (made,) = experts.configure_moe_param_groups(list(model.parameters()))
    assert made["params"] == list(model.parameters())
    groups = [{"params": [model.bias], "moe": False}]
    assert experts.configure_moe_param_groups(groups) is groups
    assert experts.configure_moe_param_groups([]) == []
    model.weight.allreduce = False  # type: ignore[assignment]
    assert experts.is_moe_param(model.weight) and not experts.is_moe_param(model.bias)
    with pytest.raises(meron.UnsupportedError, match="1 params have allreduce=False"):
        split({"params": [model.weight], "name": "all"})


def test_what_is_no_param_group() -> None:
    with pytest.raises(ValueError, match="is a str"):
        experts.split_params_into_different_moe_groups_for_optimizer("all")  # type: ignore
    with pytest.raises(TypeError, match="an item of model_parameters is a int"):
        experts.configure_moe_param_groups([1])
    with pytest.raises(AssertionError, match="is a generator, not a list"):
        experts.configure_moe_param_groups(torch.nn.Linear(1, 1).parameters())  # type: ignore
    with pytest.raises(meron.ArgumentError, match=r"torch\.nn\.Module"):
        experts.has_moe_layers([])  # type: ignore[arg-type]


# ---- accelerator, operators ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("BFloat16Tensor", torch.bfloat16),
        ("BoolTensor", torch.bool),
        ("ByteTensor", torch.uint8),
        ("CharTensor", torch.int8),
        ("DoubleTensor", torch.float64),
        ("FloatTensor", torch.float32),
        ("HalfTensor", torch.float16),
        ("IntTensor", torch.int32),
        ("LongTensor", torch.int64),
        ("ShortTensor", torch.int16),
    ],
)
def test_tensor_types_of_an_accelerator(name: str, dtype: torch.dtype) -> None:
    made = getattr(accelerator.Accelerator("cpu"), name)([0, 1])
    assert made.dtype is dtype and made.tolist() == [0, 1] and made.device.type == "cpu"
    make = getattr(accelerator.Accelerator("cuda"), name)
    assert make.keywords == {"dtype": dtype, "device": "cuda"}


def test_an_accelerator_without_a_device() -> None:
    host = accelerator.Accelerator("cpu")
    assert host.create_graph() is None and not host.is_current_stream_capturing()
    with host.capture_to_graph(None):
        host.replay_graph(None)
    assert not host.is_triton_supported() and host.is_fp64_supported()
    assert host.export_envs() == [] and host.op_builder_dir() == "deepspeed.ops.op_builder"
    assert host.pin_empty(2, 3, dtype=torch.int8).shape == (2, 3)
    assert host.pin_empty_like(torch.ones(3), dtype=torch.int8).dtype is torch.int8
    environment: dict[str, str] = {}
    host.set_visible_devices_envs(environment, [0, 2])
    assert environment == {"CUDA_VISIBLE_DEVICES": "0,2"}
    assert host.get_compile_backend() == "inductor"
    host.set_compile_backend("eager")
    assert host.get_compile_backend() == "eager"
    with pytest.raises(ValueError, match="no backend 'fast'"):
        host.set_compile_backend("fast")
    assert host.get_compile_backend() == "eager"


def test_operators_that_can_be_loaded() -> None:
    known = getattr(deepspeed.ops, "__compatible_ops__")  # noqa: B009  without name mangling
    assert known[builders.AsyncIOBuilder.NAME] and known[builders.FusedAdamBuilder.NAME]
    assert not known[builders.GDSBuilder.NAME] and not known["deepspeed_not_implemented"]
    load = builders.UtilsBuilder().load()
    (view,) = load.cast_to_byte_tensor([torch.ones(2, 3)])
    assert view.shape == (24,) and view.dtype is torch.uint8
    assert load.cast_to_byte_tensor(torch.ones(2)).numel() == 8


@pytest.mark.parametrize("name", builders.MISSING)
def test_builders_of_operators_that_are_missing(name: str) -> None:
    builder = accelerator.Accelerator("cpu").create_op_builder(name)
    assert not builder.is_compatible() and builders.MISSING[name] == builder.NAME
    assert getattr(deepspeed.ops, "__compatible_ops__")[builder.NAME] is False  # noqa: B009
    with pytest.raises(meron.UnsupportedError, match=r"integrations\.md"):
        builder.load()


def test_names_under_further_paths() -> None:
    for path in (
        "ops.lion.cpu_lion.DeepSpeedCPULion",
        "ops.adagrad.cpu_adagrad.DeepSpeedCPUAdagrad",
        "comm.reduce_op.ReduceOp",
        "comm.comm.P2POp",
        "runtime.config.get_gradient_clipping",
        "runtime.config_utils.get_scalar_param",
        "runtime.zero.leaf_module_config.DEFAULT_LEAF_MODULE_CLASSES",
        "compression.helper.recursive_getattr",
        "elasticity.config.ElasticityConfigError",
        "constants.CROSS_RANK",
        "checkpoint.UNIVERSAL_CHECKPOINT_INFO",
        "checkpoint.constants.UNIVERSAL_CHECKPOINT_INFO",
        "checkpoint.enable_universal_checkpoint",
        "checkpoint.utils.get_zero_ckpt_name_for_rank",
        "runtime.pipe.ProcessTopology",
        "runtime.pipe.engine.DeepSpeedEngine",
        "runtime.engine.MEMORY_OPT_ALLREDUCE_SIZE",
        "runtime.DeepSpeedOptimizer",
        "ops.op_builder.builder.CUDAOpBuilder",
        "moe.utils.is_moe_param",
    ):
        dotted, _, name = path.rpartition(".")
        assert getattr(module(dotted), name) is not None, path
    files = module("checkpoint.utils")
    assert files.get_model_ckpt_name_for_rank("a", "00") == "a/mp_rank_00_model_states.pt"
    name = "a/zero_pp_rank_3_mp_rank_01_optim_states.pt"
    assert files.get_zero_ckpt_name_for_rank("a", 3, 1) == name
    name = "a/layer_02-model_01_model_states.pt"
    assert files.get_layer_ckpt_name_for_rank("a", "layer_02", 1) == name


# ---- launcher ------------------------------------------------------------------------------------

HOSTS = {"a": [0, 1, 2], "b": [0, 1]}


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ("", "", HOSTS),
        ("b", "", {"b": [0, 1]}),
        ("b:1@a:2,0", "", {"a": [0, 2], "b": [1]}),
        ("a:1@a:0,1", "", {"a": [0, 1]}),
        ("", "a:1", {"a": [0, 2], "b": [0, 1]}),
        ("", "a@b:0", {"b": [1]}),
        ("", "a@b", {}),
    ],
)
def test_selections_of_hosts(include: str, exclude: str, expected: dict[str, list[int]]) -> None:
    found = hostfiles.parse_resource_filter(HOSTS, include_str=include, exclude_str=exclude)
    assert found == expected and list(found) == [name for name in HOSTS if name in found]
    counts = {name: len(slots) for name, slots in HOSTS.items()}
    assert hostfiles.parse_inclusion_exclusion(counts, include, exclude) == expected


@pytest.mark.parametrize(
    ("include", "exclude", "words"),
    [
        ("a", "b", "both given"),
        ("c", "", "there is no host c, but a, b"),
        ("", "a:3", "a has no slot 3, but 0, 1, 2"),
        ("a:x", "", "'x' is no list of slots"),
        ("", "a@", "'' is no host"),
    ],
)
def test_wrong_selections_of_hosts(include: str, exclude: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        hostfiles.parse_resource_filter(HOSTS, include, exclude)


def test_hostfiles(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "hosts"
    file.write_text("# two hosts\nb slots=2\n\na slots=4 # the larger one\n")
    assert hostfiles.fetch_hostfile(file) == {"b": 2, "a": 4}
    assert hostfiles.fetch_hostfile(tmp_path / "none") is None
    assert "there is no hostfile" in caplog.text
    for text, words in (
        ("a slots=x", "line 1"),
        ("a slots=1\na slots=2", "twice"),
        ("", "no host"),
    ):
        with pytest.raises(ValueError, match=words):
            hostfiles._parse_hostfile(text.splitlines())


@pytest.mark.parametrize(
    "line", ["--num_nodes 1 -i localhost", "--num_gpus 1 -e localhost", "--no_python --module"]
)
def test_a_program_that_launches_gets_errors(line: str) -> None:
    with pytest.raises(ValueError, match="both given"):
        launcher.main(args=[*line.split(), "train.py"])


def test_the_environment_of_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    variables = [name for group in discovery.MPI_VARIABLES for name in group]
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for name in (*names, *variables, *discovery.MPI_WORLD_SIZE_ENV_VARS):
        os.environ.pop(name, None)
    assert not discovery.in_multi_rank_mpi_job()
    with pytest.raises(meron.ArgumentError, match="mpirun"):
        discovery.mpi_discovery()
    for name, value in zip(discovery.MPI_VARIABLES[0], ("3", "4", "1", "2")):
        os.environ[name] = value
    assert discovery.in_multi_rank_mpi_job()
    with pytest.raises(meron.ArgumentError, match="no MASTER_ADDR"):
        discovery.mpi_discovery()
    assert "RANK" not in os.environ
    os.environ["MASTER_ADDR"] = "first"
    discovery.mpi_discovery(distributed_port=7)
    assert [os.environ[name] for name in names] == ["3", "4", "1", "first", "7"]
    for name in names:
        os.environ.pop(name)
    discovery.single_process_discovery(distributed_port=8)
    assert [os.environ[name] for name in names] == ["0", "1", "0", "127.0.0.1", "8"]


# ---- Small functions -----------------------------------------------------------------------------


def test_the_version_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.10.0+cpu")
    required = versions.required_torch_version
    assert required(2.1) and required(min_version="2.10") and required("2.10.0.0")
    assert not required("2.10.1") and not required(max_version="2.9") and required("2", "2.10")
    with pytest.raises(AssertionError, match="min_version"):
        required()
    with pytest.raises(meron.ArgumentError, match="'new' is no version"):
        required("new")


def test_hooks_of_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    seen: list[torch.Tensor] = []
    handle = versions.register_grad_hook(weight, lambda param: seen.append(param.grad))
    weight.sum().backward()
    handle.remove()
    weight.sum().backward()
    assert len(seen) == 1


def test_an_mpu_under_any_of_its_names() -> None:
    for kind in ("tensor_model_parallel", "slice_parallel", "model_parallel"):
        values = {"rank": 3, "world_size": 8, "group": "g"}
        other = types.SimpleNamespace(
            **{f"get_{kind}_{what}": lambda value=value: value for what, value in values.items()}
        )
        assert mpu.bwc_tensor_model_parallel_rank(other) == 3
        assert mpu.bwc_tensor_model_parallel_world_size(other) == 8
        assert mpu.bwc_tensor_model_parallel_group(other) == "g"
    for other in (None, object()):
        assert mpu.bwc_tensor_model_parallel_rank(other) == 0
        assert mpu.bwc_pipeline_parallel_world_size(other) == 1
        assert mpu.bwc_pipeline_parallel_group(other) is None


def test_balanced_parts() -> None:
    """The heaviest part is as light as that of any division."""
    generator = random.Random(0)
    assert partitions.prefix_sum_inc([3, 4, 5]) == [3, 7, 12]
    assert partitions.partition_balanced([0, 1, 2, 3, 3, 3], 4) == [0, 3, 4, 5, 6]
    assert partitions.partition_balanced([1, 1], 4) == [0, 1, 2, 2, 2]
    assert partitions.partition_balanced([1, 2, 3], 1) == [0, 3]
    for _ in range(50):
        weights = [generator.choice([0, 1, 2.5, 7]) for _ in range(generator.randint(4, 9))]
        count = generator.randint(1, 4)
        bounds = partitions.partition_balanced(weights, count)
        assert bounds[0] == 0 and bounds[-1] == len(weights) and len(bounds) == count + 1
        assert sorted(bounds) == bounds
        assert heaviest(weights, bounds) == lightest_possible(weights, count)


def heaviest(weights: list[float], bounds: list[int]) -> float:
    return max(sum(weights[begin:end]) for begin, end in itertools.pairwise(bounds))


def lightest_possible(weights: list[float], count: int) -> float:
    if count == 1:
        return sum(weights)
    return min(
        max(lightest_possible(weights[:cut], count - 1), sum(weights[cut:]))
        for cut in range(count - 1, len(weights))
    )


def test_values_of_a_config() -> None:
    read = config_values.readers()
    config = {"gradient_clipping": 2.0, "optimizer": {"type": "Adam", "params": {"lr": 1}}}
    assert read["get_gradient_clipping"](config) == 2.0
    assert read["get_gradient_clipping"]({}) == 1.0
    assert read["get_optimizer_name"](config) == "Adam"
    assert read["get_scheduler_params"](config) is None
    assert config_values.get_scalar_param(config, "steps_per_print", 5) == 5


def test_helpers_of_runtime_utils(caplog: pytest.LogCaptureFixture) -> None:
    assert helpers.call_to_str("f") == "f()" and helpers.call_to_str("f", 1, x="a") == "f(1, x='a')"
    assert helpers.get_only_unique_item(["a", "a"]) == "a"
    with pytest.raises(meron.ArgumentError, match="2 values"):
        helpers.get_only_unique_item([1, 2])
    values = torch.tensor([1.0, float("nan"), float("inf")])
    helpers.mask_nan_or_inf_with_val_inplace(values, val=0.5)
    assert values.tolist() == [1.0, 0.5, 0.5]
    assert helpers.has_inf_or_nan(torch.tensor([1.0, float("inf")])).item() is True
    assert helpers.has_inf_or_nan(values).item() is False
    assert not helpers.is_model_parallel_parameter(values)
    values.tensor_model_parallel = True  # type: ignore[attr-defined]
    assert helpers.is_model_parallel_parameter(values)
    assert helpers.DummyOptim([1]).param_groups == [{"params": [1]}]
    caplog.set_level(logging.INFO, logger="meron.zero")
    helpers.memory_status("now", reset_max=True)
    assert "now: host" in caplog.text


def test_lists_of_cores() -> None:
    assert helpers.parse_range_list("0,2-4,6,8-9") == [0, 2, 3, 4, 6, 8, 9]
    for wrong in ("0,2-6,5-9", "8,2-6", "1,6-2", "1,,2", "a", "-1"):
        with pytest.raises(ValueError, match=f"'{wrong}'"):
            helpers.parse_range_list(wrong)


def test_groups_of_experts() -> None:
    divided, equal = groups._get_expert_parallel_ranks(8, 2, 2)
    assert divided == [[0, 2], [4, 6], [1, 3], [5, 7]]
    assert equal == [[0, 4], [2, 6], [1, 5], [3, 7]]
    with pytest.raises(ValueError, match="10 is not divisible by 4"):
        groups._get_expert_parallel_ranks(10, 2, 2)
    with pytest.raises(ValueError, match="denominator must be non-zero"):
        groups._ensure_divisibility(8, 0)


def test_helpers_of_zero_utils() -> None:
    assert not zero_utils.is_zero_param(torch.ones(1)) and not zero_utils.is_zero_param(None)
    weight = torch.nn.Parameter(torch.ones(1))
    assert zero_utils.is_zero_supported_optimizer(torch.optim.AdamW([weight]))
    assert not zero_utils.is_zero_supported_optimizer(torch.optim.Rprop([weight]))
    found = zero_utils.apply_to_tensors_only(lambda tensor: tensor + 1, {"a": [torch.ones(1), 2]})
    assert found == {"a": [torch.tensor([2.0]), 2]}
    assert issubclass(zero_utils.ZeRORuntimeException, Exception)
    assert zero_utils.get_lst_from_rank0([1, 2]) == [1, 2]


# ---- The engine ----------------------------------------------------------------------------------


def test_the_log_has_deepspeeds_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="meron.zero")
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    }
    engine, optimizer, _, _ = deepspeed.initialize(
        model=torch.nn.Linear(1, 1), config=config, dist_init_required=False
    )
    assert isinstance(optimizer, module("runtime").ZeROOptimizer)
    line = "DeepSpeed info: version=0.19.8+meron, git-hash=[none], git-branch=[none]"
    assert line in caplog.text
    with pytest.raises(AttributeError, match="Engine has no attribute 'deepspeed_oi', and its"):
        engine.deepspeed_oi()
    assert not hasattr(engine, "deepspeed_oi") and engine.in_features == 1
    engine.destroy()


class Broken(torch.nn.Linear):
    @property
    def size(self) -> int:
        return self.nothing  # type: ignore[return-value]


def test_an_attribute_of_the_module_that_fails() -> None:
    config = {"train_micro_batch_size_per_gpu": 1}
    engine, _, _, _ = deepspeed.initialize(
        model=Broken(1, 1), config=config, dist_init_required=False
    )
    with pytest.raises(AttributeError, match="'Broken' object has no attribute"):
        _ = engine.size
    engine.destroy()


@pytest.mark.parametrize("kind", ["Lamb", "FusedLamb", "Adafactor", "Muon"])
def test_optimizers_that_are_not_elementwise(kind: str) -> None:
    config = {"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": kind}}
    with pytest.raises(meron.ArgumentError, match=f"'{kind}' is not elementwise") as caught:
        deepspeed.initialize(model=torch.nn.Linear(1, 1), config=config, dist_init_required=False)
    assert "docs/torch_deepspeed.md" in str(caught.value)


def test_the_log_of_collectives_never_stops_a_run(caplog: pytest.LogCaptureFixture) -> None:
    distributed.warn_of_no_log.cache_clear()
    deepspeed.comm.configure(enabled=True)
    deepspeed.comm.configure(enabled=True)
    assert caplog.text.count("no log of collectives") == 1
    assert deepspeed.comm.log_summary() is None
    summary = deepspeed.comm.log_summary(show_straggler=True, return_dict=True)
    assert summary is not None and summary["summary"] == {}
    deepspeed.comm.reset_log()
    assert not deepspeed.comm.has_comm_data() and deepspeed.comm.get_logged_comm_ops() == []
    assert deepspeed.comm.get_comm_operation_count() == 0


def test_classes_of_optimizers_stay_importable() -> None:
    for name in ("runtime.base_optimizer", "runtime.fp16.unfused_optimizer"):
        assert importlib.import_module("meron.zero.compat.tree").parts[name] is module(name)
    assert module("runtime.base_optimizer").DeepSpeedOptimizer is DeepSpeedOptimizer
