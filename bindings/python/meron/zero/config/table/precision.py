# SPDX-License-Identifier: Apache-2.0
"""The blocks of dtypes: fp16, bf16, data_types, torch_autocast."""

from __future__ import annotations

from .kinds import Choice, Dtype, Feature, Flag, Kind, Number, Whole, Words
from .rows import Key, Section, idle, refused, works


def dynamic(name: str, kind: Kind, default: int, says: str) -> Key:
    """A number of a dynamic loss scale. Any whole number is accepted if the scale is fixed."""
    return works(name, kind, default, says, wide=Whole(None))


FP16 = (
    works("enabled", Flag(), False, "parameters are fp16; optimizers update f32 values"),
    works("auto_cast", Flag(), False, "floating inputs of the engine are cast to fp16"),
    works("loss_scale", Number(0, 2.0**127), 0.0, "a fixed scale; 0 is dynamic"),
    dynamic("initial_scale_power", Whole(0, 60), 16, "the first dynamic scale is 2 to this power"),
    dynamic(
        "loss_scale_window",
        Whole(1),
        1000,
        "the scale doubles at the clean step after so many clean steps, and after so many again",
    ),
    dynamic("hysteresis", Whole(1), 2, "so many overflows halve the scale for the first time"),
    works("consecutive_hysteresis", Flag(), False, "a clean step restores the hysteresis"),
    dynamic("min_loss_scale", Whole(1), 1, "an overflow at this scale raises `NonFiniteError`"),
    refused(
        "fp16_master_weights_and_grads",
        Feature("bool"),
        False,
        "Remove it, or use bf16 with `bf16_master_weights_and_grads`: an update of fp16 values "
        "in place loses every change below 1/4096 of the weight, and the eps of Adam is 0 "
        "in fp16.",
    ),
)

BF16 = (
    works("enabled", Flag(), False, "parameters are bf16; optimizers update f32 values"),
    works(
        "check_grad_overflow",
        Flag(),
        True,
        "a step whose gradients hold NaN or infinity is skipped, at every stage; false: it raises "
        "`NonFiniteError` on all ranks",
    ),
    idle("immediate_grad_update", Flag(), False, "gradients are added as they arrive"),
    works(
        "bf16_master_weights_and_grads",
        Flag(),
        False,
        "there are no f32 values: the bf16 shards are updated in place, each step in f32 and "
        "rounded to nearest. States are f32, or bf16 with `bf16_optimizer_states`",
    ),
    works(
        "bf16_optimizer_states",
        Flag(),
        False,
        "states are bf16, rounded at random; also without `bf16_master_weights_and_grads`, beside "
        "f32 values",
    ),
)

DATA_TYPES = (
    works(
        "grad_accum_dtype",
        Dtype(),
        None,
        "the dtype that micro-batches are added in, at stages 0 and 1; f32 by default. Stages 2 "
        "and 3 add them in f32 in any case",
        nullable=True,
    ),
    works("param_dtype", Dtype(), None, "the dtype of parameters", nullable=True),
    works(
        "buffer_dtype",
        Dtype(),
        None,
        "the dtype of floating buffers, which stay as they are otherwise",
        nullable=True,
    ),
    idle(
        "keep_in_fp32_modules",
        Kind(),
        "auto",
        "floating buffers stay as they are unless `buffer_dtype` is set",
    ),
)

AUTOCAST = (
    works("enabled", Flag(), False, "`engine(x)` runs under `torch.autocast`"),
    works(
        "dtype",
        Dtype(),
        None,
        "the dtype of autocast; null is autocast's own for the device. fp16 adds a dynamic loss "
        "scale with the numbers of `torch.amp.GradScaler`",
        nullable=True,
    ),
    idle(
        "lower_precision_safe_modules",
        Words(),
        None,
        "autocast chooses by operator, and gradients travel in `communication_data_type`",
        nullable=True,
    ),
)

GRADIENTS = (
    works(
        "communication_data_type",
        Dtype(),
        None,
        "the dtype that gradients are written in. Sums over ranks are f32. At stages 0 and 1 it "
        "is no narrower than the dtype of accumulation: f32 for several micro-batches",
        nullable=True,
    ),
    works("fp32_allreduce", Flag(), False, 'the old name of `communication_data_type: "fp32"`'),
    idle(
        "seq_parallel_communication_data_type",
        Dtype(),
        "fp32",
        "there is no sequence parallelism",
        nullable=True,
    ),
    idle(
        "prescale_gradients",
        Flag(),
        False,
        "sums over ranks are f32 and are divided once, so no sum of fp16 gradients overflows",
    ),
    idle(
        "gradient_predivide_factor",
        Number(over=True),
        1.0,
        "sums over ranks are f32 and are divided once, so no sum of fp16 gradients overflows",
    ),
    works(
        "gradient_allreduce_op",
        Choice("mean", "sum"),
        "mean",
        "whether gradients are divided by the number of ranks, at every stage",
    ),
)

SECTIONS = (
    Section("fp16", "fp16", FP16),
    Section("bf16", "bf16", BF16, also=("bfloat16",)),
    Section("data_types", "Dtypes", DATA_TYPES, lenient=True),
    Section("torch_autocast", "Autocast", AUTOCAST, lenient=True),
)
