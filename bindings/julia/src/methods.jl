# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
# Calls of the library as functions.

"""
    Meron.plan_json(context)

The plan that the context was opened with, as JSON that meron_plan_parse reads back to an equal
plan; "zero3" if it was opened without one.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_FORKED`.
"""
function plan_json(context::Context)
    return take_string(LibMeron.meron_context_plan_json, raw(context))
end

"""
    Meron.event_fd(context)

A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a future of
the context may have advanced. A thread of the engine writes to it when a peer has done
something, and at least 50 times a second while an operation is pending; it advances no
operation. In the loop, call meron_context_progress, which clears the descriptor, or read its 8
bytes; then poll the futures. Clear it before the polls: what comes later makes it readable
again. Poll a future once after its begin, too: if it has ended by then, no sign follows.
Futures of io.h are of no context and have none.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_CLOSED`,
`MERON_E_FORKED`, `MERON_E_NO_MEMORY` (no thread), `MERON_E_IO` (no descriptor is left).
"""
function event_fd(context::Context)
    return receive(Int32, LibMeron.meron_context_event_fd, raw(context))
end

"""
    Meron.flight_record(context)

The flight recorder: the last operations (up to 1,024) of every rank of the world, as JSON.
Works on a broken group too.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_FORKED`.
"""
function flight_record(context::Context)
    return take_string(LibMeron.meron_context_flight_record, raw(context))
end

"""
    Meron.cancel_save(context)

Cancels the pending save. Any rank may do so, without the others: all of them stop writing, and
the save's future ends on each with `MERON_E_CANCELLED`, whose peer is a rank that cancelled. If
all ranks have written their files by then, the save succeeds instead, on all of them. A
cancelled save leaves no files, also with `overwrite` and `keep`: earlier checkpoints stay as
they were. If a process is killed meanwhile, a hidden directory may remain (.saving-...), which
the next save removes. The next save does not report the cancelled one. It begins nothing and
waits for nothing: wait for the future. Returns MERON_OK also if no save is pending.

Never blocks.

Throws `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_CLOSED`, `MERON_E_FORKED`.
"""
function cancel_save(context::Context)
    @check LibMeron.meron_checkpoint_cancel_save(raw(context))
    return
end

"""
    Meron.json(plan)

The plan as JSON that meron_plan_parse reads back to an equal plan.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`.
"""
function json(plan::Plan)
    return take_string(LibMeron.meron_plan_json, raw(plan))
end

"""
    Meron.table(plan)

The plan as a table for people, several lines.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`.
"""
function table(plan::Plan)
    return take_string(LibMeron.meron_plan_table, raw(plan))
end

"""
    Meron.abort(group, reason)

Breaks the group on every rank: pending waits end with `MERON_E_ABORTED`, which contains
`reason`.

`reason`: nothing or text for people, at most 200 bytes are kept.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_FORKED`.
"""
function abort(group::Group, reason = nothing)
    @check LibMeron.meron_group_abort(raw(group), reason === nothing ? C_NULL : text(reason, "reason"))
    return
end

"""
    Meron.barrier_begin(group)

Begins a barrier: the future ends when every rank of the group has begun it.

Blocks if this rank is 1,024 calls ahead of a peer, until that peer has followed, at most the
deadline; and while another thread of this rank begins an operation.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`, `MERON_E_CANCELLED`,
`MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`, `MERON_E_MISMATCH`,
`MERON_E_ABORTED`, `MERON_E_AUTH`, `MERON_E_VERSION`, `MERON_E_FORKED`.
"""
function barrier_begin(group::Group)
    handle = raw(group)
    return begin_operation(group.context) do out
        @check LibMeron.meron_barrier_begin(out, handle)
    end
end

"""
    Meron.barrier(group)

As `barrier_begin`, and waits for its end. Throws what `barrier_begin` and `wait` throw.
"""
barrier(group::Group) = finish(barrier_begin(group))

export consume!
"""
    consume!(unit)

Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If the
codec has feedback, the next gradient makes up for what was lost of this one.

Blocks only while another thread of this rank begins an operation.

Throws `MERON_E_STATE` (there is none, or a reduction or step is pending), `MERON_E_HANDLE`,
`MERON_E_STALE`.
"""
function consume!(unit::Unit)
    @check LibMeron.meron_reduce_consume(raw(unit))
    return
end

export scale_feedback!
"""
    scale_feedback!(unit, factor)

Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if a
loss scale changes that is not a part of options.divisor, with the new scale divided by the old
one. Does nothing if the plan has no feedback.

`factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.

Blocks while another thread of this rank begins an operation and, if there is feedback, while a
save copies it.

Throws `MERON_E_ARGUMENT` (the factor), `MERON_E_STATE` (a reduction is pending),
`MERON_E_HANDLE`, `MERON_E_STALE`.
"""
function scale_feedback!(unit::Unit, factor)
    @check LibMeron.meron_reduce_scale_feedback(raw(unit), factor)
    return
end

export set_learning_rate!
"""
    set_learning_rate!(optimizer, learning_rate)

Sets the learning rate of the next steps for params of group 0; the same on all ranks (it is
part of the step's fingerprint).

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`.
"""
function set_learning_rate!(optimizer::Optimizer, learning_rate)
    @check LibMeron.meron_optimizer_set_learning_rate(raw(optimizer), learning_rate)
    return
end

export set_max_norm!
"""
    set_max_norm!(optimizer, max_norm)

Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones stay; 0
does not clip. The same on all ranks (it is part of the step's fingerprint).

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_HANDLE`, `MERON_E_STALE`.
"""
function set_max_norm!(optimizer::Optimizer, max_norm)
    @check LibMeron.meron_optimizer_set_max_norm(raw(optimizer), max_norm)
    return
end

export set_steps!
"""
    set_steps!(optimizer, steps)

Sets the number of steps that the optimizer and all of its params have taken, for an optimizer
that continues from a checkpoint, beside its states (meron_optimizer_write_state). Adam's bias
corrections, the first step of SGD with a momentum (which takes no average) and the random
rounding of states in 16 or 8 bits depend on it. All ranks set the same number, because the
fingerprint of the next step includes it. Changes nothing else.

`steps`: at most 2^53.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_STATE` (a step is pending), `MERON_E_HANDLE`,
`MERON_E_STALE`.
"""
function set_steps!(optimizer::Optimizer, steps)
    @check LibMeron.meron_optimizer_set_steps(raw(optimizer), convert_field(UInt64, steps, "steps"))
    return
end

"""
    Meron.reload(optimizer)

Restores the states that meron_optimizer_offload moved, bit for bit.

Blocks as meron_optimizer_offload.

Throws `MERON_E_STATE` (they are not offloaded), `MERON_E_NO_MEMORY`, `MERON_E_IO`,
`MERON_E_CORRUPT` (the drive returned other bytes), `MERON_E_TIMEOUT`, `MERON_E_HANDLE`,
`MERON_E_STALE`.
"""
function reload(optimizer::Optimizer)
    @check LibMeron.meron_optimizer_reload(raw(optimizer))
    return
end

export drop!
"""
    drop!(schedule)

Releases all units that stay full or were prefetched. Call it before an update, an optimizer
step, a save or a load, which need all leases released. The pass and the recorded orders stay.
Local.

Blocks only while another thread of this rank begins an operation.

Throws `MERON_E_STATE` (names the units that are entered), `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_FORKED`.
"""
function drop!(schedule::Schedule)
    @check LibMeron.meron_schedule_drop(raw(schedule))
    return
end

"""
    Meron.describe(io)

Describes the speed for people, one line per fact: the backend and the kernel's grants, the
reason if it is not a faster one, and the files that use the page cache with the reason.

Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_NO_MEMORY`, `MERON_E_HANDLE`, `MERON_E_STALE`,
`MERON_E_FORKED`.
"""
function describe(io::Io)
    return take_string(LibMeron.meron_io_describe, raw(io))
end
