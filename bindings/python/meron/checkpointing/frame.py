# SPDX-License-Identifier: Apache-2.0
"""One call of a checkpointed function: what it keeps, and its recomputation.

In the forward, autograd gets a token in place of each tensor that it would save
(torch.autograd.graph.saved_tensors_hooks), and the arguments of the function are kept. When the
backward needs the first of these tensors, the function runs again, from the arguments, and each
tensor that it saves is stored in the token of the same number. The graph is that of the forward, so
gradients have the bits, and arrive in the order, of a run without checkpointing.

Lifetimes: autograd holds tokens, tokens hold the frame, and the frame holds tokens weakly. A token
is released when its node has run, and the arguments with the last token.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from meron import errors
from meron.checkpointing.keeping import Keeper, Recipe, is_activation
from meron.checkpointing.profile import Profile
from meron.checkpointing.random_states import RandomStates, replayed

saved_tensors_hooks = torch.autograd.graph.saved_tensors_hooks
current_graph_task = torch._C._current_graph_task_id


class Phase(enum.Enum):
    FORWARD = "forward"
    KEPT = "kept"
    RECOMPUTING = "recomputation"


# A backward within the function's own forward may need what that forward has saved until then.
NEXT = {
    Phase.FORWARD: (Phase.KEPT, Phase.RECOMPUTING),
    Phase.KEPT: (Phase.RECOMPUTING,),
    Phase.RECOMPUTING: (Phase.KEPT, Phase.FORWARD),
}


class Active(threading.local):
    """How many checkpointed functions run in this thread, one within another."""

    depth = 0


active = Active()


class Stop(Exception):
    """The recomputation has all that is needed."""


class Token:
    """Autograd holds it in place of a tensor that the function has saved."""

    __slots__ = ("__weakref__", "device", "dtype", "frame", "shape", "taken", "task", "value")

    def __init__(self, frame: Frame, tensor: torch.Tensor) -> None:
        self.frame = frame
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.value: torch.Tensor | None = None  # recomputed
        self.task = self.taken = -1  # the backward for which it was recomputed; and was unpacked

    def fits(self, tensor: torch.Tensor) -> bool:
        return (tensor.shape, tensor.dtype, tensor.device) == (self.shape, self.dtype, self.device)

    def unpack(self) -> torch.Tensor:
        """The tensor, for autograd; recomputed if this backward has not done so."""
        frame, task = self.frame, current_graph_task()
        if self.value is None or self.task != task:
            if task != -1 and self.taken == task:
                frame.reread = task  # a node reads its tensors more than once
            frame.recompute(task)
        value = self.value
        if value is None:
            raise errors.StateError(
                f"checkpoint of {frame.name}: its recomputation did not save a tensor of shape "
                f"{tuple(self.shape)} that its forward had saved",
                subject=frame.name,
                advice="A checkpointed function must do the same each time it is called.",
            )
        self.taken = task
        if task == -1:
            frame.forget()
        elif frame.reread != task:
            self.value = None  # the node has it; with retain_graph the token would keep it
        return value


class Inputs(torch.autograd.Function):
    """Saves a function's arguments as autograd would, so that the hooks of a checkpoint further
    out, or of torch.autograd.graph.save_on_cpu, hold for them too."""

    @staticmethod
    def forward(_dummy: torch.Tensor, *_tensors: torch.Tensor) -> torch.Tensor:
        return torch.empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *_gradients: Any) -> Any:
        raise errors.StateError("this node has no gradients: nothing may depend on it")


class Argument:
    """A tensor among the arguments: how it is rebuilt, and whether it requires gradients."""

    __slots__ = ("graded", "place", "recipe")

    def __init__(self, place: int, recipe: Recipe | None, graded: bool) -> None:
        self.place = place  # among all leaves of the arguments
        self.recipe = recipe
        self.graded = graded


class Arguments:
    """The arguments of a call, in nested tuples, lists and dicts, kept for the recomputation."""

    def __init__(self, keeper: Keeper | None, args: Any, kwargs: Any) -> None:
        leaves, self.structure = pytree.tree_flatten((args, kwargs))
        self.tensors: list[Argument] = []
        self.bytes = 0
        self.devices: list[torch.device] = []
        kept = []
        if keeper is not None:
            keeper.calls += 1
        for place, leaf in enumerate(leaves):
            # A Parameter stays the object that it is: what it points at changes (meron.torch).
            if not isinstance(leaf, torch.Tensor) or isinstance(leaf, torch.nn.Parameter):
                continue
            if leaf.device.type not in ("cpu", "meta") and leaf.device not in self.devices:
                self.devices.append(leaf.device)
            tensor, recipe = leaf, None
            if keeper is not None and is_activation(leaf):
                tensor, recipe = keeper.keep(leaf, len(self.tensors))
            self.tensors.append(Argument(place, recipe, leaf.requires_grad))
            self.bytes += tensor.nbytes if tensor.layout == torch.strided else 0
            kept.append(tensor)
            leaves[place] = None
        self.leaves = leaves
        dummy = torch.empty(0, requires_grad=True)
        # Kept in a node, which has no reference to tensors of the caller.
        self.node: Any = Inputs.apply(dummy, *kept).grad_fn if kept else None

    def rebuild(self, name: str) -> tuple[Any, Any]:
        """The arguments again. Collective over the model-parallel group if they are partitioned."""
        leaves = list(self.leaves)
        for argument, kept in zip(self.tensors, self.saved(name)):
            tensor = kept.detach()
            if argument.recipe is not None:
                tensor = argument.recipe.rebuild(tensor)
            leaves[argument.place] = tensor.requires_grad_(argument.graded)
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return args, kwargs

    def saved(self, name: str) -> tuple[torch.Tensor, ...]:
        if self.node is None:
            return ()
        try:
            return self.node.saved_tensors  # type: ignore[no-any-return]
        except RuntimeError as error:
            if "inplace operation" not in str(error):
                raise
            raise errors.StateError(
                f"checkpoint of {name}: an argument was changed in place after the call, so that "
                "the recomputation would begin from other values",
                subject=name,
                advice="Change a copy of it instead.",
            ) from error


class Frame:
    """A call of a checkpointed function that autograd records."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        synchronize: bool,
        profile: Profile | None,
    ) -> None:
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.arguments = arguments
        self.phase = Phase.FORWARD
        self.tokens: list[weakref.ref[Token]] = []
        self.reread = -1  # the backward in which a node reads its tensors more than once
        self.random = RandomStates(arguments.devices)
        self.autocast = autocast_states({"cpu", *(d.type for d in arguments.devices)})
        self.synchronizes = synchronize
        self.profile = profile
        if profile is not None:
            profile.keep(arguments.bytes)
            weakref.finalize(self, profile.release, arguments.bytes).atexit = False

    def enter(self, phase: Phase) -> Phase:
        """Changes the phase, and returns the one before."""
        before = self.phase
        if phase not in NEXT[before]:
            raise errors.StateError(
                f"checkpoint of {self.name}: a {phase.value} within its {before.value}",
                subject=self.name,
                advice="Do not use its results in a backward within itself.",
            )
        self.phase = phase
        return before

    # ---- Forward -------------------------------------------------------------------------------

    def run(self, args: Any, kwargs: Any) -> Any:
        """The function, whose saved tensors become tokens."""
        with boundary(self), saved_tensors_hooks(self.pack, Token.unpack):
            output = self.function(*args, **kwargs)
        self.enter(Phase.KEPT)
        return output

    def pack(self, tensor: torch.Tensor) -> Token:
        token = Token(self, tensor)
        self.tokens.append(weakref.ref(token))
        return token

    # ---- Recomputation -------------------------------------------------------------------------

    def recompute(self, task: int) -> None:
        """Runs the function again, until it has saved all that autograd still holds tokens of."""
        needed = [token for token in (reference() for reference in self.tokens) if token]
        before = self.enter(Phase.RECOMPUTING)
        try:
            if task != -1:
                forget = functools.partial(forget_if_alive, weakref.ref(self))
                torch.autograd.Variable._execution_engine.queue_callback(forget)
            self.replay(task, needed[-1] if needed else None)
        except BaseException:
            self.forget()
            raise
        finally:
            self.enter(before)

    def replay(self, task: int, last: Token | None) -> None:
        count = 0

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal count
            value = tensor.detach()
            token = self.tokens[count]() if count < len(self.tokens) else None
            count += 1
            if token is not None:
                self.require_fit(token, tensor, count)
                token.value, token.task = value, task
                if token is last:
                    raise Stop
            return value

        with contextlib.ExitStack() as stack:
            if self.profile is not None:
                stack.enter_context(self.profile.recomputation(self.synchronize))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(replayed(self.random))
            for state in self.autocast:
                stack.enter_context(torch.autocast(**state))
            with torch.no_grad():
                args, kwargs = self.arguments.rebuild(self.name)
            stack.enter_context(boundary(self))
            with saved_tensors_hooks(pack, unchanged), contextlib.suppress(Stop):
                self.function(*args, **kwargs)

    def require_fit(self, token: Token, tensor: torch.Tensor, number: int) -> None:
        if not token.fits(tensor):
            raise errors.StateError(
                f"checkpoint of {self.name}: saved tensor {number} has shape "
                f"{tuple(token.shape)} and {token.dtype} on {token.device} in the forward, and "
                f"{tuple(tensor.shape)} and {tensor.dtype} on {tensor.device} in the recomputation",
                subject=self.name,
                advice="A checkpointed function must do the same each time it is called: it must "
                "not depend on what changes between forward and backward.",
            )

    def forget(self) -> None:
        """Releases what was recomputed, and not used."""
        for reference in self.tokens:
            token = reference()
            if token is not None:
                token.value = None

    # ---- Both ----------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Waits for the devices of the arguments. On the host there is nothing to wait for."""
        for device in self.arguments.devices:
            torch.get_device_module(device).synchronize(device)


def unchanged(value: torch.Tensor) -> torch.Tensor:
    return value


@contextlib.contextmanager
def boundary(frame: Frame) -> Iterator[None]:
    """Around each run of a function."""
    active.depth += 1
    try:
        if frame.synchronizes:
            frame.synchronize()
        yield
        if frame.synchronizes:
            frame.synchronize()
    finally:
        active.depth -= 1


def forget_if_alive(reference: weakref.ref[Frame]) -> None:
    """At the end of a backward; it does not keep arguments alive until then."""
    frame = reference()
    if frame is not None:
        frame.forget()


def autocast_states(device_types: set[str]) -> list[dict[str, Any]]:
    """Arguments of torch.autocast that make it as it is now."""
    return [
        {
            "device_type": kind,
            "enabled": torch.is_autocast_enabled(kind),
            "dtype": torch.get_autocast_dtype(kind),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }
        for kind in sorted(device_types)
    ]
