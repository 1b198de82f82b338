# SPDX-License-Identifier: Apache-2.0

"""
An operation that was begun and yields nothing but its end. `wait(future)` waits, `isready(future)`
asks.

Releasing it does not stop the operation, because the ranks must stay in step; an array that the
operation uses is kept alive until it has ended, whoever still holds the future.
"""
mutable struct Future <: Owner
    id::UInt64
    ended::Bool
    context::Context
    Future(context) = finalizer(enqueue_owner, new(0, false, context))
end

kind_of(::Future) = future_kind

function raw(future::Future)
    future.context.isopen || throw_closed()
    future.id == 0 && throw_released("future")
    return LibMeron.meron_future(future.id)
end

# `begin_(out)` begins an operation that uses `memory` until it has ended.
function begin_operation(begin_, context::Context, memory = nothing)
    future = Future(context)
    Base.sigatomic_begin() # between the begin and the note about the memory nothing may come
    try
        GC.@preserve future memory begin_(out_pointer(future, LibMeron.meron_future))
        memory === nothing || begin_flight(future.id, context.id, memory)
    finally
        Base.sigatomic_end()
    end
    return future
end

"""
    wait(future; timeout = nothing)
    wait(gather; timeout = nothing)

Waits until it has ended, and returns `true`. Returns `false` after `timeout` seconds; the operation
continues. `nothing` waits until the operation's own deadline.

Other tasks of the thread run meanwhile. Ctrl-C ends the wait, not the operation.

Throws a `MeronError`: `MERON_E_TIMEOUT`, `MERON_E_PEER_DEAD`, `MERON_E_PEER_CLOSED`,
`MERON_E_MISMATCH`, `MERON_E_ABORTED` (the group is broken), `MERON_E_CANCELLED` (`should_stop`),
`MERON_E_NONFINITE` (an optimizer's step), `MERON_E_STALE`.
"""
function Base.wait(future::Future; timeout = nothing)
    raw(future)
    future.ended && return true
    return settle(future) do operation
        await(operation, nanoseconds(timeout))
    end
end

"""
    isready(future)
    isready(gather)

Whether it has ended well; never waits for peers. Throws the error if it failed.
"""
function Base.isready(future::Future)
    raw(future)
    future.ended && return true
    return settle(operation -> await(operation, Int64(0)), future)
end

# Some operations, for await(): it waits for any. The library stores the place of one that has ended.
struct AnyOf
    futures::Vector{LibMeron.meron_future}
    place::Base.RefValue{Csize_t}
end

wait_operation(any::AnyOf, slice, error) = LibMeron.meron_future_wait_any(
    any.place, any.futures, length(any.futures), slice, error)
poll_operation(any::AnyOf, error) = wait_operation(any, 0, error)

"""
    wait_any(futures; timeout = nothing)

Waits until one of some futures and gathers of a context has ended, well or with an error. Returns
the index of the first such one: `wait` of it then returns, or throws its error, at once. Returns
`nothing` after `timeout` seconds.

Other tasks of the thread run meanwhile. Ctrl-C ends the wait, not the operations.

Throws a `MeronError`: `MERON_E_HANDLE` (there are none, or they belong to different contexts),
`MERON_E_STALE`, `MERON_E_CANCELLED` (`should_stop`).
"""
function wait_any(futures; timeout = nothing)
    some = collect(futures)
    any = AnyOf(LibMeron.meron_future[raw(future) for future in some], Ref{Csize_t}())
    GC.@preserve some begin
        await(any, nanoseconds(timeout)) || return nothing
    end
    return Int(any.place[]) + 1
end

# An operation that has ended, well or not, uses its memory no more.
function settle(look, future::Future)
    operation = raw(future)
    try
        future.ended = look(operation)
    catch error
        error isa MeronError && error.status != LibMeron.MERON_E_CANCELLED && end_flight(operation.id)
        rethrow()
    end
    future.ended && end_flight(operation.id)
    return future.ended
end

# Waits, and releases whatever comes.
function finish(future::Future)
    try
        wait(future)
    finally
        release(future)
    end
    return
end

Base.show(io::IO, future::Future) = print(
    io, "Meron.Future(", future.ended ? "ended" : future.id == 0 ? "released" : "under way", ")")
