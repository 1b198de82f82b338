# SPDX-License-Identifier: Apache-2.0
# Memory of the library as arrays, without copies. reading.jl makes reads of whole arrays fast.

# How long views of something are good: until it `ended`, or its context is closed. It keeps the object
# whose release would end them (`keep`) from the collector. Units need none: their memory stays until
# `destroy!` or the end of the context.
mutable struct Loan
    ended::Bool
    keep::Any
    context::Context
end
Loan(context::Context, keep = nothing) = Loan(false, keep, context)

@inline Base.isvalid(loan::Loan) = !loan.ended & loan.context.isopen

"""
An array for reading in the library's memory: a full param, or a state that is read-only. Other ranks
read the same memory, so each function that writes throws `MERON_E_STATE`, and there is no `pointer`.

After the release of its object (a gather, a schedule's use) every use throws `MERON_E_STALE`, also of
slices, reshapes and transposes of it, and under `@inbounds`. `isvalid(view)` asks. `copy(view)` is an
`Array` of your own. Sums, broadcasts, copies and matrix products read at an Array's speed.

`Meron.unsafe_array(view)` is an `Array` of the same memory, which nothing checks.
"""
struct ReadOnlyView{T,N} <: AbstractArray{T,N}
    data::Array{T,N}
    loan::Loan
end

"""
Memory of the library that this rank may write, as a dense array: a gradient, a shard in an update, a
state of an optimizer. After its end (the reduction, the publication, the step) every use throws
`MERON_E_STALE`, also of slices and reshapes of it, and under `@inbounds`. `isvalid(view)` asks.

`Meron.unsafe_array(view)` is an `Array` of the same memory, which nothing checks.
"""
struct TensorView{T,N} <: DenseArray{T,N}
    data::Array{T,N}
    loan::Loan
end

const LentArray{T,N} = Union{ReadOnlyView{T,N},TensorView{T,N}}

# The memory of a `meron_view` as an array of elements of a type that has the view's dtype.
@inline function wrap_memory(view::LibMeron.meron_view, ::Type{T}, size_::NTuple{N,Int}) where {T,N}
    code_of(T) == view.dtype || throw_other_dtype(view.dtype, T)
    return unsafe_wrap(Array, Ptr{T}(view.data), size_)::Array{T,N}
end
@noinline throw_other_dtype(code, type) = throw(own_error(
    LibMeron.MERON_E_INTERNAL, "a view has the dtype $code, which is not that of $type"))

# This rank's shard, as a vector.
shard_memory(view, ::Type{T}) where {T} = wrap_memory(view, T, (Int(view.count),))

@inline Base.isvalid(view::LentArray) = isvalid(view.loan)

@inline function require_valid(view::LentArray)
    isvalid(view.loan) || throw_ended(view)
    return view
end

"""
    Meron.writable(view)

True if the view may be written: a `TensorView`. Throws if the view has ended.
"""
writable(view::LentArray) = require_valid(view) isa TensorView

@noinline function throw_ended(view)
    view.loan.context.isopen || throw_closed()
    of_state = view.loan.keep isa Optimizer
    throw(own_error(
        LibMeron.MERON_E_STALE,
        of_state ?
        "a step, an offload, a save, an export or a load has ended this view of a state" :
        "this view's memory was given back";
        advice = of_state ? "Call state_view again, or copy what you need before" :
                 "Use it before the end of what it belongs to, or keep a copy",
    ))
end
@noinline throw_read_only() = throw(own_error(
    LibMeron.MERON_E_STATE,
    "this view is read-only: other ranks read the same memory";
    advice = "Write params in an update, or work on copy(view)",
))

"""
    Meron.unsafe_array(view)

A plain `Array` of the memory of a view, for code that takes nothing else. Nothing checks it: a write to
a read-only one changes this rank's values alone or ends the process, it shows other values after the
view's end, and must not be touched after the context was closed. Throws as the view does if that has
ended already.
"""
unsafe_array(view::LentArray) = require_valid(view).data

# Every loop and every operation on whole arrays begins by asking for the size. Elements are asked for
# under @inbounds by Base itself, so validity is no part of the bounds check.
@inline Base.size(view::LentArray) = size(require_valid(view).data)
Base.IndexStyle(::Type{<:LentArray}) = IndexLinear()
Base.strides(view::LentArray) = strides(require_valid(view).data)

Base.@propagate_inbounds function Base.getindex(view::LentArray, i::Int)
    require_valid(view)
    return view.data[i]
end

Base.@propagate_inbounds function Base.setindex!(view::TensorView, value, i::Int)
    require_valid(view)
    view.data[i] = value
    return view
end
Base.setindex!(view::ReadOnlyView, value, indices...) = (require_valid(view); throw_read_only())

# Functions that take a pointer may write through it, so only writable memory has one.
Base.unsafe_convert(::Type{Ptr{T}}, view::TensorView{T}) where {T} = pointer(require_valid(view).data)
Base.elsize(::Type{<:TensorView{T}}) where {T} = sizeof(T)
Base.unsafe_convert(::Type{Ptr{T}}, view::ReadOnlyView{T}) where {T} = throw(own_error(
    LibMeron.MERON_E_STATE, "a read-only view has no pointer: what takes one may write to it";
    advice = "Pass copy(view), or Meron.unsafe_array(view) to what only reads"))

# For reads of the library's own.
address(view::ReadOnlyView, what) = Ptr{Cvoid}(pointer(require_valid(view).data))
device_address(view::ReadOnlyView, what) = address(view, what)

# Views of the same memory may be several objects.
Base.dataids(view::LentArray) = Base.dataids(view.data)
Base.unaliascopy(view::V) where {V<:LentArray} = V(copy(require_valid(view).data), view.loan)
Base.unaliascopy(part::SubArray{<:Any,<:Any,<:LentArray}) =
    Base.view(Base.unaliascopy(parent(part)), parentindices(part)...)

# Writes of whole arrays. A save, an export or a load of another thread ends views of states before or
# after such a write, not within.
function write_all(body::F, view::TensorView) where {F}
    if view.loan.keep isa Optimizer
        lock(() -> body(require_valid(view).data), view.loan.context.states)
    else
        body(require_valid(view).data)
    end
    return view
end
Base.copyto!(target::TensorView, source::Base.Broadcast.Broadcasted{Nothing}) =
    write_all(data -> copyto!(data, source), target)
Base.copyto!(target::TensorView{T}, source::Array{T}) where {T} =
    write_all(data -> copyto!(data, source), target)
Base.fill!(view::TensorView, value) = write_all(data -> fill!(data, value), view)

function Base.show(io::IO, kind::MIME"text/plain", view::LentArray)
    isvalid(view) && return invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, kind, view)
    print(io, typeof(view), " whose memory was given back")
end
Base.show(io::IO, view::LentArray) =
    isvalid(view) ? show(io, view.data) : print(io, typeof(view), " whose memory was given back")
# A copy of a program's state has values of its own, and refers to the same loan.
Base.deepcopy_internal(view::LentArray, ::IdDict) = Base.unaliascopy(view)
