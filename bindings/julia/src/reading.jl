# SPDX-License-Identifier: Apache-2.0
# Reads of whole views at the speed of an Array's.
#
# A view asks at each element whether it has ended. Operations that read all of it ask once, and then read
# the memory: broadcasts, reductions, copies and matrix products, also of a slice, a reshape or a transpose
# of a view. Everything else works too, element by element.

const Readable = Union{
    LentArray,
    SubArray{<:Any,<:Any,<:LentArray},
    Base.ReshapedArray{<:Any,<:Any,<:LentArray},
    Adjoint{<:Any,<:LentArray},
    Transpose{<:Any,<:LentArray},
}

# The same elements without the checks, for one operation; an error if the view has ended.
@inline readable(view::LentArray) = require_valid(view).data
@inline readable(part::SubArray) = view(readable(parent(part)), parentindices(part)...)
@inline readable(shaped::Base.ReshapedArray) = reshape(readable(parent(shaped)), size(shaped))
@inline readable(turned::Adjoint) = adjoint(readable(parent(turned)))
@inline readable(turned::Transpose) = transpose(readable(parent(turned)))

# When a broadcast runs, not when it is made.
@inline Base.Broadcast.preprocess(target, source::Readable) =
    Base.Broadcast.extrude(Base.Broadcast.broadcast_unalias(target, readable(source)))

Base.mapreduce(f, op, source::Readable; options...) = mapreduce(f, op, readable(source); options...)

Base.copyto!(target::Array, source::Readable) = copyto!(target, readable(source))
Base.copyto!(target::TensorView, source::Readable) =
    write_all(data -> copyto!(data, readable(source)), target)

# Matrix products by BLAS, which reads by pointers: of views, and of a view and an array, or a slice of one
# on its right. The types are narrow because each method of mul! makes `using Meron` slower.
with_transposes(matrix) =
    (matrix, :(Adjoint{Float32,<:$matrix}), :(Transpose{Float32,<:$matrix}))
const LENT = with_transposes(:(ReadOnlyView{Float32,2}))
const OWN = with_transposes(:(DenseMatrix{Float32}))
const RIGHTS = (
    (2, LENT, (OWN..., :(SubArray{Float32,2,<:DenseMatrix{Float32}}))),
    (1, (:(ReadOnlyView{Float32,1}),),
        (:(DenseVector{Float32}), :(SubArray{Float32,1,<:DenseMatrix{Float32}}))))

operand(source) = source isa Readable ? readable(source) : source
for (N, lent, own) in RIGHTS, A in (LENT..., OWN...), B in (lent..., own...)
    A in OWN && B in own && continue # a product of LinearAlgebra
    @eval LinearAlgebra.mul!(C::DenseArray{Float32,$N}, a::$A, b::$B, α::Number, β::Number) =
        mul!(C, operand(a), operand(b), α, β)
end
