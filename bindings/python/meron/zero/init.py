# SPDX-License-Identifier: Apache-2.0
"""zero.Init: modules are sharded as they are built, so that the model is never whole.

Within the context the `__init__` of every subclass of torch.nn.Module is wrapped. When the
outermost `__init__` of an object returns, its own params become a unit; those of its parts became
theirs before. Code of a parent that reads or writes params of a part (to initialise or tie them)
sees them whole, and rank 0's changes count. Classes get their own `__init__` back when the context
ends.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch.nn.utils.parametrize import ParametrizationList

import meron
from meron import errors
from meron.torch.resolve.device import device_for, new_device
from meron.torch.sharding import Sharding
from meron.torch.torch_internals import begun, own_params
from meron.torch.wrap import is_sharded
from meron.zero.config import Config, Source, parse
from meron.zero.copying import copy_unsharded, let_copy
from meron.zero.filling import apply_whole, fill_weights
from meron.zero.gathered import LazyGather, checked
from meron.zero.leaf import fits, set_leaves_of_config, set_z3_leaf_module
from meron.zero.pretrained import Awaited, load_pretrained, read_names_alone
from meron.zero.tiers import plan_for
from meron.zero.units import open_sharding, set_limits, shard_module, shard_part, units_of
from meron.zero.wrapper import Wrapper

MODULE = torch.nn.Module


class State(threading.local):
    """Of a thread: the outermost Init, and what is being built."""

    init: Init | None = None
    depth = 0


state = State()


class Init:
    """Shards modules while they are built: `with meron.zero.Init(config_dict_or_path=config): ...`.

    Collective: all ranks build the same. A context within another is part of it.

    Args:
        module: one that is built already is sharded at once.
        data_parallel_group, sequence_data_parallel_group: the torch.distributed group to shard over
            (at most one of them); default is all ranks.
        config_dict_or_path, config: DeepSpeed's config (one of them); default is stage 3.
        enabled: False does nothing.
        dtype: of the params; default is the config's, else as they are built.
        mpu: get_data_parallel_group() of it is the group.
        remote_device: None, "cpu" or "nvme": where params lie between gathers. "nvme" needs the
            folder of the config's zero_optimization.offload_param.nvme_path.
        zero_param_parallel_group: hpZ: a torch.distributed group of consecutive ranks, as
            zero_hpz_partition_size of the config with its size.
        zero_quantized_weights, zero_quantized_nontrainable_weights: as the config's keys.
        mem_efficient_linear, pin_memory: without effect here.
        device: where the model computes, as meron.torch.shard has it. Default is where `module` is;
            else MERON_TORCH_DEVICE, or on a rank that a launcher started the CUDA device of its
            LOCAL_RANK, which becomes the current one.

    Raises ArgumentError, and UnsupportedError for what Meron does not have.
    """

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        data_parallel_group: Any = None,
        mem_efficient_linear: bool = True,
        remote_device: str | None = None,
        pin_memory: bool = False,
        config_dict_or_path: Source = None,
        config: Source = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        mpu: Any = None,
        zero_param_parallel_group: Any = None,
        zero_quantized_weights: bool = False,
        zero_quantized_nontrainable_weights: bool = False,
        sequence_data_parallel_group: Any = None,
        param_swapper: Any = None,
        tensor_overrides: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.enabled = enabled
        self.sharding: Sharding | None = None
        if not enabled:
            return
        self.group = choose_group(data_parallel_group, sequence_data_parallel_group, mpu)
        refuse(param_swapper=param_swapper, tensor_overrides=tensor_overrides)
        self.config = self.read_config(config_dict_or_path, config)
        self.check_device(remote_device)
        topology = self.config.topology
        topology.weights |= bool(zero_quantized_weights)
        topology.frozen |= bool(zero_quantized_nontrainable_weights)
        if zero_param_parallel_group is not None:
            topology.take_copy_group(zero_param_parallel_group, self.group)
        if dtype not in (None, torch.float32, torch.float16, torch.bfloat16):
            raise errors.argument(
                f"dtype is {dtype}: float32, float16 and bfloat16 are known", "dtype"
            )
        self.dtype = dtype or self.config.dtype
        self.device = new_device(device) if module is None else device_for([module], device)
        self.plan: meron.Plan = plan_for(self.config, self.device)
        self.running: set[int] = set()  # ids of objects whose __init__ runs
        self.awaited: Awaited | None = None  # while pretrained weights are loaded
        self.undo = contextlib.ExitStack()
        if module is not None:
            self.convert(module)

    def check_device(self, device: str | None) -> None:
        if device not in (None, "none", "cpu", "nvme"):
            raise errors.UnsupportedError(
                f"remote_device {device!r}: params live in host memory, or on nvme",
                subject="remote_device",
                advice='Leave it out, or pass "cpu" or "nvme".',
            )
        if device == "nvme" and self.config.offload.param_path is None:
            raise errors.argument(
                "remote_device is nvme, and the config names no folder for params",
                subject="remote_device",
                advice='Give "offload_param": {"device": "nvme", "nvme_path": ...} in the '
                "config's zero_optimization.",
            )

    def read_config(self, config_dict_or_path: Source, config: Source) -> Config:
        if config is not None and config_dict_or_path is not None:
            raise errors.argument("config and config_dict_or_path are both given")
        source = config if config_dict_or_path is None else config_dict_or_path
        return Config(stage=3) if source is None else parse(source)

    def convert(self, module: torch.nn.Module) -> None:
        set_leaves_of_config(module, self.config.leaf)
        sharding = self.open()
        shard_module(sharding, module, sharding.unique(type(module).__name__), dtype=self.dtype)
        let_copy(module)
        self.check_changes(module)

    def check_changes(self, module: torch.nn.Module) -> None:
        if self.config.sanity_checks:
            checked.update(units_of(module))

    def open(self) -> Sharding:
        """The sharding that modules go to; opened when the first comes. Collective then."""
        if self.sharding is None or self.sharding.context.closed:
            self.sharding = open_sharding(self.config, self.plan, self.group, self.device)
            set_limits(self.sharding, self.config.limits_of(self.sharding.context.world_size))
        return self.sharding

    # ---- The context ---------------------------------------------------------------------------

    def __enter__(self) -> Init:
        if not self.enabled:
            return self
        state.depth += 1
        if state.depth == 1:
            state.init = self
            try:
                self.patch()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self.enabled:
            return
        state.depth -= 1
        if state.depth == 0:
            outermost, state.init = state.init, None
            assert outermost is not None
            outermost.undo.close()  # also where contexts end in another order than they began

    def patch(self) -> None:
        for kind in list(subclasses(MODULE)):
            self.wrap(kind)
        hook = functools.partial(new_subclass, self)
        self.replace(MODULE, "__init_subclass__", classmethod(lambda cls, **kw: hook(cls, **kw)))
        plain_empty, plain_apply = MODULE.to_empty, MODULE.apply

        def to_empty(module: torch.nn.Module, **kwargs: Any) -> torch.nn.Module:
            # Part of torch.nn.utils.skip_init: here the params have memory already.
            if any(is_sharded(part) for part in module.modules()):
                return module
            return plain_empty(module, **kwargs)

        def deepcopy(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
            result = copy_unsharded(module, memo)
            if is_sharded(module):
                self.shard(result)
            return result

        self.replace(MODULE, "to_empty", to_empty)
        self.replace(MODULE, "__deepcopy__", deepcopy)
        if self.config.override_apply:
            self.replace(
                MODULE,
                "apply",
                lambda module, fn: apply_whole(module, fn, plain_apply, self.sharding),
            )

    def replace(self, target: Any, name: str, value: Any) -> None:
        """Sets an attribute until the context ends. One that was set again since, as a class
        decorator does, stays."""
        own = target.__dict__.get(name)
        setattr(target, name, value)
        value = target.__dict__[name]

        def restore() -> None:
            if target.__dict__.get(name) is not value:
                return
            if own is None:
                delattr(target, name)
            else:
                setattr(target, name, own)

        self.undo.callback(restore)

    def wrap(self, kind: type[torch.nn.Module]) -> None:
        self.wrap_methods(kind)
        plain = kind.__dict__.get("__init__")
        if plain is None or kind.__module__.startswith("torch.jit"):
            return

        @functools.wraps(plain)
        def init(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
            own = state.init
            if own is None or id(module) in own.running:
                plain(module, *args, **kwargs)
            else:
                own.build(module, plain, args, kwargs)

        self.replace(kind, "__init__", init)

    def wrap_methods(self, kind: type[torch.nn.Module]) -> None:
        """Wraps the methods of Hugging Face's classes that load and that initialise weights."""
        load, fill = (kind.__dict__.get(name) for name in ("from_pretrained", "_init_weights"))
        if isinstance(load, classmethod):
            self.replace(kind, "from_pretrained", load_pretrained(load, self))
        if callable(fill):
            self.replace(kind, "_init_weights", fill_weights(fill, lambda: self.sharding))
        read_names_alone(kind)

    def build(self, module: torch.nn.Module, plain: Any, args: Any, kwargs: Any) -> None:
        """Runs the outermost __init__ of an object, then shards what it owns."""
        with LazyGather(self.open()):
            self.running.add(id(module))
            try:
                plain(module, *args, **kwargs)
            finally:
                self.running.discard(id(module))
        if not begun(module) or isinstance(module, Wrapper):
            return  # did not call Module.__init__; or is an engine, and no part of the model
        if any(
            isinstance(param, torch.nn.parameter.UninitializedParameter)
            for param in own_params(module).values()
        ):
            return  # lazy: initialize shards it, after its first forward
        if isinstance(module, ParametrizationList):
            return  # initialize shards it, with the module that it is of
        if fits_leaf(module, self.config):
            set_z3_leaf_module(module, True)
        if self.awaited is None or not self.awaited.awaits(module):
            self.shard(module)

    def shard(self, module: torch.nn.Module, **options: bool) -> None:
        """Makes a unit of the own params of a module that is built."""
        sharding = self.open()
        name = sharding.unique(type(module).__name__)
        shard_part(sharding, module, name, dtype=self.dtype, **options)
        let_copy(module)
        self.check_changes(module)


def fits_leaf(module: torch.nn.Module, config: Config) -> bool:
    return any(fits(module, name) for name in config.leaf.classes)


def subclasses(kind: type[torch.nn.Module]) -> Iterator[type[torch.nn.Module]]:
    seen: set[type[torch.nn.Module]] = set()

    def visit(base: type[torch.nn.Module]) -> Iterator[type[torch.nn.Module]]:
        for sub in base.__subclasses__():
            if sub not in seen:
                seen.add(sub)
                yield sub
                yield from visit(sub)

    yield from visit(kind)


def new_subclass(init: Init, kind: type[torch.nn.Module], **kwargs: Any) -> None:
    """A class that is defined within the context."""
    super(MODULE, kind).__init_subclass__(**kwargs)
    init.wrap(kind)


def choose_group(data_parallel: Any, sequence_data_parallel: Any, mpu: Any) -> Any:
    if data_parallel is not None and sequence_data_parallel is not None:
        raise errors.argument(
            "data_parallel_group and sequence_data_parallel_group are both given",
            advice="Give the one that params are to be sharded over.",
        )
    for group in (data_parallel, sequence_data_parallel):
        if group is not None:
            return group
    if mpu is None:
        return None
    for name in ("get_sequence_data_parallel_group", "get_data_parallel_group"):
        if hasattr(mpu, name):
            return getattr(mpu, name)()
    raise errors.argument("mpu has no get_data_parallel_group()", subject="mpu")


def refuse(**given: Any) -> None:
    """UnsupportedError naming arguments that Meron has nothing for."""
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise errors.UnsupportedError(
            f"Meron does not have yet: {', '.join(names)}", subject=names[0], advice="Leave it out."
        )


class MiCS_Init(Init):
    """Init for MiCS: groups of `mics_shard_size` ranks shard a model among themselves.

    `Init` does the same with such a config. The arguments are DeepSpeed's, in its order; a config
    with mics_shard_size is mandatory.

    Raises ArgumentError.
    """

    def __init__(
        self,
        module: torch.nn.Module | None = None,
        data_parallel_group: Any = None,
        sequence_data_parallel_group: Any = None,
        mem_efficient_linear: bool = True,
        remote_device: str | None = None,
        pin_memory: bool = False,
        config_dict_or_path: Source = None,
        config: Source = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        mpu: Any = None,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__(
            module,
            data_parallel_group,
            mem_efficient_linear,
            remote_device,
            pin_memory,
            config_dict_or_path,
            config,
            enabled,
            dtype,
            mpu,
            sequence_data_parallel_group=sequence_data_parallel_group,
            device=device,
        )

    def read_config(self, config_dict_or_path: Source, config: Source) -> Config:
        if config_dict_or_path is None and config is None:
            raise errors.argument(
                "MiCS_Init needs a config",
                subject="config_dict_or_path",
                advice="Pass config_dict_or_path with zero_optimization.mics_shard_size, or use "
                "zero.Init.",
            )
        parsed = super().read_config(config_dict_or_path, config)
        if not parsed.topology.mics:
            raise errors.argument(
                "MiCS_Init needs zero_optimization.mics_shard_size, which the config leaves off",
                subject="zero_optimization.mics_shard_size",
                advice="Give the number of ranks that shard a model among themselves, or use "
                "zero.Init.",
            )
        return parsed
