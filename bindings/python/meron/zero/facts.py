# SPDX-License-Identifier: Apache-2.0
"""Facts about an engine: ranks, sizes, dtypes, its config, and the outcome of its last step."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import torch

from meron.torch.sharding import Sharding
from meron.torch.unit import ShardedUnit
from meron.zero import comm
from meron.zero.config import Config
from meron.zero.loss_scale import LossScale
from meron.zero.wrapper import Wrapper


class GradientNorm(float):
    """A norm, also for callers that call `item()` on it, because DeepSpeed returns a tensor."""

    def item(self) -> float:
        return float(self)


def reader(path: str) -> Callable[[Any], Any]:
    """A method that returns the value of a key; DeepSpeed's default if the config lacks it."""

    def read(self: Any) -> Any:
        return self.config.value(path)

    read.__doc__ = f"The config's `{path}`, or its default in DeepSpeed."
    return read


def zero_reader(name: str) -> Callable[[Any], Any]:
    return reader(f"zero_optimization.{name}")


# Kinds of parallelism by the names that an mpu may use. Meron's own is data parallelism alone.
TENSOR = ("tensor_model_parallel", "slice_parallel", "model_parallel")
MODEL = ("model_parallel", "tensor_model_parallel", "slice_parallel")
PIPELINE = ("pipeline_model_parallel", "pipe_parallel")
SEQUENCE = ("sequence_parallel",)


def of_mpu(kinds: tuple[str, ...], what: str) -> Callable[[Any], int]:
    """A method that returns what `mpu` of initialize says: the "rank" or the "world_size" of a kind
    of parallelism. It is 0 of 1 without an mpu that knows it."""

    def read(self: Any) -> int:
        for kind in kinds:
            found = getattr(self.mpu, f"get_{kind}_{what}", None)
            if found is not None:
                return int(found())
        return 0 if what == "rank" else 1

    read.__doc__ = f"The {what} of {kinds[0]} that `mpu` of initialize knows, else 0 of 1."
    return read


class Facts(Wrapper):
    """Attributes: those of Engine, which sets them."""

    config: Config
    sharding: Sharding
    units: list[ShardedUnit]
    optimizer: torch.optim.Optimizer | None
    lr_scheduler: Any
    loss_scaler: LossScale | None
    mpu: Any = None  # of initialize
    has_moe_layers = False  # layers of deepspeed.moe, which Meron does not have
    pipeline_parallelism = False
    micro_steps: int
    global_steps: int
    skipped_steps: int
    global_samples: int
    _accumulated: int
    _applied: bool
    _owns_optimizer: bool
    _norm: float | None

    def _require_alive(self, operation: str) -> None:
        raise NotImplementedError

    def _begin_again(self) -> None:
        raise NotImplementedError

    @property
    def global_rank(self) -> int:
        return self.sharding.context.rank

    @property
    def local_rank(self) -> int:
        """The rank on this host, as the launcher says."""
        return comm.get_local_rank()

    @property
    def world_size(self) -> int:
        return self.sharding.context.world_size

    @property
    def dp_world_size(self) -> int:
        """The number of ranks that train on different data: those that share the model."""
        return self.sharding.context.world_size

    @property
    def device(self) -> torch.device:
        """Where the model computes, and takes its inputs from."""
        return self.sharding.torch_device

    def train_batch_size(self) -> int | None:
        return self.config.train_batch_size

    def train_micro_batch_size_per_gpu(self) -> int | None:
        return self.config.micro_batch_size

    def gradient_accumulation_steps(self) -> int:
        return self.config.accumulation_steps or 1

    def get_batch_info(self) -> tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]:
        """The methods train_batch_size, train_micro_batch_size_per_gpu and
        gradient_accumulation_steps, as DeepSpeed returns them."""
        return (
            self.train_batch_size,
            self.train_micro_batch_size_per_gpu,
            self.gradient_accumulation_steps,
        )

    def gradient_clipping(self) -> float:
        return self.config.clipping

    def zero_optimization(self) -> bool:
        """True if the stage is above 0."""
        return self.config.stage > 0

    def zero_optimization_stage(self) -> int:
        return self.config.stage

    def zero_optimization_partition_weights(self) -> bool:
        return self.config.stage >= 3

    def fp16_enabled(self) -> bool:
        return self.config.fp16 is not None

    def bfloat16_enabled(self) -> bool:
        return self.config.dtype == torch.bfloat16

    def torch_autocast_enabled(self) -> bool:
        return self.config.autocast is not None

    def torch_autocast_dtype(self) -> torch.dtype | None:
        """The dtype of the config's autocast; None if it is off, or uses the device's default."""
        return self.config.autocast.dtype if self.config.autocast is not None else None

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The autocast context of the model. If the config has none, an outer autocast applies."""
        if self.config.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.config.autocast.dtype)

    def dynamic_loss_scale(self) -> bool:
        """True if the loss scale is dynamic; as in DeepSpeed, also without a loss scale."""
        return self.loss_scaler is None or self.loss_scaler.dynamic

    @property
    def _scales_dynamically(self) -> bool:
        return self.loss_scaler is not None and self.loss_scaler.dynamic

    @property
    def cur_scale(self) -> float:
        return self.loss_scaler.value if self.loss_scaler is not None else 1.0

    def loss_scale(self) -> float:
        """The factor of the next loss; as in DeepSpeed, 0.0 without a loss scale."""
        return self.loss_scaler.value if self.loss_scaler is not None else 0.0

    def was_step_applied(self) -> bool:
        """True if the last step() was a boundary, and was neither skipped nor failed."""
        return self._applied

    def get_global_grad_norm(self) -> GradientNorm | None:
        """The norm of the last update's gradients, before clipping.

        inf if they held NaN or infinity, 0 if no rank had a gradient; None before the first
        update, and if the last one failed for another reason.
        """
        return None if self._norm is None else GradientNorm(self._norm)

    def get_lr(self) -> list[float]:
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return [group["lr"] for group in groups]

    # ---- Keys of the config ----------------------------------------------------------------

    dump_state = reader("dump_state")
    dataloader_drop_last = reader("dataloader_drop_last")
    gradient_predivide_factor = reader("gradient_predivide_factor")
    load_universal_checkpoint = reader("checkpoint.load_universal")
    managed_gradient_accumulation = reader("managed_gradient_accumulation")
    memory_breakdown = reader("memory_breakdown")
    use_node_local_storage = reader("checkpoint.use_node_local_storage")
    wall_clock_breakdown = reader("wall_clock_breakdown")
    zero_allow_untested_optimizer = reader("zero_allow_untested_optimizer")
    zero_force_ds_cpu_optimizer = reader("zero_force_ds_cpu_optimizer")

    bf16_master_weights_and_gradients = reader("bf16.bf16_master_weights_and_grads")
    bf16_optimizer_states = reader("bf16.bf16_optimizer_states")
    fp16_auto_cast = reader("fp16.auto_cast")

    zero_allgather_bucket_size = zero_reader("allgather_bucket_size")
    zero_allgather_partitions = zero_reader("allgather_partitions")
    zero_compute_grad_norm = zero_reader("compute_grad_norm")
    zero_contiguous_gradients = zero_reader("contiguous_gradients")
    zero_elastic_checkpoint = zero_reader("elastic_checkpoint")
    zero_hpz_partition_size = zero_reader("zero_hpz_partition_size")
    zero_ignore_unused_parameters = zero_reader("ignore_unused_parameters")
    zero_legacy_stage1 = zero_reader("legacy_stage1")
    zero_load_from_fp32_weights = zero_reader("load_from_fp32_weights")
    zero_max_live_parameters = zero_reader("stage3_max_live_parameters")
    zero_max_reuse_distance = zero_reader("stage3_max_reuse_distance")
    zero_model_persistence_threshold = zero_reader("stage3_model_persistence_threshold")
    zero_module_granularity_threshold = zero_reader("stage3_module_granularity_threshold")
    zero_param_persistence_threshold = zero_reader("stage3_param_persistence_threshold")
    zero_parameter_alignment = zero_reader("parameter_alignment")
    zero_prefetch_bucket_size = zero_reader("stage3_prefetch_bucket_size")
    zero_quantized_gradients = zero_reader("zero_quantized_gradients")
    zero_quantized_nontrainable_weights = zero_reader("zero_quantized_nontrainable_weights")
    zero_quantized_weights = zero_reader("zero_quantized_weights")
    zero_reduce_bucket_size = zero_reader("reduce_bucket_size")
    zero_reduce_scatter = zero_reader("reduce_scatter")
    zero_round_robin_gradients = zero_reader("round_robin_gradients")
    zero_sub_group_size = zero_reader("sub_group_size")

    def steps_per_print(self) -> float | None:
        """Number of steps between two reports, as an int if possible. None: nothing is reported."""
        every = self.config.reports.every
        return int(every) if every is not None and float(every).is_integer() else every

    def log_level(self) -> str | None:
        """The level of the log as the config spells it; None if it does not say."""
        level: str | None = self.config.table.get("log_level")
        return level

    def postscale_gradients(self) -> bool:
        return not self.config.value("prescale_gradients")

    def zero_overlap_comm(self) -> bool:
        """The config's overlap_comm; by default True at stage 3. Meron overlaps in any case."""
        given = self.config.value("zero_optimization.overlap_comm")
        return self.config.stage == 3 if given is None else bool(given)

    def is_sanity_checks_enabled(self) -> bool:
        return self.config.sanity_checks

    def zero_optimization_partition_gradients(self) -> bool:
        """True at the stages 2 and 3."""
        return self.config.stage >= 2

    def is_first_weights_partition_group(self) -> bool:
        return self.zero_optimization_partition_weights()

    def zero_cpu_offload(self) -> bool:
        """True if the config's offload_optimizer names the device cpu."""
        return self.config.offload.optimizer == "cpu"

    def zero_offload_optimizer(self) -> types.SimpleNamespace | None:
        """The config's block offload_optimizer, such as its `device`; None if it has none."""
        return self.config.block_values("zero_optimization.offload_optimizer")

    def zero_offload_param(self) -> types.SimpleNamespace | None:
        """The config's block offload_param, such as its `device`; None if it has none."""
        return self.config.block_values("zero_optimization.offload_param")

    def zero_use_cpu_optimizer(self) -> bool:
        return self.config.offload.optimizer in ("cpu", "nvme")

    # ---- Optimizer, scheduler, dtypes ------------------------------------------------------

    @property
    def basic_optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer that changes the shards."""
        return self.optimizer

    @property
    def client_optimizer(self) -> torch.optim.Optimizer | None:
        """The optimizer, if the caller passed it to initialize; else None."""
        return None if self._owns_optimizer else self.optimizer

    def optimizer_name(self) -> str | None:
        """The class of the caller's optimizer, or the name in the config, in lower case."""
        if self.client_optimizer is not None:
            return type(self.client_optimizer).__name__
        return None if self.config.optimizer is None else self.config.optimizer[0].lower()

    def optimizer_params(self) -> dict[str, Any] | None:
        return None if self.config.optimizer is None else dict(self.config.optimizer[1])

    def scheduler_name(self) -> str | None:
        """The name in the config; None for a scheduler of the caller's."""
        return None if self.config.scheduler is None else self.config.scheduler[0]

    def scheduler_params(self) -> dict[str, Any] | None:
        return None if self.config.scheduler is None else dict(self.config.scheduler[1])

    def get_mom(self) -> list[Any]:
        """The betas of each param group, or its momentum if it has no betas."""
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return [group.get("betas", group.get("momentum", 0.0)) for group in groups]

    def get_type(self) -> list[Any]:
        """The `type` of each param group, which some schedules set; 0.0 for none."""
        groups = self.optimizer.param_groups if self.optimizer is not None else []
        return [group.get("type", 0.0) for group in groups]

    @property
    def communication_data_type(self) -> torch.dtype:
        """The config's communication_data_type, or the dtype of 16-bit params, or f32.

        Gradients may travel in a wider one: `config.plan()` has the dtype that is used.
        """
        given: torch.dtype | None = self.config.value("communication_data_type")
        return given or self.get_data_types()[0]

    def get_data_types(self) -> tuple[torch.dtype, torch.dtype]:
        """The dtypes of params and of the sums over micro-batches."""
        model = torch.float32
        if self.fp16_enabled():
            model = torch.float16
        elif self.bfloat16_enabled():
            model = torch.bfloat16
        return model, self.config.accumulation_dtype or model

    # ---- Ranks -----------------------------------------------------------------------------

    @property
    def mp_world_size(self) -> int:
        """The number of model-parallel ranks, which `mpu` of initialize may know; else 1."""
        return self.get_model_parallel_world_size()

    def get_data_parallel_rank(self) -> int:
        return self.global_rank

    def get_data_parallel_world_size(self) -> int:
        return self.dp_world_size

    get_tensor_parallel_rank = of_mpu(TENSOR, "rank")
    get_tensor_parallel_world_size = of_mpu(TENSOR, "world_size")
    get_model_parallel_rank = of_mpu(MODEL, "rank")
    get_model_parallel_world_size = of_mpu(MODEL, "world_size")
    get_pipeline_parallel_rank = of_mpu(PIPELINE, "rank")
    get_pipeline_parallel_world_size = of_mpu(PIPELINE, "world_size")
    get_sequence_parallel_rank = of_mpu(SEQUENCE, "rank")
    get_sequence_parallel_world_size = of_mpu(SEQUENCE, "world_size")
