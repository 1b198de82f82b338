# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""Calls of the library as methods."""

from __future__ import annotations

from meron._native import Handled, call, lib, receive, take_string
from meron.future import Future, begin


class ContextMethods(Handled):
    """Calls of meron_context that need nothing of Python's own."""

    def plan_json(self) -> str:
        """The plan that the context was opened with, as JSON that meron_plan_parse reads back to
        an equal plan; "zero3" if it was opened without one.

        Never blocks.

        Raises ArgumentError, HandleError, StaleError, ForkedError.
        """
        return take_string(lib.meron_context_plan_json, self._for_call())

    def event_fd(self) -> int:
        """A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a
        future of the context may have advanced. A thread of the engine writes to it when a peer
        has done something, and at least 50 times a second while an operation is pending; it
        advances no operation. In the loop, call meron_context_progress, which clears the
        descriptor, or read its 8 bytes; then poll the futures. Clear it before the polls: what
        comes later makes it readable again. Poll a future once after its begin, too: if it has
        ended by then, no sign follows. Futures of io.h are of no context and have none.

        Never blocks.

        Raises ArgumentError, HandleError, StaleError, ClosedError, ForkedError,
        OutOfMemoryError (no thread), InputOutputError (no descriptor is left).
        """
        return int(receive("int32_t *", lib.meron_context_event_fd, self._for_call()))

    def cancel_save(self) -> None:
        """Cancels the pending save. Any rank may do so, without the others: all of them stop
        writing, and the save's future ends on each with CancelledError, whose peer is a rank
        that cancelled. If all ranks have written their files by then, the save succeeds
        instead, on all of them. A cancelled save leaves no files, also with `overwrite` and
        `keep`: earlier checkpoints stay as they were. If a process is killed meanwhile, a
        hidden directory may remain (.saving-...), which the next save removes. The next save
        does not report the cancelled one. It begins nothing and waits for nothing: wait for the
        future. Returns MERON_OK also if no save is pending.

        Never blocks.

        Raises HandleError, StaleError, ClosedError, ForkedError.
        """
        call(lib.meron_checkpoint_cancel_save, self._for_call())


class PlanMethods(Handled):
    """Calls of meron_plan that need nothing of Python's own."""

    def json(self) -> str:
        """The plan as JSON that meron_plan_parse reads back to an equal plan.

        Never blocks.

        Raises ArgumentError, HandleError, StaleError.
        """
        return take_string(lib.meron_plan_json, self._for_call())

    def table(self) -> str:
        """The plan as a table for people, several lines.

        Never blocks.

        Raises ArgumentError, HandleError, StaleError.
        """
        return take_string(lib.meron_plan_table, self._for_call())


class GroupMethods(Handled):
    """Calls of meron_group that need nothing of Python's own."""

    def barrier_begin(self) -> Future:
        """Begins a barrier: the future ends when every rank of the group has begun it.

        Blocks if this rank is 1,024 calls ahead of a peer, until that peer has followed, at
        most the deadline; and while another thread of this rank begins an operation.

        Raises ArgumentError, HandleError, StaleError, CancelledError, DeadlineError,
        PeerDeadError, PeerClosedError, MismatchError, AbortedError, AuthError, VersionError,
        ForkedError.
        """
        return begin(self._context, lib.meron_barrier_begin, self._for_call())

    def barrier(self) -> None:
        """As `barrier_begin`, and waits for its end.

        Blocks as `Future.wait`, and raises what the two of them raise.
        """
        self.barrier_begin().wait()


class ParamMethods(Handled):
    """Calls of meron_param that need nothing of Python's own."""


class UnitMethods(Handled):
    """Calls of meron_unit that need nothing of Python's own."""

    def consume(self) -> None:
        """Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If
        the codec has feedback, the next gradient makes up for what was lost of this one.

        Blocks only while another thread of this rank begins an operation.

        Raises StateError (there is none, or a reduction or step is pending), HandleError,
        StaleError.
        """
        call(lib.meron_reduce_consume, self._for_call())

    def scale_feedback(self, factor: float) -> None:
        """Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it
        if a loss scale changes that is not a part of options.divisor, with the new scale
        divided by the old one. Does nothing if the plan has no feedback.

        `factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.

        Blocks while another thread of this rank begins an operation and, if there is feedback,
        while a save copies it.

        Raises ArgumentError (the factor), StateError (a reduction is pending), HandleError,
        StaleError.
        """
        call(lib.meron_reduce_scale_feedback, self._for_call(), factor)


class OptimizerMethods(Handled):
    """Calls of meron_optimizer that need nothing of Python's own."""

    def set_max_norm(self, max_norm: float) -> None:
        """Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones
        stay; 0 does not clip. The same on all ranks (it is part of the step's fingerprint).

        Never blocks.

        Raises ArgumentError, HandleError, StaleError.
        """
        call(lib.meron_optimizer_set_max_norm, self._for_call(), max_norm)

    def reload(self) -> None:
        """Restores the states that meron_optimizer_offload moved, bit for bit.

        Blocks as meron_optimizer_offload.

        Raises StateError (they are not offloaded), OutOfMemoryError, InputOutputError,
        CorruptError (the drive returned other bytes), DeadlineError, HandleError, StaleError.
        """
        call(lib.meron_optimizer_reload, self._for_call())


class CheckpointMethods(Handled):
    """Calls of meron_checkpoint that need nothing of Python's own."""


class ScheduleMethods(Handled):
    """Calls of meron_schedule that need nothing of Python's own."""

    def drop(self) -> None:
        """Releases all units that stay full or were prefetched. Call it before an update, an
        optimizer step, a save or a load, which need all leases released. The pass and the
        recorded orders stay. Local.

        Blocks only while another thread of this rank begins an operation.

        Raises StateError (names the units that are entered), HandleError, StaleError,
        ForkedError.
        """
        call(lib.meron_schedule_drop, self._for_call())

    def reset(self) -> None:
        """Drops all uses and the pass, and releases all units. Call it after an exception in the
        trainer. The recorded orders stay. Local.

        Blocks only while another thread of this rank begins an operation.

        Raises HandleError, StaleError, ForkedError.
        """
        call(lib.meron_schedule_reset, self._for_call())


class IoMethods(Handled):
    """Calls of meron_io that need nothing of Python's own."""

    def describe(self) -> str:
        """Describes the speed for people, one line per fact: the backend and the kernel's grants,
        the reason if it is not a faster one, and the files that use the page cache with the
        reason.

        Never blocks.

        Raises ArgumentError, OutOfMemoryError, HandleError, StaleError, ForkedError.
        """
        return take_string(lib.meron_io_describe, self._for_call())
