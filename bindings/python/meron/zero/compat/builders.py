# SPDX-License-Identifier: Apache-2.0
"""deepspeed.ops.op_builder: nothing is built, as Meron's library has the operators.

Each class reports that it is compatible. `load()` returns the module of Meron that does the same:
`meron.io` for AsyncIOBuilder and GDSBuilder, `meron.zero.ops` for optimizers.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, ClassVar

from meron import errors
from meron.zero.compat import refused


class OpBuilder:
    """A builder of DeepSpeed's: its NAME, and the module of Meron that has the operator."""

    NAME: ClassVar[str] = ""
    MODULE: ClassVar[str] = ""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.NAME

    def is_compatible(self, verbose: bool = False) -> bool:
        """True: nothing has to be built."""
        return True

    def load(self, verbose: bool = False) -> ModuleType:
        """The module that has the operator."""
        return importlib.import_module(self.MODULE)

    def builder(self) -> Any:
        """Raises UnsupportedError: there is no source to build."""
        raise errors.UnsupportedError(
            f"Meron does not have: {type(self).__name__}.builder(), as its library is built",
            operation="builder",
            advice="Call load().",
        )


CUDAOpBuilder = OpBuilder


class AsyncIOBuilder(OpBuilder):
    """load().aio_handle is meron.io.AsyncIOHandle."""

    NAME, MODULE = "async_io", "meron.io"


class GDSBuilder(OpBuilder):
    """Reports that it is not compatible: files are read to host memory."""

    NAME, MODULE = "gds", "meron.io"

    def is_compatible(self, verbose: bool = False) -> bool:
        return False

    def load(self, verbose: bool = False) -> ModuleType:
        raise errors.UnsupportedError(
            "Meron does not have: GPUDirect Storage (gds_handle)",
            operation="load",
            advice="Use AsyncIOBuilder().load().aio_handle, and copy to the device.",
        )


class CPUAdamBuilder(OpBuilder):
    """load() has DeepSpeedCPUAdam, an optimizer of torch."""

    NAME, MODULE = "cpu_adam", "meron.zero.ops"


class CPUAdagradBuilder(OpBuilder):
    """load() has DeepSpeedCPUAdagrad, an optimizer of torch."""

    NAME, MODULE = "cpu_adagrad", "meron.zero.ops"


class CPULionBuilder(OpBuilder):
    """load() has DeepSpeedCPULion, an optimizer of torch."""

    NAME, MODULE = "cpu_lion", "meron.zero.ops"


class FusedAdamBuilder(OpBuilder):
    """load() has FusedAdam, an optimizer of torch."""

    NAME, MODULE = "fused_adam", "meron.zero.ops"


class FusedLionBuilder(OpBuilder):
    """load() has FusedLion, an optimizer of torch."""

    NAME, MODULE = "fused_lion", "meron.zero.ops"


class UtilsBuilder(OpBuilder):
    """load() has torch's flatten and unflatten."""

    NAME, MODULE = "utils", "meron.zero.compat.flattening"


class MissingBuilder(OpBuilder):
    """The base of builders whose operators Meron does not have. They report that they are not
    compatible."""

    def is_compatible(self, verbose: bool = False) -> bool:
        return False

    def load(self, verbose: bool = False) -> ModuleType:
        """Raises UnsupportedError."""
        raise errors.UnsupportedError(
            f"Meron does not have: the operators of deepspeed.ops.op_builder.{type(self).__name__}",
            operation="load",
            advice=refused.PAGE,
        )


# By class of DeepSpeed: its name of the operator.
MISSING = {
    "DeepCompileBuilder": "dc",
    "EvoformerAttnBuilder": "evoformer_attn",
    "FPQuantizerBuilder": "fp_quantizer",
    "FusedLambBuilder": "fused_lamb",
    "InferenceBuilder": "transformer_inference",
    "InferenceCoreBuilder": "inference_core_ops",
    "InferenceCutlassBuilder": "cutlass_ops",
    "NotImplementedBuilder": "deepspeed_not_implemented",
    "QuantizerBuilder": "quantizer",
    "RaggedOpsBuilder": "ragged_device_ops",
    "RaggedUtilsBuilder": "ragged_ops",
    "RandomLTDBuilder": "random_ltd",
    "SparseAttnBuilder": "sparse_attn",
    "SpatialInferenceBuilder": "spatial_inference",
    "StochasticTransformerBuilder": "stochastic_transformer",
    "TransformerBuilder": "transformer",
}


def missing_builders() -> dict[str, type[OpBuilder]]:
    """The classes of MISSING."""
    return {
        name: type(name, (MissingBuilder,), {"NAME": operator, "__module__": __name__})
        for name, operator in MISSING.items()
    }


globals().update(missing_builders())


def get_default_compute_capabilities() -> str:
    """ "": nothing is compiled for a device."""
    return ""


ALL_OPS = {
    kind.NAME: kind()
    for kind in (
        AsyncIOBuilder,
        CPUAdamBuilder,
        CPUAdagradBuilder,
        CPULionBuilder,
        FusedAdamBuilder,
        FusedLionBuilder,
        UtilsBuilder,
    )
}


def compatible_ops() -> dict[str, bool]:
    """By name of each operator of DeepSpeed: True if Meron has it."""
    known = {name: builder.is_compatible() for name, builder in ALL_OPS.items()}
    return {**known, **dict.fromkeys((GDSBuilder.NAME, *MISSING.values()), False)}


__all__ = [
    "ALL_OPS",
    "AsyncIOBuilder",
    "CPUAdagradBuilder",
    "CPUAdamBuilder",
    "CPULionBuilder",
    "CUDAOpBuilder",
    "FusedAdamBuilder",
    "FusedLionBuilder",
    "GDSBuilder",
    "OpBuilder",
    "UtilsBuilder",
    *MISSING,
]
