# SPDX-License-Identifier: Apache-2.0

"""
Units on their way to full, then leased; `gather` and `gather_begin` make them. `full[param]` is the
whole tensor, `wait(full)` waits, `release(full)` gives the leases back.

`Gather{:host}` has views that the host reads, `Gather{:device}` memory of a device that it cannot read,
and `Gather{:into}` arrays that are the program's own.
"""
mutable struct Gather{K} <: Owner
    id::UInt64
    ready::Bool
    context::Context
    into::Any # arrays by param, of a Gather{:into}
    loan::Any # nothing, or the Loan of its views
    Gather{K}(context) where {K} = new{K}(0, false, context, nothing, nothing)
end

kind_of(::Gather) = gather_kind

@inline function raw(full::Gather)
    full.context.isopen || throw_closed()
    full.id == 0 && throw_released("gather")
    return LibMeron.meron_future(full.id)
end

"""
    gather(body, unit; mode = :view, into = nothing, tier = :device, stream = C_NULL)
    gather(unit; mode = :view, into = nothing, tier = :device, stream = C_NULL)

A unit's whole tensors: `gather(unit) do full; full[param]; end`. Waits until they are full; the
first form gives the leases back after `body(full)`. Several units, in a vector, are gathered as one
operation. Collective over the units' group; the mode may differ between ranks.

- `mode`: `:view` for read-only views of the memory that the ranks share, without a copy; `:copy` for
  arrays of this rank's own, which outlive the gather.
- `into`: pairs `param => array`, or a dictionary of them, for each param that is wanted: contiguous,
  writable, of the param's size and element type. They are kept alive, and not to be touched, until
  the gather is full. On the context's device a `CuArray` or a `Meron.DeviceArray`. A pair
  `flat => array` (see `flats`) copies all params of a flat at once, and values without a meaning to
  its padding. A param is named alone or by its flat. Arrays of several element types go in a tuple of
  pairs: Julia converts those of a vector or `Dict` to a common type.
- `tier`: `:device` for views in the memory of the context's device, where it has one; `:host` for
  views in the host's.
- `stream`: a `Ptr{Cvoid}`; arrays of `into` on the device are written after what was asked of this
  stream so far. `C_NULL` is the device's default stream.

`gather_begin` returns at once. A gather that is not released holds its lease until the collector
has found it and a later call was made: meanwhile no update or step of the unit can end.

Throws `MERON_E_STATE` (the unit is being updated on this rank), `MERON_E_NO_MEMORY`,
`MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (a param that is named alone and by its flat), and what `wait`
throws.
"""
@inline function gather(
    body::F, units; mode = :view, into = nothing, tier = :device, stream = C_NULL
) where {F}
    context = context_of(units)
    into_arrays(mode, into) &&
        return with_any_gather(body, Gather{:into}(context), units, mode, into, tier, stream)
    tier === :device && is_remote(context) &&
        return with_any_gather(body, Gather{:device}(context), units, mode, into, tier, stream)
    return with_gather(body, Gather{:host}(context), units, mode, into, tier, stream)
end

# Where views of the host are usual, `body` is compiled for these alone.
@noinline with_any_gather(@nospecialize(body), full::Gather, arguments...) =
    Base.invokelatest(with_gather, body, full, arguments...)

@inline function with_gather(body::F, full::Gather, units, mode, into, tier, stream) where {F}
    try
        begin_gather!(full, units, mode, into, tier, stream)
        wait(full)
        return body(full)
    finally
        release(full)
    end
end

@inline function gather(units; mode = :view, into = nothing, tier = :device, stream = C_NULL)
    full = gather_begin(units; mode = mode, into = into, tier = tier, stream = stream)
    return wait_or_release(full)
end

function wait_or_release(full)
    try
        wait(full)
    catch
        release(full) # nobody else has it yet
        rethrow()
    end
    return full
end

"""
    gather_begin(unit; mode = :view, into = nothing, tier = :device, stream = C_NULL)

Begins a gather and returns at once; see `gather`.
"""
@inline function gather_begin(
    units; mode = :view, into = nothing, tier = :device, stream = C_NULL
)
    context = context_of(units)
    into_arrays(mode, into) &&
        return begun(Gather{:into}(context), units, mode, into, tier, stream)
    tier === :device && is_remote(context) &&
        return begun(Gather{:device}(context), units, mode, into, tier, stream)
    return begun(Gather{:host}(context), units, mode, into, tier, stream)
end

@inline into_arrays(mode, into) = mode !== :view || into !== nothing

function begun(full::Gather, arguments...)
    finalizer(enqueue_owner, full)
    begin_gather!(full, arguments...)
    return full
end

context_of(unit::Unit) = unit.context

begin_gather!(full::Gather{:into}, units, mode, into, tier, stream) =
    begin_gather_into!(full, units, destinations(units, mode, into), stream)

@inline function begin_gather!(full::Gather, units, mode, into, tier, stream)
    tier === :device &&
        return begin_gather!(full, units, Ptr{LibMeron.meron_gather_options}(C_NULL))
    options = changed(
        initial(LibMeron.meron_gather_options, LibMeron.meron_gather_options_init);
        tier = tier_code(tier),
    )
    return begin_gather!(full, units, Ref(options))
end

# The handle is a unit's first field: where it stands is a list of one unit.
@inline function begin_gather!(full::Gather, unit::Unit, options)
    raw(unit)
    GC.@preserve full unit @check LibMeron.meron_gather_begin(
        out_pointer(full, LibMeron.meron_future),
        out_pointer(unit, LibMeron.meron_unit), 1, options)
    return
end

function begin_gather!(full::Gather, units, options)
    handles = handles_of(units)
    GC.@preserve full @check LibMeron.meron_gather_begin(
        out_pointer(full, LibMeron.meron_future), handles, length(handles), options)
    return
end

function begin_gather_into!(full::Gather, units, arrays, stream)
    params, flats = LibMeron.meron_destination[], LibMeron.meron_flat_destination[]
    for (wanted, array) in arrays
        address = device_address(array, "the destination of $(name_of(wanted))")
        bytes = sizeof(eltype(wanted)) * length(wanted)
        if wanted isa Flat
            push!(flats, LibMeron.meron_flat_destination(raw(wanted.unit), wanted.index - 1, address, bytes))
        else
            push!(params, LibMeron.meron_destination(raw(wanted), address, bytes))
        end
    end
    options = changed(
        initial(LibMeron.meron_gather_options, LibMeron.meron_gather_options_init);
        mode = LibMeron.MERON_GATHER_INTO,
        destinations = pointer(params),
        destination_count = length(params),
        stream = stream_pointer(stream),
        flats = pointer(flats),
        flat_count = length(flats),
    )
    full.into = arrays
    Base.sigatomic_begin() # between the begin and the note about the memory nothing may come
    try
        GC.@preserve params flats arrays begin_gather!(full, units, Ref(options))
        begin_flight(full.id, full.context.id, arrays)
    finally
        Base.sigatomic_end()
    end
    return
end

# The arrays that are gathered into, by param or flat.
function destinations(units, mode, into)
    arrays = IdDict{Union{Param,Flat},Any}()
    if into !== nothing
        mode in (:view, :into) ||
            throw(argument_error("mode $(repr(mode)) does not go with `into`"))
        for (wanted, array) in pairs_of(into)
            name = name_of(wanted)
            require_writable(array, "the destination of $name")
            size(array) == size(wanted) && same_dtype(eltype(array), eltype(wanted)) ||
                throw(argument_error(
                    "$name is $(eltype(wanted)) of size $(size(wanted)), its destination " *
                    "$(eltype(array)) of size $(size(array))"; subject = name))
            arrays[wanted] = array
        end
        return arrays
    end
    mode === :copy || throw(argument_error(
        "unknown gather mode $(repr(mode)): :view and :copy are known, and `into` takes arrays"))
    for unit in (units isa Unit ? (units,) : units), param in unit.params
        arrays[param] = Array{eltype(param)}(undef, param.size)
    end
    return arrays
end
pairs_of(pair::Pair) = (pair,)
pairs_of(table::AbstractDict) = pairs(table)
pairs_of(list) = list

@inline function Base.wait(full::Gather; timeout = nothing)
    operation = raw(full)
    full.ready && return true
    ended = await(operation, nanoseconds(timeout))
    ended && note_full(full)
    return ended
end

function Base.isready(full::Gather)
    operation = raw(full)
    full.ready && return true
    ended = await(operation, Int64(0))
    ended && note_full(full)
    return ended
end

# The array that a param was gathered into, or its part of the array of its flat.
function gathered_array(arrays, param)
    haskey(arrays, param) && return arrays[param]
    for (flat, array) in arrays
        flat isa Flat && any(each -> each === param, flat.params) &&
            return part_of(array, flat_range(param), param.size)
    end
    throw(argument_error("$(param.name) is not in this gather"; subject = param.name))
end
part_of(array, range, size) = reshape(view(array, range), size)
part_of(array::DeviceArray{T}, range, size) where {T} =
    DeviceArray(pointer(array) + (first(range) - 1) * sizeof(T), size, array)

# A gather and the stream that is to wait for it, as waiting.jl takes an operation.
struct Joining
    gather::LibMeron.meron_future
    stream::Ptr{Cvoid}
end
poll_operation(joining::Joining, error) = wait_operation(joining, 0, error)
wait_operation(joining::Joining, slice, error) =
    LibMeron.meron_gather_wait_stream(joining.gather, joining.stream, slice, error)

"""
    wait_stream(full, stream = C_NULL; timeout = nothing)

Makes a stream of the context's device (a `Ptr{Cvoid}`: a cudaStream_t; `C_NULL` is its default stream)
wait until the tensors are full there: what is asked of it from now on sees them. The device is not
waited for here; for tensors on the host this is `wait(full)`. `true`, or `false` when `timeout`
seconds of waiting for peers have passed first.

Other tasks of the thread run meanwhile. Throws what `wait` throws, `MERON_E_ARGUMENT` (the context has
no device, or the stream is another one's), `MERON_E_STATE` (the stream is being captured into a
graph), `MERON_E_NO_MEMORY` (the device has no room) and `MERON_E_DEVICE`.
"""
wait_stream(full::Gather, stream = C_NULL; timeout = nothing) =
    await(Joining(raw(full), stream_pointer(stream)), nanoseconds(timeout))

"""
    release_on_stream!(full, stream = C_NULL)

As `release(full)`, where work that was asked of a stream so far still uses the views: their memory on
the device goes back when that is done. Doing so twice is fine. Never blocks.

Throws `MERON_E_ARGUMENT`, `MERON_E_STATE` and `MERON_E_DEVICE` as `wait_stream`; then nothing is
released.
"""
function release_on_stream!(full::Gather, stream = C_NULL)
    full.context.isopen || throw_closed()
    id = take_handle!(full)
    id == 0 && return
    try
        @check LibMeron.meron_gather_release_on_stream(
            LibMeron.meron_future(id), stream_pointer(stream))
    catch
        full.id = id
        rethrow()
    end
    full.loan === nothing || ((full.loan::Loan).ended = true)
    full.into === nothing || end_flight(id)
    return
end

@inline function note_full(full)
    full.ready = true
    full.into === nothing || end_flight(full.id)
    return
end

"""
    full[param]

The whole tensor of `param`: a `ReadOnlyView`; with `mode = :copy` or `into` the array that the
values were gathered into, or the part of a flat's array that is the param's. In a CUDA device's memory
a `Meron.DeviceArray`; that of the emulated device is the host's, and is waited for here.

Throws `MERON_E_STATE` (not full yet), `MERON_E_STALE` (released), `MERON_E_ARGUMENT` (the param is not
in this gather).
"""
@inline function Base.getindex(full::Gather{:host}, param::Param{T,N}) where {T,N}
    view = view_of(full, param)
    full.ready || isempty(full.context.device) || wait(full)
    full.loan === nothing && (full.loan = Loan(full.context, full))
    return ReadOnlyView{T,N}(wrap_memory(view, T, param.size), full.loan::Loan)
end
Base.getindex(full::Gather{:device}, param::Param{T}) where {T} =
    DeviceArray(Ptr{T}(view_of(full, param).data), param.size, full)
function Base.getindex(full::Gather{:into}, param::Param)
    full.ready || view_of(full, param) # it is full, or this is an error
    return gathered_array(full.into, param)
end

view_of(full, param) =
    receive(LibMeron.meron_view, LibMeron.meron_gather_view, raw(full), raw(param))

@inline function release(full::Gather)
    id = take_handle!(full)
    id == 0 && return
    full.loan === nothing || ((full.loan::Loan).ended = true)
    LibMeron.meron_future_release(LibMeron.meron_future(id), C_NULL)
    full.into === nothing || end_flight(id)
    return
end

Base.show(io::IO, full::Gather) =
    print(io, "Meron.Gather(", full.id == 0 ? "released" : full.ready ? "full" : "under way", ")")
