# SPDX-License-Identifier: Apache-2.0
# What the garbage collector found, and what operations under way still use.
#
# A finalizer runs at any allocation of any task, on any thread, perhaps in the middle of a call of
# this package. So finalizers do one thing: they put a handle into a list without locks (`enqueue`).
# The next call from a task takes the list (`drain`) and releases. Handles are values that the
# library checks: their order does not matter, and a stale one is harmless.

@enum Kind::UInt64 begin
    context_kind
    group_kind
    plan_kind
    param_kind
    unit_kind
    gather_kind
    future_kind
    optimizer_kind
    schedule_kind
    checkpoint_kind
    io_kind
    io_request_kind
    io_buffer_kind
    dlpack_kind # `id` is the tensor's address
end

# An element of the list, in C's memory, so that a finalizer need not allocate Julia's.
struct Released
    next::Ptr{Released}
    kind::Kind
    id::UInt64
end

# The address of the newest element; 0: the list is empty.
const released = Threads.Atomic{UInt}(0)

function enqueue(kind::Kind, id::UInt64)
    element = Ptr{Released}(Libc.malloc(sizeof(Released)))
    # Without memory the handle stays with the library until its context is closed.
    element == C_NULL && return
    head = released[]
    while true
        unsafe_store!(element, Released(Ptr{Released}(head), kind, id))
        seen = Threads.atomic_cas!(released, head, UInt(element))
        seen == head && return
        head = seen
    end
end

# Called at the begin of every call of the library by a task.
@inline drain() = released[] == 0 || drain_list()

@noinline function drain_list()
    Base.sigatomic_begin() # an interrupt would lose what is still in the list
    element = Ptr{Released}(Threads.atomic_xchg!(released, UInt(0)))
    while element != C_NULL
        item = unsafe_load(element)
        Libc.free(element)
        element = item.next
        release_handle(item.kind, item.id)
    end
    sweep()
    Base.sigatomic_end()
    return true
end

# Errors are no news here: an object whose context is closed is stale.
function release_handle(kind::Kind, id::UInt64)
    if kind == gather_kind
        LibMeron.meron_future_release(LibMeron.meron_future(id), C_NULL)
        end_flight(id)
    elseif kind == future_kind
        is_in_flight(id) ? abandon(id) :
        LibMeron.meron_future_release(LibMeron.meron_future(id), C_NULL)
    elseif kind == unit_kind
        LibMeron.meron_unit_release(LibMeron.meron_unit(id), C_NULL)
    elseif kind == param_kind
        LibMeron.meron_param_release(LibMeron.meron_param(id), C_NULL)
    elseif kind == optimizer_kind
        LibMeron.meron_optimizer_release(LibMeron.meron_optimizer(id), C_NULL)
    elseif kind == schedule_kind
        LibMeron.meron_schedule_release(LibMeron.meron_schedule(id), C_NULL)
    elseif kind == group_kind
        LibMeron.meron_group_release(LibMeron.meron_group(id), C_NULL)
    elseif kind == plan_kind
        LibMeron.meron_plan_release(LibMeron.meron_plan(id), C_NULL)
    elseif kind == checkpoint_kind
        LibMeron.meron_checkpoint_release(LibMeron.meron_checkpoint(id), C_NULL)
    elseif kind == io_request_kind
        is_in_flight(id) ? abandon_request(id) :
        LibMeron.meron_future_release(LibMeron.meron_future(id), C_NULL)
    elseif kind == io_buffer_kind
        LibMeron.meron_io_buffer_release(LibMeron.meron_io_buffer(id), C_NULL)
    elseif kind == io_kind
        close_io(id, C_NULL)
    elseif kind == dlpack_kind
        delete_dlpack(id)
    else
        LibMeron.meron_context_close(LibMeron.meron_context(id), C_NULL)
        forget_context(id)
    end
    return
end

# ---- Memory that operations use ------------------------------------------------------------------

# By the handle of an operation: its context's (or Io's) handle, and arrays that the library reads or writes
# until the operation has ended, whoever still holds the future. Tasks take the lock; finalizers
# never do.
const in_flight = Dict{UInt64,Tuple{UInt64,Any}}()
const abandoned = UInt64[] # futures in flight that nobody holds any more
const abandoned_requests = UInt64[] # the same of reads and writes of files
const open_contexts = Dict{UInt64,Any}() # by handle: what the library calls back with
const tables_lock = Threads.SpinLock()

function with_tables(body)
    Base.sigatomic_begin()
    lock(tables_lock)
    try
        return body()
    finally
        unlock(tables_lock)
        Base.sigatomic_end()
    end
end

begin_flight(id, context, memory) = with_tables(() -> in_flight[id] = (context, memory))
is_in_flight(id) = with_tables(() -> haskey(in_flight, id))
abandon(id) = with_tables(() -> push!(abandoned, id))
abandon_request(id) = with_tables(() -> push!(abandoned_requests, id))

function end_flight(id)
    isempty(in_flight) && return
    with_tables(() -> delete!(in_flight, id))
    return
end

remember_context(id, callbacks) = with_tables(() -> open_contexts[id] = callbacks)

# After a context was closed the library uses nothing of the caller's any more.
function forget_context(context)
    with_tables() do
        delete!(open_contexts, context)
        ended = [id for (id, (owner, _)) in in_flight if owner == context]
        foreach(id -> delete!(in_flight, id), ended)
        filter!(id -> !(id in ended), abandoned)
    end
    return
end

# Releases those abandoned futures and requests whose operations have ended.
function sweep()
    isempty(abandoned_requests) || sweep_requests()
    isempty(abandoned) && return
    for id in with_tables(() -> splice!(abandoned, 1:length(abandoned)))
        future = LibMeron.meron_future(id)
        if LibMeron.meron_future_poll(future, C_NULL) == LibMeron.MERON_IN_PROGRESS
            is_in_flight(id) && abandon(id)
        else
            LibMeron.meron_future_release(future, C_NULL)
            end_flight(id)
        end
    end
end

# How such a request has failed, by its Io's handle, until a wait for all or the close tells.
const untold = Dict{UInt64,Any}()

function sweep_requests()
    for id in with_tables(() -> splice!(abandoned_requests, 1:length(abandoned_requests)))
        request = LibMeron.meron_future(id)
        error = Ref{Ptr{LibMeron.meron_error}}(C_NULL)
        status = LibMeron.meron_future_wait(request, 0, error)
        failure = status < 0 ? take_error(status, error[]) : nothing
        if status in (LibMeron.MERON_IN_PROGRESS, LibMeron.MERON_E_TIMEOUT)
            is_in_flight(id) && abandon_request(id)
            continue
        end
        LibMeron.meron_future_release(request, C_NULL)
        status == LibMeron.MERON_E_CLOSED && continue # the drive may still use its memory
        owner = with_tables(() -> get(in_flight, id, (UInt64(0), nothing))[1])
        failure === nothing || with_tables(() -> get!(untold, owner, failure))
        end_flight(id)
    end
end

function tell(io_id)
    isempty(untold) && return
    failure = with_tables(() -> pop!(untold, io_id, nothing))
    failure === nothing || throw(failure)
    return
end
