# SPDX-License-Identifier: Apache-2.0
"""Params: named tensors that the ranks of a group share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from meron import errors
from meron._arguments import as_flag, as_shape
from meron._base_context import BaseContext
from meron._loans import Shown
from meron._methods import ParamMethods
from meron._native import (
    NULL,
    Owner,
    call,
    initial,
    lib,
    new,
    receive,
    refuse_unknown,
    sized,
    string,
    text,
)
from meron.dtypes import CODES, NAMES, NUMPY, DType, DTypeName, dtype_name
from meron.group import Group


class Param(ParamMethods, Owner):
    """A named tensor that the ranks of a group share. Made by `Context.param`.

    Attributes:
        name:   unique in the context.
        shape:  of the whole tensor; () is a scalar.
        dtype:  NumPy's type of its elements; of bf16, `meron.bfloat16`.
        dtype_name: "f32", "bf16" or "f16".
        size:   elements of the whole tensor.
        frozen: whether it has no gradient and no optimizer state.
    """

    _release_function = lib.meron_param_release
    __setattr__ = refuse_unknown
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dtype_name: DTypeName
    size: int
    frozen: bool

    def __init__(self, context: BaseContext, description: Any) -> None:
        self._context = context
        self._shown: Shown | None = None  # of its unit
        self._receive("meron_param *", lib.meron_param_register, context._handle, description)
        info = self._info()
        self.name = string(receive("const char **", lib.meron_param_name, self._handle))
        self.shape = tuple(info.shape[0 : info.dims])
        self.dtype_name = NAMES[info.dtype]
        self.dtype = NUMPY[self.dtype_name]
        self.size = info.count
        self.frozen = bool(info.frozen)

    def __repr__(self) -> str:
        return f"<meron.Param {self.name!r}: {self.dtype_name} {self.shape}>"

    @property
    def shard_range(self) -> range:
        """The elements, row-major, that this rank updates; empty before it is in a unit."""
        info = self._info()
        return range(info.shard_offset, info.shard_offset + info.shard_count)

    def _keep(self) -> tuple[Any, ...]:
        """Returns the objects that an array of its memory keeps alive."""
        mark = None if self._shown is None else self._shown.mark
        return (self._context._require_open(), mark)

    def _info(self) -> Any:
        self._context._require_open()
        info = sized("meron_param_info")
        call(lib.meron_param_get_info, info, self._handle)
        return info


def register(
    context: BaseContext,
    name: str,
    shape: SupportsIndex | Sequence[int],
    dtype: DType,
    frozen: bool,
    group: Group | None,
) -> Param:
    """Context.param."""
    sizes = as_shape(shape)
    try:
        c_shape = new("int64_t[]", sizes) if sizes else NULL
    except OverflowError:
        raise errors.argument(f"{name}: the shape {sizes} does not fit 64 bits", name) from None
    c_name = new("char[]", text(name, "the name of a param"))
    desc = initial("meron_param_desc")
    desc.dtype = CODES[dtype_name(dtype)]
    desc.name = c_name
    desc.shape = c_shape
    desc.dims = len(sizes)
    desc.frozen = as_flag(frozen, "frozen")
    if group is not None:
        desc.group = group._handle
    return Param(context, desc)


def handles_of(objects: Iterable[Any], kind: type[Owner]) -> list[Any]:
    """The handles of some objects; TypeError for one of another kind."""
    handles = []
    for item in objects:
        if not isinstance(item, kind):
            raise TypeError(f"expected a meron.{kind.__name__}, not {item!r}")
        handles.append(item._handle)
    return handles
