# SPDX-License-Identifier: Apache-2.0
# Memory of the library as arrays, without copies.

# How long views of something are good: until it `ended`, or its context is closed. It keeps the object
# whose release would end them (`keep`) from the collector. Units need none: their memory stays until
# `destroy!` or the end of the context.
mutable struct Loan
    ended::Bool
    keep::Any
    context::Context
end
Loan(context::Context, keep = nothing) = Loan(false, keep, context)

Base.isvalid(loan::Loan) = !loan.ended && loan.context.isopen

"""
A dense array of memory of the library, in place. It belongs to a gather, an update, a gradient or
an optimizer's state; after that was released (published, reduced) every use throws
`MERON_E_STALE`. `isvalid(view)` asks.

`parent(view)` is a plain `Array` of the same memory, for code that wants one: that is **not**
refused afterwards. It then shows whatever the memory holds, and must not be touched any more once
the context was closed. Code under `@inbounds` is not checked either.

Writing to one that is read-only (`Meron.writable(view)`) throws `MERON_E_STATE`. A write that gets past
this, as that of `map!`, throws a `ReadOnlyMemoryError` or, as that of `mul!`, ends the process: no rank
sees it.
"""
struct TensorView{T,N} <: DenseArray{T,N}
    data::Array{T,N}
    loan::Loan
    writable::Bool
end

# The memory of a `meron_view` as an array of some size.
function tensor_view(view::LibMeron.meron_view, size_::NTuple{N,Int}, loan::Loan) where {N}
    T = type_of(view.dtype)
    data = unsafe_wrap(Array, Ptr{T}(view.data), size_)
    return TensorView{T,N}(data, loan, view.writable != 0)
end

# The same as a vector of the view's elements.
part_view(view, loan) = tensor_view(view, (Int(view.count),), loan)

Base.isvalid(view::TensorView) = isvalid(view.loan)
writable(view::TensorView) = view.writable

@inline function require_valid(view::TensorView)
    isvalid(view.loan) || throw_ended(view)
    return view
end

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
    advice = "Write params in an update, or gather a copy",
))

# Every loop and every operation on whole arrays begins by asking for the size.
Base.size(view::TensorView) = size(require_valid(view).data)
Base.IndexStyle(::Type{<:TensorView}) = IndexLinear()
Base.parent(view::TensorView) = require_valid(view).data
Base.unsafe_convert(::Type{Ptr{T}}, view::TensorView{T}) where {T} =
    pointer(require_valid(view).data)
Base.elsize(::Type{<:TensorView{T}}) where {T} = sizeof(T)

Base.@propagate_inbounds function Base.getindex(view::TensorView, i::Int)
    @boundscheck require_valid(view)
    return view.data[i]
end

Base.@propagate_inbounds function Base.setindex!(view::TensorView, value, i::Int)
    @boundscheck begin
        require_valid(view)
        view.writable || throw_read_only()
    end
    view.data[i] = value
    return view
end

# Under broadcasting and fill!, stores are @inbounds: read-only memory is refused before. A save, an
# export or a load of another thread ends views of states before or after such a write, not within.
function write_all(body::F, view::TensorView) where {F}
    if view.loan.keep isa Optimizer
        lock(() -> body(require_writable_view(view).data), view.loan.context.states)
    else
        body(require_writable_view(view).data)
    end
    return view
end
function require_writable_view(view::TensorView)
    require_valid(view).writable || throw_read_only()
    return view
end
Base.copyto!(target::TensorView, source::Base.Broadcast.Broadcasted{Nothing}) =
    write_all(data -> copyto!(data, source), target)
Base.copyto!(target::TensorView{T}, source::Array{T}) where {T} =
    write_all(data -> copyto!(data, source), target)
Base.copyto!(target::Array{T}, source::TensorView{T}) where {T} =
    copyto!(target, require_valid(source).data)
Base.fill!(view::TensorView, value) = write_all(data -> fill!(data, value), view)

function Base.show(io::IO, kind::MIME"text/plain", view::TensorView)
    isvalid(view) && return invoke(show, Tuple{IO,MIME"text/plain",AbstractArray}, io, kind, view)
    print(io, typeof(view), " whose memory was given back")
end
Base.show(io::IO, view::TensorView) =
    isvalid(view) ? show(io, view.data) : print(io, typeof(view), " whose memory was given back")
