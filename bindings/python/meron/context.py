# SPDX-License-Identifier: Apache-2.0
"""The context: this rank's engine."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from meron import errors
from meron._callbacks import LogFunction, StopFunction, log_callback, stop_callback
from meron._native import (
    IN_PROGRESS,
    NULL,
    call,
    initial,
    lib,
    nanoseconds,
    new,
    receive,
    sized,
    string,
    take_json,
    text,
)
from meron._saving import Saving
from meron.device import DeviceAllocator, allocator_table
from meron.future import sweep
from meron.gather import Gather
from meron.group import Group
from meron.optimizer import Optimizer
from meron.param import Param, register
from meron.plan import Json, Plan, as_plan, workload_of
from meron.schedule import Schedule
from meron.transport import CustomTransport, transport_table
from meron.unit import Unit, chosen_destinations, unit_table
from meron.update import Update


@dataclass(frozen=True)
class Stats:
    """What was counted since the context was opened, and the memory of this moment. Bytes."""

    gather_mapped_bytes: int  # parts of peers made visible in place
    gather_copied_bytes: int  # parts of peers copied
    reduce_bytes: int  # gradients read from peers
    collective_bytes: int  # read from peers by broadcast and all-reduce
    operations: int  # collectives begun
    wait_ns: int  # nanoseconds spent waiting for peers
    param_bytes: int  # held now, by kind: this and the four below
    gradient_bytes: int
    optimizer_bytes: int
    staging_bytes: int
    control_bytes: int
    peak_bytes: int  # most ever held of param + gradient + optimizer + staging
    arena_pages_bytes: int  # pages that the kernel has given to this rank's arena
    far_gather_bytes: int  # of the above, from ranks that share no memory with this one, as it came
    far_reduce_bytes: int  # on the wire: by gathers, and by reductions
    nvme_read_bytes: int  # from and to this rank's file on tier nvme
    nvme_written_bytes: int
    nvme_bytes: int  # of that file, in use now
    device_up_bytes: int  # copied from the host to this rank's device,
    device_down_bytes: int  # and from it to the host
    device_bytes: int  # on the device at all times: rows of tier device
    # Whole gradients of meron.torch in `param.grad`, of params that are sharded: now; and the most
    # so far of units whose gradients were complete. Zero where meron.torch is not used.
    caller_gradient_bytes: int = field(default=0, metadata={"of": "python"})
    caller_gradient_peak_bytes: int = field(default=0, metadata={"of": "python"})


@dataclass(frozen=True)
class Prediction:
    """What the plan predicts for this rank and the units made so far. Bytes."""

    param_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    peak_bytes: int
    gather_mapped_bytes: int  # per optimizer step, as are the two below
    gather_copied_bytes: int
    reduce_bytes: int
    second_copy_bytes: int  # from the first gather to the update; of frozen params for good
    far_gather_bytes: int  # per optimizer step, as `Stats` has them, down to nvme_written_bytes
    far_reduce_bytes: int
    nvme_read_bytes: int
    nvme_written_bytes: int
    nvme_bytes: int  # in use
    device_bytes: int  # at all times, where ranks exchange on their devices


class Context(Saving):
    """This rank's engine. Made by `meron.open`; a context manager that closes itself.

    Attributes:
        rank:       this rank, 0 to world_size - 1.
        world_size: the number of ranks.
        transport:  "self", "local", "shm", "cluster", "mpi", or the name of a custom one.
        world:      the group of all ranks.
        plan:       the plan that it was opened with.
        device:     what this rank computes on, as it was opened; "" is the host.
    """

    def __init__(
        self, handle: Any, callbacks: tuple[Any, ...], plan: Plan, device: str = ""
    ) -> None:
        super().__init__(handle, callbacks, device)
        self.plan = plan
        # Bytes of gradients that meron.torch holds, now and at most.
        self._closing: Callable[[], Callable[[], None] | None] = lambda: None
        self._caller_gradients: Callable[[], Callable[[], tuple[int, int]] | None] = lambda: None
        self.rank: int = receive("int32_t *", lib.meron_context_rank, handle)
        self.world_size: int = receive("int32_t *", lib.meron_context_world_size, handle)
        self.transport: str = string(receive("const char **", lib.meron_context_transport, handle))
        self.world = Group(self, receive("meron_group *", lib.meron_context_world, handle))

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<meron.Context: rank {self.rank} of {self.world_size}, {state}>"

    # ---- Life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the context; doing so twice is fine.

        Operations under way are cancelled, and everything made from the context raises errors from
        now on. Does not wait for peers; those that still need this rank get a PeerClosedError.

        NumPy arrays that still show the context's memory keep the library's side open until the
        last of them dies, so reading them never crashes. Tensors imported by DLPack cannot be
        tracked: do not read them any more.
        """
        closing = self._closing()
        if closing is not None and self._lifetime is not None:
            closing()
        self._lifetime = None

    def __enter__(self) -> Context:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the context.

        After an exception the arrays in its traceback may keep the library's side open for long:
        then the world is aborted, so that peers learn at once that this rank will not come.
        """
        lifetime = None if self._lifetime is None else weakref.ref(self._lifetime)
        self.close()
        if value is not None and lifetime is not None and lifetime() is not None:
            reason = f"rank {self.rank} left its context by {type(value).__name__}: {value}"
            lib.meron_group_abort(self.world._handle, reason.encode("utf-8", "replace"), NULL)

    # ---- Making things -------------------------------------------------------------------------

    def group(self, ranks: Iterable[int]) -> Group | None:
        """A group of some ranks; None on ranks outside of the list.

        Collective over the world: every rank calls it with the same list.

        Args:
            ranks: world ranks, each once, in the group's order.

        Raises ArgumentError for a rank beyond the world or twice. Never blocks.
        """
        table = new("int32_t[]", list(ranks))
        handle = receive("meron_group *", lib.meron_group_create, self._handle, table, len(table))
        return Group(self, handle) if handle.id else None

    def param(
        self,
        name: str,
        shape: int | Sequence[int],
        dtype: Any = "f32",
        frozen: bool = False,
        group: Group | None = None,
    ) -> Param:
        """Registers a param.

        Collective over its group: all ranks register the same params in the same order.

        Args:
            name: unique in the context, 1 to 512 bytes of UTF-8.
            shape: sizes, row-major, each 0 or more; () is a scalar.
            dtype: "f32", "bf16" or "f16", or NumPy's type for it.
            frozen: it gets no gradient and no optimizer state.
            group: the ranks that share it; None is the world.

        Raises ArgumentError, DuplicateError, MismatchError. Never blocks.
        """
        return register(self, name, shape, dtype, frozen, group)

    def unit(self, name: str, params: Iterable[Param]) -> Unit:
        """Puts params together into a unit, and reserves the memory that the plan gives it here.

        The values are zero at first; `update` writes them. Collective over the params' group.

        Args:
            name: unique in the context, 1 to 512 bytes of UTF-8.
            params: of one group, none of them in a unit.

        Raises DuplicateError, OutOfMemoryError (with figures), ArgumentError, GroupError. Never
        blocks on peers.
        """
        return Unit(self, name, params)

    def gather(
        self,
        units: Iterable[Unit],
        mode: str = "view",
        into: Mapping[Param, Any] | None = None,
        place: str = "device",
        stream: int = 0,
    ) -> Gather:
        """Gathers several units as one operation; else as Unit.gather."""
        units = tuple(units)
        table, count = unit_table(units)
        into = chosen_destinations(units, mode, into)
        return Gather(self, table, count, into, place, stream)._full()

    def update(self, units: Iterable[Unit]) -> Update:
        """Opens units for writing: `with ctx.update([unit]) as update: ...`. See Update."""
        self._require_open()
        return Update(self, units)

    def adamw(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An AdamW optimizer (arXiv 1711.05101) for the trainable params of some units.

        Its states are zero at first, and lie where and as the plan says. Collective over the units'
        group.

        Args:
            lr: the learning rate, 0 or more.
            betas: the decay rates of the two moments, each 0 or more and below 1.
            eps: above 0.
            weight_decay: 0 or more.
            max_norm: gradients are scaled to at most this global 2-norm; 0 does not clip.

        Raises ArgumentError, DuplicateError (a unit has an optimizer already), OutOfMemoryError;
        with states on tier nvme also NoSpaceError, NotFoundError, InputOutputError. Blocks on this
        rank's drive where states lie on nvme: they are written once here; never on peers.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_ADAMW,
            learning_rate=lr,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def adam(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An Adam optimizer (arXiv 1412.6980); weight decay is part of the gradient.

        Else as `adamw`.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_ADAM,
            learning_rate=lr,
            beta1=betas[0],
            beta2=betas[1],
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def adagrad(
        self,
        units: Iterable[Unit],
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """An Adagrad optimizer (JMLR 12, 2011); weight decay is part of the gradient.

        It keeps the sum of squared gradients, as state "exp_avg_sq". Else as `adamw`.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_ADAGRAD,
            learning_rate=lr,
            epsilon=eps,
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def lion(
        self,
        units: Iterable[Unit],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """A Lion optimizer (arXiv 2302.06675).

        It keeps an average of gradients, as state "exp_avg". Else as `adamw`.

        Args:
            betas: of the direction that is taken, and of the average that is kept.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_LION,
            learning_rate=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def sgd(
        self,
        units: Iterable[Unit],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        max_norm: float = 0.0,
    ) -> Optimizer:
        """Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.

        With a momentum it keeps a state, "exp_avg"; without, none. Else as `adamw`.

        Args:
            momentum: 0 or more and below 1; in `ParamGroup` it is betas[0].
            dampening: of the gradient that is added to the state; 0 or more and below 1.
            nesterov: Nesterov's momentum, which needs a momentum and no dampening.
        """
        return Optimizer(
            self,
            units,
            lib.MERON_SGD,
            learning_rate=lr,
            beta1=momentum,
            dampening=dampening,
            nesterov=bool(nesterov),
            weight_decay=weight_decay,
            max_norm=max_norm,
        )

    def schedule(
        self,
        units: Iterable[Unit],
        prefetch_elements: int | None = None,
        max_live_elements: int | None = None,
        max_reuse_elements: int | None = None,
        persist_elements: int | None = None,
        persist_total_elements: int | None = None,
        place: str = "host",
        stream: int = 0,
    ) -> Schedule:
        """A schedule of some units: gathers ahead along the order of the pass before.

        Collective over the units' group: units and limits are equal on all ranks.

        Args:
            units: of one group; enter and leave take a unit's index.
            prefetch_elements: gathers are begun ahead for the uses that come within this many
                elements of uses; None is 50,000,000, 0 begins nothing ahead.
            max_live_elements: limits what is begun ahead or kept, never what is needed now; None is
                1,000,000,000.
            max_reuse_elements: a unit whose next recorded use comes within this many elements of
                other units' uses is kept full; None is 1,000,000,000.
            persist_elements: a unit of at most this many elements stays full from its first use
                until `drop`; None is 100,000.
            persist_total_elements: of all such units together, in the order given; None has no
                limit.
            place: where views are: "host", or "device" for the memory of the context's device,
                where it has one.
            stream: for views on the device, the address of the stream that waits for a unit that is
                entered, and behind whose work so far its memory goes back
                (torch.cuda.Stream.cuda_stream); 0 is the default stream. It lives as long as the
                schedule.

        Raises ArgumentError, DuplicateError, MismatchError. Never blocks.
        """
        self._require_open()
        return Schedule(
            self,
            units,
            place,
            stream,
            prefetch_elements=prefetch_elements,
            max_live_elements=max_live_elements,
            max_reuse_elements=max_reuse_elements,
            persist_elements=persist_elements,
            persist_total_elements=persist_total_elements,
        )

    # ---- Waiting -------------------------------------------------------------------------------

    def wait_reductions(self, units: Iterable[Unit], timeout: float | None = None) -> bool:
        """Waits until all that was begun by `reduce` and `reduce_finish` of the units has ended.

        One call for many units, also where nobody kept the futures.

        Args:
            units: also of several groups; one of which nothing was begun is done.
            timeout: seconds for all of them; None waits until each operation's own deadline.

        Returns:
            True when all have ended well, False when `timeout` passed first and they go on.

        Blocks as Future.wait. Raises as Future.wait; ArgumentError for no unit, HandleError for
        units of several contexts.
        """
        self._require_open()
        table, count = unit_table(units)
        return call(lib.meron_reduce_wait, table, count, nanoseconds(timeout)) != IN_PROGRESS

    # ---- Looking at it -------------------------------------------------------------------------

    def progress(self) -> None:
        """Advances every operation that can advance, without waiting.

        Waits do the same; a trainer that computes for long between begin and wait may call it in
        between. Computes, but never blocks on peers. Errors as Future.wait.
        """
        call(lib.meron_context_progress, self._handle)
        if self._abandoned:
            sweep(self._abandoned)

    def stats(self) -> Stats:
        """The counters. Never blocks."""
        out = sized("meron_stats")
        call(lib.meron_context_stats, out, self._handle)
        counted = [each.name for each in dataclasses.fields(Stats) if not each.metadata]
        held = self._caller_gradients()
        return Stats(*(getattr(out, name) for name in counted), *(held() if held else ()))

    def predict(self, micro_batches: int = 1, gathers_per_micro_batch: int = 2) -> Prediction:
        """What the plan predicts for this rank and the units made so far.

        The counters of `stats` grow by exactly these bytes per step of that workload.
        """
        out = sized("meron_prediction")
        workload = workload_of(micro_batches, gathers_per_micro_batch)
        call(lib.meron_context_predict, out, self._handle, workload)
        return Prediction(*(getattr(out, each.name) for each in dataclasses.fields(Prediction)))

    def flight_record(self) -> Any:
        """The last operations of every rank, from the library's JSON. Works when broken, too."""
        return take_json(lib.meron_context_flight_record, self._handle)


def open(
    rank: int | None = None,
    world_size: int | None = None,
    transport: str | CustomTransport | None = None,
    plan: Plan | Json = "zero3",
    *,
    job: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    host_memory_limit: int | None = None,
    arena_reserve: int | None = None,
    threads: int | None = None,
    log: LogFunction | logging.Logger | None = None,
    should_stop: StopFunction | None = None,
    custom: CustomTransport | None = None,
    device: str | None = None,
    allocator: DeviceAllocator | None = None,
) -> Context:
    """Opens this rank's context and meets the other ranks.

    Args:
        rank, world_size: None takes them from the environment (meron run, torchrun, Slurm, Open
            MPI); without one the world has one rank.
        transport: "self", "local" (ranks are threads of this process), "shm" (processes of this
            host), or a CustomTransport; "cluster" (processes of a host share memory, and `custom`
            joins the hosts) or "mpi" (MPI does). None is self for one rank, mpi under mpirun where
            no token is given, else shm.
        plan: a Plan, a preset's name, JSON text, or such a dict.
        job: local: ranks of one process with an equal job meet. Where ranks meet in a directory
            (MERON_STORE), the job's name among others'.
        token: shm: 64 hexadecimal digits, the same on all ranks; None takes it from the
            environment, or meets the ranks in the directory that MERON_STORE names.
        timeout: deadline of every operation in seconds; None is 600.
        host_memory_limit: bytes that this rank may take; None has no limit but the host's.
        arena_reserve: bytes of address space per window; None is the host's memory.
        threads: for compute on this rank; None is cores / ranks of this host.
        log: function of (level, message), levels as in `logging`, or a logging.Logger; None writes
            warnings and errors to stderr. It may be called on any thread that is inside a call,
            and must not call Meron. What it raises goes to sys.unraisablehook.
        should_stop: asked about ten times a second while a call waits; True ends the wait with a
            CancelledError, an exception of its own is raised by the call that waits. It must not
            call Meron. Signals (Ctrl-C) are looked at in any case.
        custom: the transport between hosts for "cluster". As `transport` it joins all ranks.
        device: what this rank computes on: "cuda" (the calling thread's current device), "cuda:1";
            "emulated", memory of the host and threads, for tests without a device; None is the
            host. Gathers then are in the device's memory, and gradients may be.
        allocator: of the device's memory; None is a pool of Meron's own.

    Blocks until all ranks have come, at most until the deadline, with the GIL given up.

    Raises:
        ArgumentError: a rank beyond the world, an unknown transport or device.
        AuthError: the token is missing or wrong. DeadlineError: who is missing.
        VersionError, OutOfMemoryError, InputOutputError, DuplicateError (a rank came twice).
        UnsupportedError: the device's module cannot be loaded, or cannot work here. DeviceError.
    """
    options = initial("meron_context_options")
    kept: tuple[Any, ...] = ()
    if isinstance(transport, CustomTransport):
        if custom is not None:
            raise errors.argument("a custom transport is given twice, by transport and by custom")
        custom, transport = transport, "custom"
    if custom is not None:
        options.custom, kept = transport_table(custom)
    options_of_text = {"transport": transport, "job": job, "token": token, "device": device}
    strings = {
        name: new("char[]", text(value, name))
        for name, value in options_of_text.items()
        if value is not None
    }
    numbers = {
        "rank": rank,
        "world_size": world_size,
        "host_memory_limit": host_memory_limit,
        "arena_reserve": arena_reserve,
        "threads": threads,
    }
    for name, value in strings.items():
        setattr(options, name, value)
    for name, number in numbers.items():
        if number is not None:
            try:
                setattr(options, name, number)
            except OverflowError:
                raise errors.argument(f"{name} is out of range: {number}", name) from None
    if timeout is not None:
        options.timeout_ns = max(nanoseconds(timeout), 1)  # 0 would mean the default

    if allocator is not None:
        options.allocator = allocator_table(allocator)

    chosen = as_plan(plan)
    options.plan = chosen._handle
    callbacks = (log_callback(log), stop_callback(should_stop), *kept)
    if callbacks[0] is not None:
        options.log = callbacks[0]
    options.should_stop = callbacks[1]
    handle = receive("meron_context *", lib.meron_context_open, options)
    return Context(handle, callbacks, chosen, device or "")
