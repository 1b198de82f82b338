# SPDX-License-Identifier: Apache-2.0

"""
This rank's engine; `Meron.open` makes one. Fields:

- `rank`: this rank, 0 to `world_size - 1`; `world_size`: the number of ranks;
- `transport`: "self", "local", "shm", "cluster", "mpi", or a custom transport's name;
- `device`: what this rank computes on, as it was opened; "" is the host;
- `world`: the group of all ranks.

`close(ctx)` closes it, `isopen(ctx)` asks.
"""
mutable struct Context <: Owner
    id::UInt64
    isopen::Bool
    rank::Int
    world_size::Int
    transport::String
    device::String
    callbacks::Any # Callbacks
    world::Owner # Group, which is declared later
    states::ReentrantLock # held by an export or a load, and by a write to a view of a state
    optimizers::Vector{WeakRef} # whose views of states end with a save, an export or a load
    function Context(callbacks)
        context = new(0, false, 0, 0, "", "", callbacks)
        context.states, context.optimizers = ReentrantLock(), WeakRef[]
        return finalizer(enqueue_context, context)
    end
end

kind_of(::Context) = context_kind

# Its views end with it, also if the program calls `finalize`.
function enqueue_context(context::Context)
    context.isopen = false
    enqueue_owner(context)
end

"""
    Meron.open(; options...)
    Meron.open(body; options...)

Opens this rank's context and meets the other ranks; the second form closes it after `body(ctx)`.

- `rank`, `world_size`: by default from the environment (meron run, torchrun, Slurm, Open MPI);
  without one the world has one rank.
- `transport`: "self", "local" (ranks are threads of this process: call it from one Julia thread per
  rank), "shm" (processes of this host), "cluster" (processes of a host share memory, and `custom`
  joins the hosts), "mpi" (MPI does); by default self for one rank, mpi under mpirun where no token
  is given, else shm. Or a `Meron.Transport` of your own.
- `plan`: a `Plan`, a preset's name, or JSON text.
- `job`: local: ranks of one process with an equal job meet.
- `token`: shm: 64 hexadecimal digits, the same on all ranks; by default from the environment.
- `timeout`: deadline of every operation in seconds; by default 600.
- `host_memory_limit`: bytes that this rank may take; `arena_reserve`: bytes of address space per
  window; `threads`: for compute on this rank, by default cores / ranks of this host.
- `log`: a function of `(level, message)`, `level` one of `:error`, `:warning`, `:info`; by default
  warnings and errors go to stderr. It is called on threads that are inside a call. It may only look
  and release: see the rule of callbacks in `meron/meron.h`. An exception of it is reported by
  `@error`.
- `should_stop`: asked about ten times a second while a call waits; `true` ends the wait with
  `MERON_E_CANCELLED`, an exception of it is thrown by the call that waits. It may only
  look and release: see the rule of callbacks in `meron/meron.h`.
- `custom`: the `Meron.Transport` between hosts for "cluster".
- `device`: what this rank computes on: "cuda" (the calling thread's current device), "cuda:1";
  "emulated", memory of the host and threads, for tests without a device; by default the host. Gathered
  views are then in the device's memory, which is of a pool of Meron's own, and gradients may be.

Blocks until all ranks have come, at most until the deadline; tasks of this thread stand still
meanwhile, those of other threads do not, though a `sleep` of theirs may end 0.1 s late. Ctrl-C
ends it.

Throws `MERON_E_ARGUMENT` (a rank beyond the world, an unknown transport or device), `MERON_E_AUTH`,
`MERON_E_TIMEOUT` (who is missing), `MERON_E_VERSION`, `MERON_E_NO_MEMORY`, `MERON_E_IO`,
`MERON_E_DUPLICATE` (a rank came twice), `MERON_E_UNSUPPORTED` (the device's module cannot work here),
`MERON_E_DEVICE`.
"""
function open(;
    rank = nothing,
    world_size = nothing,
    transport = nothing,
    plan = "zero3",
    job = nothing,
    token = nothing,
    timeout = nothing,
    host_memory_limit = nothing,
    arena_reserve = nothing,
    threads = nothing,
    log = nothing,
    should_stop = nothing,
    custom = nothing,
    device = nothing,
)
    context = Context(Callbacks(log, should_stop))
    numbers = (
        rank = rank,
        world_size = world_size,
        host_memory_limit = host_memory_limit,
        arena_reserve = arena_reserve,
        threads = threads,
    )
    given = Dict{Symbol,Any}(name => value for (name, value) in pairs(numbers) if value !== nothing)
    if timeout !== nothing
        given[:timeout_ns] = max(nanoseconds(timeout), 1) # 0 would mean the default
    end
    strings = Dict{Symbol,String}()
    if transport isa Transport
        custom === nothing || throw(argument_error(
            "a custom transport is given twice, by transport and by custom"))
        custom, transport = transport, "custom"
    end
    functions = Ref{LibMeron.meron_transport}()
    if custom !== nothing
        context.callbacks.transport = custom
        strings[:custom] = text(transport_name(custom), "the name of a transport")
        functions[] = transport_table(custom, strings[:custom], context.callbacks)
        given[:custom] = Base.unsafe_convert(Ptr{LibMeron.meron_transport}, functions)
    end
    for (name, value) in pairs((transport = transport, job = job, token = token, device = device))
        value === nothing && continue
        strings[name] = text(value, string(name))
        given[name] = pointer(strings[name])
    end
    callbacks = context.callbacks
    if log !== nothing
        given[:log] = @cfunction(
            on_log, Cvoid, (Ptr{Cvoid}, Int32, Ptr{UInt8}, Csize_t))
        given[:log_user] = pointer_from_objref(callbacks)
    end
    given[:should_stop] = @cfunction(on_should_stop, Int32, (Ptr{Cvoid},))
    given[:should_stop_user] = pointer_from_objref(callbacks)
    chosen = as_plan(plan)
    given[:plan] = raw(chosen)

    options = Ref(changed(
        initial(LibMeron.meron_context_options, LibMeron.meron_context_options_init), given))
    GC.@preserve context strings callbacks chosen functions begin
        @check LibMeron.meron_context_open(out_pointer(context, LibMeron.meron_context), options)
    end
    context.isopen = true
    context.device = get(strings, :device, "")
    remember_context(context.id, callbacks)
    describe!(context)
    return context
end

function open(body::Function; options...)
    context = open(; options...)
    try
        return body(context)
    finally
        close(context)
    end
end

function describe!(context)
    context.rank = receive(Int32, LibMeron.meron_context_rank, raw(context))
    context.world_size = receive(Int32, LibMeron.meron_context_world_size, raw(context))
    context.transport =
        unsafe_string(receive(Ptr{UInt8}, LibMeron.meron_context_transport, raw(context)))
    context.world = world_group(context)
    return
end

@inline function raw(context::Context)
    context.isopen || throw_closed()
    return LibMeron.meron_context(context.id)
end

"""
    close(ctx)

Closes a context; doing so twice is fine. Operations under way are cancelled, everything made from
the context throws from now on, and views are refused. Does not wait for peers; those that still
need this rank get `MERON_E_PEER_CLOSED`.

No other thread may read a view of the context meanwhile: its memory goes away.
"""
function Base.close(context::Context)
    was_open = with_tables() do
        open_now = context.isopen
        context.isopen = false
        open_now
    end
    was_open || return
    id = take_handle!(context)
    try
        @check LibMeron.meron_context_close(LibMeron.meron_context(id))
    finally
        forget_context(id)
    end
    return
end

Base.isopen(context::Context) = context.isopen
release(context::Context) = close(context)

# True if the host cannot read the device's memory.
is_remote(context::Context) = startswith(context.device, "cuda")

function Base.show(io::IO, context::Context)
    state = context.isopen ? context.transport : "closed"
    print(io, "Meron.Context(rank $(context.rank) of $(context.world_size), $state)")
end

"""
    Meron.progress(ctx)

Advances every operation that can advance, without waiting. Waits do the same; a trainer that
computes for long between begin and wait may call it in between. Errors as `wait`.
"""
function progress(context::Context)
    @check LibMeron.meron_context_progress(raw(context))
    sweep()
    return
end

"""
    Meron.stats(ctx)

Counters since the context was opened, and the memory in use now, in bytes: a named tuple with the
fields of `meron_stats` (include/meron/context.h). Never blocks.
"""
stats(context::Context) = as_tuple(
    LibMeron.meron_stats, filled(LibMeron.meron_stats, LibMeron.meron_context_stats, raw(context)))

"""
    Meron.predict(ctx; micro_batches = 1, gathers_per_micro_batch = 2)

The plan's predictions for this rank and its current units: a named tuple with the fields of
`meron_prediction`. The counters of `Meron.stats` grow by exactly these bytes per step.
"""
function predict(context::Context; micro_batches = 1, gathers_per_micro_batch = 2)
    workload = Ref(workload_of(1, micro_batches, gathers_per_micro_batch))
    return as_tuple(
        LibMeron.meron_prediction,
        filled(
            LibMeron.meron_prediction, LibMeron.meron_context_predict, raw(context), workload),
    )
end
