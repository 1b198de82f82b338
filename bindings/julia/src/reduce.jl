# SPDX-License-Identifier: Apache-2.0
# Gradients on their way to their owners.

"""
    gradient_view(unit, param; overwrite = false)

The place for the gradient of `param`: a writable view of its size, to be added to, until `reduce!`.
It is zero when an accumulation starts; under a plan that keeps whole gradients it holds the sum of
the micro-batches so far. The element type is the plan's gradient dtype; by default whole
gradients of a 16-bit param are Float32 from the second micro-batch on. Peers read it in place.

- `overwrite`: every element will be written, so skip the zeroing. The first call for the unit in a
  micro-batch counts.

Blocks on peers that still read the last contents, at most until the deadline; tasks of this thread
stand still meanwhile.

Throws `MERON_E_STATE` (the param is frozen, in no unit, or its gradient is reduced and not used),
`MERON_E_ARGUMENT`, and what `wait` throws.
"""
function gradient_view(unit::Unit, param::Param; overwrite = false)
    raw(unit)
    flags = overwrite ? LibMeron.MERON_GRADIENT_OVERWRITE : 0
    view = receive(LibMeron.meron_view, LibMeron.meron_gradient_view, raw(param), flags)
    end_sums(unit)
    unit.gradients === nothing && (unit.gradients = Loan(unit.context))
    return gradient_of_type(view, type_of(view.dtype, eltype(param)), param, unit.gradients::Loan)
end

gradient_of_type(view, ::Type{T}, param::Param{<:Any,N}, loan) where {T,N} =
    TensorView{T,N}(wrap_memory(view, T, param.size), loan)

"""
    reduce!(unit, gradients = nothing; op = :mean, boundary = true, divisor = 1, stream = C_NULL)

Reduces the gradients of one micro-batch, and waits. `reduce_begin!` only begins. Collective.

- `gradients`: `nothing` when they were written to `gradient_view`; else pairs `param => array`, or a
  dictionary of them, arrays of the params' sizes. Params without one count as zero. They are read
  during the call, but for those on the context's device (a `CuArray` or a `Meron.DeviceArray`): these
  stay as they are until the reduction has ended.
- `op`: `:mean` over the ranks of the group, or `:sum`.
- `boundary`: `false` when more micro-batches follow before the optimizer's step. Under a plan that
  keeps whole gradients such a call only adds up: no communication.
- `divisor`: the sum is divided by this too, e.g. by the number of micro-batches.
- `stream`: a `Ptr{Cvoid}`; gradients on the device are read after what was asked of this stream so far.
  `C_NULL` is the device's default stream.

Throws `MERON_E_STATE` (reduced already and not used, or all params frozen), `MERON_E_ARGUMENT`,
`MERON_E_DUPLICATE`, and what `wait` throws.
"""
reduce!(unit::Unit, gradients = nothing; options...) =
    finish(reduce_begin!(unit, gradients; options...))

"""
    reduce_begin!(
        unit, gradients = nothing; op = :mean, boundary = true, divisor = 1, stream = C_NULL)

Begins the reduction of `reduce!`; its future must have ended before the result is used. With
`gradients` it blocks as `gradient_view` does.
"""
function reduce_begin!(
    unit::Unit, gradients = nothing; op = :mean, boundary = true, divisor = 1, stream = C_NULL
)
    handle = raw(unit)
    options = Ref(changed(
        initial(LibMeron.meron_reduce_options, LibMeron.meron_reduce_options_init);
        op = reduction(op),
        boundary = boundary,
        divisor = divisor,
        stream = stream_pointer(stream),
    ))
    arrays, sources = source_table(gradients)
    table = gradients === nothing ? Ptr{LibMeron.meron_source}(C_NULL) : sources
    used = isempty(unit.context.device) ? nothing : arrays # for longer than the call
    future = GC.@preserve arrays begin_operation(unit.context, used) do out
        @check LibMeron.meron_reduce_begin(out, handle, table, length(sources), options)
    end
    end_loans(unit)
    return future
end

"""
    reduce_finish!(unit; op = :mean, divisor = 1)

Ends an accumulation whose micro-batches were all reduced with `boundary = false`, and waits: the
result has the same bits as if the last of them had been the boundary. A rank without a gradient takes
part with zeros. `reduce_finish_begin!` only begins. Collective.

Throws `MERON_E_STATE` (a gradient was written and not reduced, reduced already and not used, or all
params frozen), `MERON_E_ARGUMENT`, and what `wait` throws.
"""
reduce_finish!(unit::Unit; options...) = finish(reduce_finish_begin!(unit; options...))

"""
    reduce_finish_begin!(unit; op = :mean, divisor = 1)

Begins the end of `reduce_finish!`. Under a plan that keeps whole gradients it blocks as
`gradient_view` does.
"""
function reduce_finish_begin!(unit::Unit; op = :mean, divisor = 1)
    handle = raw(unit)
    options = Ref(changed(
        initial(LibMeron.meron_reduce_options, LibMeron.meron_reduce_options_init);
        op = reduction(op),
        divisor = divisor,
    ))
    future = begin_operation(unit.context) do out
        @check LibMeron.meron_reduce_finish_begin(out, handle, options)
    end
    end_loans(unit)
    return future
end

"""
    wait_reductions(units; timeout = nothing)

Waits until the last reduction and the last end of an accumulation of each of these units have ended,
also those without a future, and returns `true`. Returns `false` after `timeout` seconds; all
continue. One call for many units.

- `units`: of one context, also of several groups; a unit with no reduction counts as done.

Other tasks of the thread run meanwhile. Throws what `wait` throws, `MERON_E_ARGUMENT` for no unit, and
`MERON_E_HANDLE` for units of several contexts.
"""
function wait_reductions(units; timeout = nothing)
    list = collect(Unit, units)
    return GC.@preserve list await(handles_of(list), nanoseconds(timeout))
end

# Arrays to keep meanwhile, and what the library takes.
function source_table(gradients)
    arrays, sources = Any[], LibMeron.meron_source[]
    gradients === nothing && return arrays, sources
    for (param, values) in pairs_of(gradients)
        array = as_source(values, param.size, param.name)
        push!(arrays, array)
        push!(sources, LibMeron.meron_source(
            raw(param), device_address(array, param.name), length(array), code_of(eltype(array)), 0))
    end
    return arrays, sources
end

# Ends the views of the unit's gradients, and of the reduced one.
function end_loans(unit)
    unit.gradients === nothing || (unit.gradients.ended = true)
    unit.gradients = nothing
    end_sums(unit)
end
function end_sums(unit)
    unit.sums === nothing || (unit.sums.ended = true)
    unit.sums = nothing
    return
end

"""
    reduced(unit, param)

The reduced gradient of `shard_range(param)`, for an optimizer of your own: a writable vector of Float32.
The unit's next gradient, a step and `discard!` end the view.

Throws `MERON_E_STATE` when no reduction at a boundary has ended.
Blocks while another thread begins an operation.
"""
function reduced(unit::Unit, param::Param)
    raw(unit)
    view = receive(LibMeron.meron_view, LibMeron.meron_reduced_view, raw(param))
    unit.sums === nothing && (unit.sums = Loan(unit.context))
    return TensorView{Float32,1}(shard_memory(view, Float32), unit.sums::Loan)
end

"""
    clip_gradients!(units, max_norm)

The exact global 2-norm of the reduced gradients of some units, which are scaled to at most `max_norm`;
0 only measures. For an optimizer of your own: norm and gradients have the bits with which an optimizer
of Meron's with `max_norm` works. Collective over the units' group; blocks until every rank has called
it, at most the deadline.

Throws `MERON_E_NONFINITE` on all ranks if a gradient is NaN or infinite, with its param, element and
rank: no gradient was changed. `MERON_E_STATE` for a unit that is not reduced, `MERON_E_ARGUMENT`,
`MERON_E_DUPLICATE`, and what `wait` throws.
"""
function clip_gradients!(units, max_norm)
    list = collect(Unit, units)
    return GC.@preserve list receive(
        Float64, LibMeron.meron_gradient_clip, map(raw, list), length(list), max_norm)
end

"""
    discard!(unit)

Throws the reduced gradient away, with the codec's feedback; or the accumulation, before its boundary,
as all ranks then must. After a step of your own optimizer, call `consume!` instead. Blocks, if the codec has
feedback, while a save copies it.
"""
function discard!(unit::Unit)
    @check LibMeron.meron_reduce_discard(raw(unit))
    end_loans(unit)
    return
end

"""
    destroy!(unit)

Releases the memory and the names of the unit and its params, whose handles become stale. Collective
over their group; no rank creates units or groups meanwhile. Blocks until every rank has called it
and no rank uses the unit, at most the deadline.

Throws `MERON_E_STATE` if the unit is in use on this rank, or belongs to a schedule or an optimizer, and
what `wait` throws.
"""
function destroy!(unit::Unit)
    @check LibMeron.meron_unit_destroy(raw(unit))
    end_loans(unit)
    return
end
