# SPDX-License-Identifier: Apache-2.0

"""
Units opened for writing; `Meron.update` makes one.
"""
mutable struct Update <: Owner
    id::UInt64
    context::Context
    loan::Loan
    function Update(context)
        writing = new(0, context)
        writing.loan = Loan(context, writing)
        return finalizer(enqueue_owner, writing)
    end
end

kind_of(::Update) = future_kind

function raw(writing::Update)
    writing.context.isopen || throw_closed()
    writing.id == 0 && throw_released("update")
    return LibMeron.meron_future(writing.id)
end

"""
    Meron.update(body, unit)
    Meron.update(body, units)

Opens units for writing: `Meron.update(unit) do u; write!(u, param, array); end`. Collective over the units'
group: waits until all ranks have released the current version, and after `body(u)` publishes this
rank's writes as the next one. Elements that were not written keep their values.

If `body` throws, the exception is rethrown and nothing written in part is published: if this rank has
written or viewed no param, its values are published unchanged; otherwise the group breaks on every
rank with `MERON_E_ABORTED`, which names this rank.

Ctrl-C while it waits cancels the update, which breaks the group, because the peers continue it.

Throws `MERON_E_STATE` (a unit is gathered on this rank, or being updated), `MERON_E_DUPLICATE`,
`MERON_E_ARGUMENT`, and what `wait` throws.
"""
function update(body, units)
    writing = update_begin(units)
    result = try
        body(writing)
    catch
        release(writing)
        rethrow()
    end
    publish(writing)
    return result
end

"""
    Meron.update_begin(units)

Begins an update and waits until this rank's parts may be written; `Meron.publish` ends it.
"""
function update_begin(units)
    list = units isa Unit ? (units,) : units
    writing = Update(context_of(list))
    handles = handles_of(list)
    GC.@preserve writing @check LibMeron.meron_update_begin(
        out_pointer(writing, LibMeron.meron_future), handles, length(handles))
    try
        await(raw(writing), nanoseconds(nothing))
    catch
        release(writing)
        rethrow()
    end
    return writing
end

"""
    Meron.publish(update)

Publishes what was written as the next version, and ends the update and its views.
"""
function publish(writing::Update)
    handle = raw(writing)
    writing.loan.ended = true
    @check LibMeron.meron_update_publish(handle)
    writing.id = 0
    return
end

function release(writing::Update)
    writing.loan.ended = true
    return invoke(release, Tuple{Owner}, writing)
end

"""
    write!(update, param, values)

Writes this rank's part of `param` from the whole tensor; every rank passes equal values.

`values`: an array of the param's size; converted to its element type, and kept as f32 too where there
is an f32 master copy. Other numbers than Float32, BFloat16 and Float16 go by way of Float32; arrays
that are not contiguous are copied.

Throws `MERON_E_ARGUMENT` for another size, or a param of no unit of the update.
Blocks while another thread begins an operation.
"""
function write!(writing::Update, param::Param, values)
    array = as_source(values, param.size, param.name)
    GC.@preserve array @check LibMeron.meron_update_write(
        raw(writing), raw(param), address(array, param.name), length(array), code_of(eltype(array)))
    return
end

"""
    shard_view(update, param)

The elements `shard_range(param)` as a writable vector of the param's element type, in place, until the
update is published. Errors as `write!`.
"""
function shard_view(writing::Update, param::Param{T}) where {T}
    view = receive(LibMeron.meron_view, LibMeron.meron_update_view, raw(writing), raw(param))
    return TensorView{T,1}(shard_memory(view, T), writing.loan)
end

Base.show(io::IO, writing::Update) =
    print(io, "Meron.Update(", writing.id == 0 ? "ended" : "open", ")")
