# SPDX-License-Identifier: Apache-2.0
"""Classes of params that are out of use. Torch's own dispatch lets them see every use.

A param changes its class in place, which costs 50 ns and leaves it the object that it was. In use
it has its own class, so that uses cost nothing; out of use it has one of these beside:

    Sharded    it has metadata and no values: reading and writing values raises
    Unsharded  its values are the engine's memory: they can be read, and a write is made to a copy,
               which is published

Detached aliases (`param.data`, `param.detach()`, views) are guarded likewise. Code of Meron's that
handles params out of use does so within `plain()`.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NoReturn, Protocol

import numpy as np
import torch

import meron
from meron import errors
from meron.torch import registry
from meron.torch.graph_inputs import BACKWARD, GRAD, differentiate
from meron.torch.torch_internals import (
    APPLY_IN_BACKWARD,
    IN_BACKWARD,
    PRIVATE_METADATA,
    PRIVATE_SETTERS,
    plain,
    same_storage,
)

READ = (
    "Call meron.torch.full_param(param) on all ranks for a copy of its values, or read it in its "
    "module's forward (as model(x), not model.forward(x)), under meron.zero.GatheredParameters, or "
    "between meron.torch.unshard(module) and reshard(module) of the module that has the param."
)
WRITE = (
    "Use meron.torch.set_full_param(param, value), load_state_dict, or "
    "meron.zero.GatheredParameters with modifier_rank."
)


def functions(names: str, *owners: Any) -> set[Any]:
    """The functions, methods and getters of these names, as torch's dispatch passes them."""
    found = set()
    for name in names.split():
        for owner in owners:
            each = getattr(owner, name, None)
            if each is not None:
                found.add(each if callable(each) else each.__get__)
    return found


# Functions that read no values, or return memory of the same kind.
METADATA = (
    functions(
        "shape dtype device layout ndim itemsize nbytes names requires_grad grad grad_dtype "
        "is_leaf retains_grad output_nr name volatile "
        "is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps "
        "is_mtia is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu is_hpu",
        torch.Tensor,
    )
    | functions(
        PRIVATE_METADATA,
        torch.Tensor,
    )
    | functions(
        "size dim ndimension numel nelement element_size is_floating_point is_complex is_signed "
        "is_inference is_conj is_neg is_shared is_same_size get_device has_names requires_grad_ "
        "retain_grad detach_ register_hook register_post_accumulate_grad_hook __len__ "
        "untyped_storage new_empty new_zeros new_ones new_full new_tensor "
        "empty_like zeros_like ones_like full_like "
        "rand_like randn_like randint_like result_type __dlpack_device__",
        torch.Tensor,
        torch,
    )
)
METADATA |= {getattr(torch.Tensor, name).__set__ for name in ("requires_grad", *PRIVATE_SETTERS)}
GRADIENT: Any = torch.Tensor.grad
SET_GRADIENT = {GRADIENT.__set__, GRADIENT.__delete__}
# Of the unsharded param, which is contiguous.
STRIDE, IS_CONTIGUOUS, OFFSET = (
    torch.Tensor.stride,
    torch.Tensor.is_contiguous,
    torch.Tensor.storage_offset,
)
GET_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
DETACH = torch.Tensor.detach
ALIASES = {DETACH, torch.detach, GET_DATA}
COPY = torch.Tensor.copy_
# 0 without values, as of FSDP2's params and of DeepSpeed's.
DATA_PTR = torch.Tensor.data_ptr
VIEW_AS = torch.Tensor.view_as
GRAPH = torch.autograd.graph.__name__
VIEWS = functions("view __getitem__", torch.Tensor)
MOVES = functions("cpu to", torch.Tensor)
NUMPY = torch.Tensor.numpy
MAKE_PARAMETER = torch.nn.Parameter.__new__.__code__
# Names of methods that end as those that write do.
NO_WRITES = {"requires_grad_", "detach_"}
WRITES = {SET_DATA, torch.Tensor.__setitem__, torch.Tensor.__setstate__}


class Owner(Protocol):
    """The unit of a param."""

    handles: list[meron.Param]
    params: list[torch.nn.Parameter]

    def takes_writes(self) -> bool:
        """True if values may be written now, out of use."""

    def publish(self, values: dict[int, torch.Tensor]) -> None:
        """Makes values of some params those of all ranks. Collective."""

    def set_gradient(self, i: int, value: torch.Tensor | None) -> None:
        """The user writes to `param.grad`."""


def refuse_in_backward(name: str) -> NoReturn:
    raise errors.UnsupportedError(
        f"'{name}': a sharded param cannot have an optimizer of {APPLY_IN_BACKWARD}, which steps "
        "on the gradient of one rank",
        subject=name,
        advice="Use meron.torch.shard_optimizer or an optimizer of meron.torch, and call step() "
        "after the backward.",
    )


class InBackward:
    """The attribute of a sharded param that torch.distributed.optim would set."""

    def __get__(self, _tensor: Any, _kind: Any = None) -> NoReturn:
        raise AttributeError(IN_BACKWARD)

    def __set__(self, tensor: Any, _value: Any) -> NoReturn:
        unit, i = place_of(tensor)
        refuse_in_backward(unit.handles[i].name)


class NameOfDTensor:
    """A method of DTensor's that a sharded param lacks; `hasattr` is False."""

    def __init__(self, name: str, function: str) -> None:
        self.name = name
        self.function = function

    def __get__(self, _tensor: Any, _kind: Any = None) -> NoReturn:
        raise AttributeError(
            f"a sharded param of Meron is no DTensor and has no {self.name}(): call "
            f"meron.torch.{self.function}(param)"
        )


class Guarded:
    """Methods of both kinds. A base of subclasses of torch.Tensor."""

    __slots__ = ()
    full_tensor = NameOfDTensor("full_tensor", "full_param")
    to_local = NameOfDTensor("to_local", "local_param")

    def __hash__(self) -> int:
        return id(self)  # as torch's, past its dispatch


setattr(Guarded, IN_BACKWARD, InBackward())


class Sharded(Guarded):
    """It has no values."""

    __slots__ = ()

    def __repr__(self, **_options: Any) -> str:
        unit, i = place_of(self)
        handle = unit.handles[i]
        return (
            f"<{type(self).__name__} '{handle.name}', {handle.shape}, {handle.dtype_name}, sharded>"
        )

    def __format__(self, _spec: str) -> str:
        return repr(self)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        refuse_read(self, "pickled")

    def as_subclass(self, _kind: Any) -> Any:
        """Past PyTorch's dispatch it would give memory without values."""
        refuse_read(self, "as_subclass")

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in METADATA:
            with plain():
                return function(*args, **kwargs)
        first = args[0] if args else None
        if function in SET_GRADIENT:
            return set_gradient(*args)
        if function is GRAD or function is BACKWARD:
            return differentiate(function, args, kwargs, Guarded)
        if function is VIEW_AS and is_edge(sys._getframe(1)):
            with plain():
                return function(*args)
        if function in ALIASES:
            refuse_parameter(first)
            with plain():
                return alias(function(*args, **kwargs), first, ShardedAlias)
        if function is STRIDE or function is IS_CONTIGUOUS or function is OFFSET:
            with plain():
                like = torch.empty(tuple(args[0].shape), device="meta")
                return function(like, *args[1:], **kwargs)
        if function is DATA_PTR and isinstance(first, Guarded):
            return 0
        if function is COPY and registry.loading is not None and isinstance(first, Guarded):
            registry.loading.take(first, args[1])
            return first
        found = next(guarded_in((args, kwargs)), None)
        if found is None:  # beside a tensor of another kind that is none of Meron's
            with plain():
                return function(*args, **kwargs)
        written = next(written_by(function, args, kwargs), None)
        if written is not None:
            if may_skip(written):
                return written
            refuse_write(written, name_of(function))
        refuse_read(found, name_of(function))


class Unsharded(Guarded):
    """Its values can be read, and are the engine's."""

    __slots__ = ()

    def __repr__(self, **options: Any) -> str:
        with plain():
            value = self.detach()  # type: ignore[attr-defined]
            if isinstance(self, torch.nn.Parameter):
                value = torch.nn.Parameter(value, self.requires_grad)
            return repr(value)

    def __format__(self, spec: str) -> str:
        with plain():
            return format(self.detach(), spec)  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copied(self).__reduce_ex__(protocol)

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in METADATA:
            with plain():
                return function(*args, **kwargs)
        if function in SET_GRADIENT:
            return set_gradient(*args)
        if function is GRAD or function is BACKWARD:
            return differentiate(function, args, kwargs, Guarded)
        if function is VIEW_AS and is_edge(sys._getframe(1)):
            with plain():
                return function(*args)
        if function is COPY and registry.loading is not None and isinstance(args[0], Guarded):
            registry.loading.take(args[0], args[1])
            return args[0]
        written = list(written_by(function, args, kwargs))
        if written:
            return write_through(function, args, kwargs, written)
        if function is DETACH:
            refuse_parameter(args[0])
        if function is torch.Tensor.__dlpack__:
            args = (copied(args[0]).detach(), *args[1:])  # whose reader may write
        with plain():
            result = function(*args, **kwargs)
            return guard_result(result, list(guarded_in((args, kwargs))))


class ShardedAlias(Sharded, torch.Tensor):  # type: ignore[misc]
    """`param.data` of a param without values."""


class StateEntry(ShardedAlias):
    """The entry of a local state_dict() for a param without values. It has the param's shape.

    It also has memory of its own, because code that saves compares addresses to find tied params.
    The same code looks at the addresses of views.

    numpy() is an empty array, as that of DeepSpeed's entries: libraries hash state dicts.
    """

    advice_of_read = (
        "state_dict() of a model that meron.zero has sharded is local, as DeepSpeed's. Call "
        "meron.zero.full_state_dict(model) on all ranks, and pass it on (state_dict=...); or "
        "engine.save_16bit_model, or state_dict() within meron.zero.GatheredParameters of all "
        "params."
    )

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function in VIEWS and type(args[0]) is cls:
            with plain():
                return alias(function(*args, **(kwargs or {})), args[0], cls)
        if function in MOVES and type(args[0]) is cls:
            return args[0]
        if function is NUMPY:
            return args[0].without_values()
        return super().__torch_function__(function, types, args, kwargs)

    def without_values(self) -> np.ndarray[Any, Any]:
        unit, i = place_of(self)
        warnings.warn(
            f"numpy() of '{unit.handles[i].name}' in a state_dict() is empty: "
            f"{self.advice_of_read}",
            stacklevel=3,
        )
        return np.empty(0, np.float32)


class UnshardedAlias(Unsharded, torch.Tensor):  # type: ignore[misc]
    """A detached alias or a view of values that are not to be written."""


@cache
def sharded_class(kind: type[torch.Tensor]) -> Any:
    make: Any = type(kind)
    members = {"__module__": kind.__module__, "detach": DETACH}
    return make(kind.__name__, (Sharded, kind), members)


@cache
def unsharded_class(kind: type[torch.Tensor]) -> Any:
    members: dict[str, Any] = {"__module__": kind.__module__, "detach": DETACH}
    if kind.__deepcopy__ is torch.nn.Parameter.__deepcopy__:
        members["__deepcopy__"] = deep_copy
    make: Any = type(kind)
    return make(kind.__name__, (Unsharded, kind), members)


def deep_copy(param: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """A Parameter of its own, which is not sharded."""
    if id(param) not in memo:
        memo[id(param)] = copied(param)
    return memo[id(param)]  # type: ignore[no-any-return]


def copied(tensor: Any) -> torch.Tensor:
    with plain():
        value = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(value, tensor.requires_grad)
        return value  # type: ignore[no-any-return]


# ---- Tensors of a call --------------------------------------------------------------------------


def place_of(tensor: Any) -> tuple[Owner, int]:
    """Of a param, or of an alias of one."""
    place: tuple[Owner, int] | None = tensor.__dict__.get("_meron")
    return place if place is not None else tensor._meron_of._meron


def guarded_in(value: Any) -> Iterator[Any]:
    if isinstance(value, Guarded):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from guarded_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from guarded_in(item)


def written_by(function: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """The guarded tensors that a call would write to."""
    if "out" in kwargs:
        yield from guarded_in(kwargs["out"])
    if not args:
        args = (kwargs.get("tensor"),)  # as functions of torch.nn.init pass theirs
    name = name_of(function)
    in_place = (
        (name.endswith("_") and not name.endswith("__") and name not in NO_WRITES)
        or (name.startswith("__i") and name not in ("__int__", "__index__", "__invert__"))
        or function in WRITES
        or kwargs.get("inplace")
    )
    if in_place and name != "__iter__":
        yield from guarded_in(args[0])
    if kwargs.get("max_norm") is not None:  # embedding, which scales what it looks up
        yield from guarded_in(args[1:2])


def is_edge(caller: Any) -> bool:
    """True in torch's get_gradient_edge and its kin, which look at the graph of a view."""
    return bool(caller.f_globals.get("__name__") == GRAPH)


def alias(result: torch.Tensor, of: Any, kind: Any) -> torch.Tensor:
    guarded: Any = result.as_subclass(kind)
    guarded._meron_of = of.__dict__.get("_meron_of", of)
    return guarded  # type: ignore[no-any-return]


def guard_result(result: Any, params: list[Any]) -> Any:
    """The same with aliases of the params guarded as these are."""
    if isinstance(result, torch.Tensor):
        if isinstance(result, Guarded) or result.layout is not torch.strided:
            return result
        for param in params:
            if same_storage(result, param):
                return alias(result, param, UnshardedAlias)
    elif type(result) in (tuple, list):
        return type(result)(guard_result(item, params) for item in result)
    elif isinstance(result, np.ndarray):
        result.flags.writeable = False
    return result


# ---- Writes -------------------------------------------------------------------------------------


class Copies:
    """Copies of params, which a call writes in their place."""

    def __init__(self, places: Iterable[tuple[Owner, int]]) -> None:
        self.values = {place: place[0].params[place[1]].detach().clone() for place in places}
        # By id: a tensor of the call, and the one in its place.
        self.replaced: dict[int, tuple[Any, torch.Tensor]] = {}

    def replace(self, tensor: Any) -> Any:
        """The tensor that stands for a param, or for an alias of one."""
        place = place_of(tensor)
        if place not in self.values:
            return tensor
        if id(tensor) not in self.replaced:
            copy = self.values[place]
            if isinstance(tensor, torch.nn.Parameter):
                other = copy.detach().requires_grad_(tensor.requires_grad)
            else:
                first = place[0].params[place[1]].storage_offset()
                offset = tensor.storage_offset() - first
                other = copy.as_strided(tensor.size(), tensor.stride(), offset)
            self.replaced[id(tensor)] = tensor, other
        return self.replaced[id(tensor)][1]

    def original(self, result: Any) -> Any:
        """A result of the call with the tensors that were replaced."""
        for tensor, other in self.replaced.values():
            if other is result:
                return tensor
        return result

    def has_moved(self) -> Any:
        """A tensor whose memory or shape the call has changed, not its values; None if none."""
        for tensor, other in self.replaced.values():
            same = other.size() == tensor.size() and other.stride() == tensor.stride()
            if not same or not same_storage(other, self.values[place_of(tensor)]):
                return tensor
        return None


def write_through(function: Any, args: Any, kwargs: Any, written: list[Any]) -> Any:
    """Calls a function that writes to params out of use: it writes to copies of them, which all
    ranks publish then. Collective; blocks on peers.

    If the function raises, nothing has changed. StateError for params that cannot be written now.
    """
    name = name_of(function)
    with plain():
        for tensor in written:
            unit, i = place_of(tensor)
            if not unit.takes_writes() or not same_storage(tensor, unit.params[i]):
                refuse_write(tensor, name)
        if function == SET_DATA:  # a new object each time
            set_data(*args)
            return None
        if function == torch.Tensor.__setstate__:
            refuse_write(written[0], name)
        copies = Copies(map(place_of, written))
        args, kwargs = map_guarded(copies.replace, (args, kwargs))
        result = function(*args, **kwargs)
        moved = copies.has_moved()
        if moved is not None:
            refuse_other_shape(moved, f"{name} would change its shape or memory")
        publish(copies.values)
        return map_items(copies.original, result)


def set_data(param: Any, value: torch.Tensor) -> None:
    """`param.data = value`: values of the same shape and dtype are written to the param."""
    unit, i = place_of(param)
    if not isinstance(param, torch.nn.Parameter):
        refuse_write(param, "data")
    if same_storage(value, param):  # as at the end of `param.data += x`
        return
    if value.shape != param.shape or value.dtype != param.dtype:
        given = f"shape {tuple(value.shape)} and {value.dtype}"
        refuse_other_shape(param, f"param.data was given {given}, and the param has")
    publish({(unit, i): value.detach().clone()})


def refuse_other_shape(tensor: Any, what: str) -> NoReturn:
    unit, i = place_of(tensor)
    handle = unit.handles[i]
    raise errors.StateError(
        f"'{handle.name}' is sharded: {what} ({tuple(handle.shape)}, {handle.dtype_name})",
        subject=handle.name,
        advice="Write values of its shape and dtype.",
    )


def publish(values: dict[tuple[Owner, int], torch.Tensor]) -> None:
    """Writes params, unit by unit, in the order of the call, which is the same on all ranks."""
    of_units: dict[Owner, dict[int, torch.Tensor]] = {}
    for (unit, i), value in values.items():
        of_units.setdefault(unit, {})[i] = value
    for unit, own in of_units.items():
        unit.publish(own)


def map_items(function: Callable[[Any], Any], value: Any) -> Any:
    """The same with the items of lists, tuples and dicts replaced."""
    if type(value) in (tuple, list):
        return type(value)(map_items(function, item) for item in value)
    if type(value) is dict:
        return {key: map_items(function, item) for key, item in value.items()}
    return function(value)


def map_guarded(function: Callable[[Any], Any], value: Any) -> Any:
    return map_items(lambda item: function(item) if isinstance(item, Guarded) else item, value)


# ---- Others -------------------------------------------------------------------------------------


def set_gradient(tensor: Any, value: torch.Tensor | None = None) -> None:
    """Writes `tensor.grad`; None drops what the engine has of it, too."""
    place: tuple[Owner, int] | None = tensor.__dict__.get("_meron")
    if place is not None:
        unit, i = place
        unit.set_gradient(i, value)
    with plain():
        tensor.grad = value


def name_of(function: Any) -> str:
    name = getattr(function, "__name__", str(function))
    return str(function.__self__.__name__) if name in ("__get__", "__set__", "__delete__") else name


def refuse_read(tensor: Any, what: str) -> Any:
    unit, i = place_of(tensor)
    name = unit.handles[i].name
    raise errors.StateError(
        f"'{name}' is sharded and not in use: its values cannot be read ({what})",
        subject=name,
        advice=getattr(tensor, "advice_of_read", READ),
    )


def refuse_parameter(tensor: Any) -> None:
    """StateError where torch.nn.Parameter(tensor), which calls detach, would share its memory."""
    if sys._getframe(2).f_code is MAKE_PARAMETER:
        unit, i = place_of(tensor)
        name = unit.handles[i].name
        raise errors.StateError(
            f"'{name}' is sharded: torch.nn.Parameter({name.rpartition('.')[2]}) would share its "
            "memory",
            subject=name,
            advice="Pass a copy of the values, meron.torch.full_param(param), on all ranks.",
        )


@contextlib.contextmanager
def skip_writes(applies: Callable[[Any], bool]) -> Iterator[None]:
    """Within it, writes to some sharded params out of use have no effect, and raise nothing.

    For code that initialises params which get other values in any case.
    """
    outer, registry.thread.skips = registry.thread.skips, applies
    try:
        yield
    finally:
        registry.thread.skips = outer


def may_skip(tensor: Any) -> bool:
    applies = registry.thread.skips
    return applies is not None and bool(applies(tensor.__dict__.get("_meron_of", tensor)))


def refuse_write(tensor: Any, what: str) -> Any:
    unit, i = place_of(tensor)
    name = unit.handles[i].name
    raise errors.StateError(
        f"'{name}' is sharded: a write while it is not in use would be lost ({what})",
        subject=name,
        advice=getattr(tensor, "advice", WRITE),
    )
