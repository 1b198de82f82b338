# SPDX-License-Identifier: Apache-2.0
"""Every private name of PyTorch that meron.torch and meron.zero use. No other module uses one.
`tests/tidy` checks it.

The import of this module looks up all of them. If PyTorch lacks a name that Meron requires, the
import raises an UnsupportedError that names the purpose. The other names have a public replacement.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, TypeVar, cast

import torch

from meron import errors

MISSING: Any = object()
Function = TypeVar("Function", bound=Callable[..., Any])


def optional(path: str, otherwise: Any) -> Any:
    """Returns PyTorch's object at a dotted path, or `otherwise`."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, MISSING)
        if found is MISSING:
            return otherwise
    return found


def need(path: str, purpose: str) -> Any:
    """Returns PyTorch's object at a dotted path. Raises UnsupportedError if it does not exist."""
    found = optional(path, MISSING)
    if found is MISSING:
        raise errors.UnsupportedError(
            f"PyTorch {torch.__version__} has no torch.{path}, which Meron needs to {purpose}",
            subject=f"torch.{path}",
            advice="Install a PyTorch release that docs/torch.md names as tested.",
        )
    return found


def submodule(path: str, name: str, otherwise: Any) -> Any:
    """Returns a name of a module that `import torch` alone does not import."""
    try:
        return getattr(__import__(path, fromlist=[name]), name, otherwise)
    except ImportError:
        return otherwise


# ---- Dispatch and tracing -----------------------------------------------------------------------

# Within it, the classes of guard.py do not handle calls.
plain = need("_C.DisableTorchFunctionSubclass", "handle params out of use")
no_torch_function = need("_C._disabled_torch_function_impl", "make sharded tensors of state dicts")
make_wrapper = need("Tensor._make_wrapper_subclass", "make sharded tensors of state dicts")
to_copy = need("ops.aten._to_copy", "convert sharded tensors of state dicts")
# Tensors created within it do not belong to torch.func. A tensor that is created under grad or jvp
# belongs to that transform, and cannot be used after it.
without_transforms = need("_C._DisableFuncTorch", "make params that torch.func does not own")

# By which transforms of torch.func wrap an argument: a module, and its name for the function.
WRAP_FOR_GRAD = "torch._functorch.eager_transforms", "_wrap_for_grad"
WRAP_FOR_FUNCTIONALIZE = "torch._functorch.eager_transforms", "_wrap_functional_tensor"
WRAP_FOR_VMAP = "torch._functorch.vmap", "_add_batch_dim"
# The function behind torch.nested.nested_tensor, which a call may reach without a dispatch.
MAKE_NESTED = "torch._C._nested", "nested_tensor"


def replace_wrapping(
    place: tuple[str, str], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> None:
    """Puts a function around one of these, where this PyTorch has it."""
    path, name = place
    plain = submodule(path, name, None)
    if plain is not None:
        setattr(sys.modules[path], name, wrap(plain))


tracing_state = optional("_C._get_tracing_state", lambda: True if torch.jit.is_tracing() else None)
dispatch_modes = optional("_C._len_torch_dispatch_stack", lambda: 0)
dispatch_mode = optional("_C._get_dispatch_stack_at", None)
is_wrapper = submodule(
    "torch.utils._python_dispatch", "is_traceable_wrapper_subclass", lambda _tensor: False
)
# Sets the function that compiles frames of this thread, and returns the one before.
set_eval_frame = submodule("torch._C._dynamo.eval_frame", "set_eval_frame", lambda _callback: None)


def not_compiled(function: Function) -> Function:
    """Marks a function that torch.compile must not compile. Functions that it calls may be
    compiled, if it is itself what torch.compile was given, also with fullgraph=True."""
    marked: Any = function
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = (
        "Meron gathers the params of a sharded module around each use. With fullgraph=True compile "
        "the modules that are sharded, not one around them; export the model before it is sharded"
    )
    skip_frame(marked.__code__)
    return function


def skip_frame(code: Any) -> None:
    """Has the compiler that is active leave frames of a code alone."""
    path = "torch._C._dynamo.eval_frame"
    set_strategy = submodule(path, "set_code_exec_strategy", None)
    if set_strategy is None:  # before PyTorch 2.7
        submodule(path, "skip_code", lambda _code: None)(code)
        return
    strategy = submodule(path, "_FrameExecStrategy", None)
    action = submodule(path, "_FrameAction", None)
    set_strategy(code, strategy(action.SKIP, action.DEFAULT))


def run_eagerly(function: Function) -> Function:
    """A function that torch.compile does not compile, nor what it calls."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        compiler = set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            set_eval_frame(compiler)

    return cast(Function, not_compiled(run))


# Attributes of a tensor that need no values.
PRIVATE_METADATA = "grad_fn _version _base _backward_hooks _post_accumulate_grad_hooks _is_view"
PRIVATE_SETTERS = ("_backward_hooks", "_post_accumulate_grad_hooks")

# ---- Memory and values --------------------------------------------------------------------------

# Like data_ptr(), but without a request for a writable pointer, which CHECK_WRITES rejects.
address_of = optional("_C._data_address", torch.Tensor.data_ptr)
version_of = attrgetter(need("Tensor._version", "see writes to params in use") and "_version")


def refuse_writes(tensor: torch.Tensor) -> None:
    """From now on a request for a pointer to write to raises torch's RuntimeError."""
    need("_C._set_throw_on_mutable_data_ptr", "obey MERON_CHECK_WRITES")(tensor)


def same_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)
    except NotImplementedError:  # a wrapper of torch.func, which has none
        return False


# ---- Autograd -----------------------------------------------------------------------------------

# The number of the backward that this thread runs, or -1.
current_graph_task = need("_C._current_graph_task_id", "tell a backward from a forward")
will_execute = optional("_C._will_engine_execute_node", lambda _node: True)


def accumulates(params: Iterable[torch.Tensor]) -> bool:
    """True if the backward that this thread runs adds to the gradient of one of some params, which
    torch.autograd.grad does not."""
    with plain(), without_transforms():
        for param in params:
            if not param.requires_grad:
                continue
            try:
                if will_execute(torch.autograd.graph.get_gradient_edge(param).node):
                    return True
            except RuntimeError:  # it is an input of torch.autograd.grad
                return False
    return False


engine = need("autograd.Variable._execution_engine", "see the end of a backward")


# True if the backward that this thread runs keeps its graph, for another one through it.
keeps_graph = optional("_C._autograd._get_current_graph_task_keep_graph", lambda: False)


def call_after_backward(function: Callable[[], None]) -> None:
    engine.queue_callback(function)


node_of = attrgetter("grad_fn")


class Hooks(dict[int, Any]):
    """Replaces an OrderedDict, which takes three times as long to create. A later handle refers to
    it weakly."""

    __slots__ = ("__weakref__",)


def hook_gradient(tensor: torch.Tensor, node: Any, hook: Callable[[torch.Tensor], None]) -> None:
    """register_hook of a tensor with that grad_fn, without a handle, at half the cost."""
    register = getattr(node, "_register_hook_dict", None)
    if register is not None and type(tensor) is torch.Tensor and tensor._backward_hooks is None:
        tensor._backward_hooks = Hooks({-1: hook})  # handles count from 0
        register(tensor)
    else:
        tensor.register_hook(hook)


class GradientHooks(dict[int, Any]):
    """The hooks that a param calls with its gradient, in place of an OrderedDict; `last` is the key
    of the one that stays behind all others."""

    __slots__ = ("__weakref__", "last")

    def __init__(self) -> None:
        self.last: int | None = None

    def __setitem__(self, key: int, hook: Any) -> None:
        super().__setitem__(key, hook)
        last = self.pop(self.last, None) if self.last is not None and self.last != key else None
        if last is not None and self.last is not None:
            super().__setitem__(self.last, last)


def hook_last(param: Any, hook: Callable[[torch.Tensor], None]) -> Any:
    """Has a param call a hook with its gradient after all other hooks, also those that it gets
    later. Returns the handle by which it is removed."""
    hooks = param._post_accumulate_grad_hooks
    if not isinstance(hooks, GradientHooks):
        before, hooks = hooks, GradientHooks()
        param._post_accumulate_grad_hooks = hooks
        if before:  # whose handles refer to that dict

            def call_before(param: torch.Tensor) -> None:
                for each in tuple(before.values()):
                    each(param)

            param.register_post_accumulate_grad_hook(call_before)
    handle = param.register_post_accumulate_grad_hook(hook)
    hooks.last = handle.id
    return handle


# ---- Modules ------------------------------------------------------------------------------------

PARAMETERS, APPLY, CALL, COMPILED = "_parameters", "_apply", "_call_impl", "_compiled_call_impl"
# A module's own params, buffers and children by name, also those that are None: the dicts.
own_params = attrgetter(PARAMETERS)
own_buffers = attrgetter("_buffers")
own_children = attrgetter("_modules")
unsaved_buffers = attrgetter("_non_persistent_buffers_set")
call_of = attrgetter(CALL)  # the function that __call__ calls: forward with the hooks
apply_of = attrgetter(APPLY)  # the function that .to() and similar methods call
IncompatibleKeys = need("nn.modules.module._IncompatibleKeys", "answer load_state_dict")
EXTRA_STATE = optional("nn.modules.module._EXTRA_STATE_KEY_SUFFIX", "_extra_state")
RESET = ("reset_parameters", "_reset_parameters")  # the latter of torch.nn.MultiheadAttention
# Prefixes that torch.compile and torch's wrappers of checkpoints add to names of params.
WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")
BatchNorms = optional("nn.modules.batchnorm._NormBase", ())
# Replaces params by other tensors for one call, and restores them: functional_call.
STATELESS = "torch.nn.utils._named_member_accessor"


def begun(module: torch.nn.Module) -> bool:
    """True if torch.nn.Module.__init__ has run."""
    return "_modules" in module.__dict__


def replace_params(module: torch.nn.Module, params: dict[str, Any]) -> None:
    """Replaces the dict of a module's own params."""
    module.__dict__[PARAMETERS] = params


def after_state_dict(module: torch.nn.Module, hook: Callable[..., Any]) -> None:
    """Makes state_dict call a hook with the module's own entries. Registers it only once."""
    if hook not in module._state_dict_hooks.values():  # of a sharding that was undone
        module._register_state_dict_hook(hook)


# ---- Optimizers, gradients and mixed precision --------------------------------------------------

clip_grads_with_norm = submodule("torch.nn.utils.clip_grad", "_clip_grads_with_norm_", None)
CLIP_WITH_NORM = ("_clip_grads_with_norm_", "clip_grads_with_norm_")
non_finite_check_and_unscale = need(
    "_amp_foreach_non_finite_check_and_unscale_", "scale gradients by GradScaler"
)
UNSCALE, MAYBE_STEP, UPDATE = "_unscale_grads_", "_maybe_opt_step", "update"
unscale: Callable[..., dict[torch.device, torch.Tensor]] = need(
    f"amp.GradScaler.{UNSCALE}", "scale gradients by GradScaler"
)
maybe_step = need(f"amp.GradScaler.{MAYBE_STEP}", "scale gradients by GradScaler")
update_scale = need(f"amp.GradScaler.{UPDATE}", "scale gradients by GradScaler")


def has_scheduler_mark(step: Any) -> bool:
    """True if a scheduler has wrapped an optimizer's step: the step has its mark."""
    return hasattr(step, "_wrapped_by_lr_sched")


def keep_scheduler_mark(old: Any, step: Any) -> None:
    """Marks the step that takes the place of another, if that one is marked."""
    if has_scheduler_mark(old):
        step._wrapped_by_lr_sched = True


def note_step(optimizer: Any) -> None:
    """Notes a step, as a step that a scheduler has wrapped does, so that the scheduler may
    follow."""
    optimizer._opt_called = True


def parts_of_scheduler(scheduler: Any) -> Any:
    """The schedulers that a SequentialLR or ChainedScheduler runs."""
    return getattr(scheduler, "_schedulers", ())


DDP_IGNORED = "_ddp_params_and_buffers_to_ignore"  # names of params, an attribute of a module


def fully_sharded_class() -> Any:
    """Returns FullyShardedDataParallel, or () if its module is not imported."""
    module = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    return getattr(module, "FullyShardedDataParallel", ())


# Of optimizers that step in the backward: the attribute of their params, the function that sets it.
IN_BACKWARD, APPLY_IN_BACKWARD = "_in_backward_optimizers", "_apply_optimizer_in_backward"


# ---- torch.distributed --------------------------------------------------------------------------


def default_group() -> Any:
    return torch.distributed.distributed_c10d._get_default_group()


def default_store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()


def cpu_backend(group: Any) -> str:
    """The name of the backend by which a group sends from CPU memory; RuntimeError without one."""
    return str(group._get_backend(torch.device("cpu")).name())


# Functions of torch.distributed.checkpoint's modules that are replaced where they exist.
STATE_DICT_FUNCTIONS = (
    "_get_model_state_dict",
    "_load_model_state_dict",
    "_get_optim_state_dict",
    "_load_optim_state_dict",
)
SAVE_STATE_DICT = "_save_state_dict"
LOAD_STATE_DICT = "_load_state_dict"
FQN_MODIFIERS = "_fqn_modifiers"  # a field of its StateDictOptions

# ---- Others -------------------------------------------------------------------------------------

flatten_dense = need("_utils._flatten_dense_tensors", "offer DeepSpeed's flatten")
unflatten_dense = need("_utils._unflatten_dense_tensors", "offer DeepSpeed's unflatten")


def call_once_cuda_is_there(function: Callable[[], Any]) -> Any:
    return torch.cuda._lazy_call(function)
