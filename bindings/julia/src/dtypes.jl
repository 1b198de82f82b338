# SPDX-License-Identifier: Apache-2.0
# Element types: Float32, Float16, and a bfloat16 of our own, which Julia lacks.

"""
A 16-bit float with the exponent of a Float32 and 7 bits of fraction. Arithmetic goes by way of
Float32; conversion rounds to nearest, ties to even. `reinterpret` gives the bits.
"""
primitive type BFloat16 <: AbstractFloat 16 end

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(reinterpret(UInt16, x)) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.Float16(x::BFloat16) = Float16(Float32(x))

function BFloat16(x::Float32)
    bits = reinterpret(UInt32, x)
    # Half of the last place that is kept, and one more where that place is odd. Rounding could carry
    # the fraction of a NaN away: one bit of it is set instead.
    upper = isnan(x) ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16
    return reinterpret(BFloat16, upper % UInt16)
end
BFloat16(x::BFloat16) = x
BFloat16(x::Real) = BFloat16(Float32(x))
(::Type{T})(x::BFloat16) where {T<:Integer} = T(Float32(x))

Base.promote_rule(::Type{BFloat16}, ::Type{T}) where {T<:Union{Float32,Float64}} = T
Base.promote_rule(::Type{BFloat16}, ::Type{Float16}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{<:Integer}) = BFloat16
for operation in (:+, :-, :*, :/)
    @eval Base.$operation(a::BFloat16, b::BFloat16) = BFloat16($operation(Float32(a), Float32(b)))
end
Base.:-(x::BFloat16) = reinterpret(BFloat16, xor(reinterpret(UInt16, x), 0x8000))
for comparison in (:(==), :<, :<=)
    @eval Base.$comparison(a::BFloat16, b::BFloat16) = $comparison(Float32(a), Float32(b))
end
Base.isnan(x::BFloat16) = isnan(Float32(x))
Base.isinf(x::BFloat16) = isinf(Float32(x))
Base.isfinite(x::BFloat16) = isfinite(Float32(x))
Base.show(io::IO, x::BFloat16) = print(io, "BFloat16(", Float32(x), ")")

const Element = Union{Float32,BFloat16,Float16}

const CODES = Dict{DataType,Int32}(
    Float32 => LibMeron.MERON_F32,
    BFloat16 => LibMeron.MERON_BF16,
    Float16 => LibMeron.MERON_F16,
)

function type_of(code)
    code == LibMeron.MERON_F32 && return Float32
    code == LibMeron.MERON_BF16 && return BFloat16
    code == LibMeron.MERON_F16 && return Float16
    throw(own_error(LibMeron.MERON_E_INTERNAL, "the library has a dtype $code that is not known here"))
end

code_of(type) =
    get(CODES, type) do
        throw(argument_error("unknown dtype $type: Float32, BFloat16 and Float16 are known"))
    end

# ---- Arrays of the caller's ----------------------------------------------------------------------

# Whether the elements lie side by side, in the order of linear indices.
function is_contiguous(array)
    array isa StridedArray || return false
    step = 1
    for d in 1:ndims(array)
        size(array, d) == 1 || stride(array, d) == step || isempty(array) || return false
        step *= size(array, d)
    end
    return true
end

# The address of the elements. The caller preserves the array.
function address(array, what)
    pointer_ = pointer(array)
    pointer_ isa Ptr && return Ptr{Cvoid}(pointer_)
    throw(argument_error("$what is not in the memory of this host: it is a $(typeof(array))"))
end

# MeronError unless the library may write there in order.
function require_writable(array, what)
    array isa AbstractArray || throw(argument_error("$what must be an array, not a $(typeof(array))"))
    isbitstype(eltype(array)) ||
        throw(argument_error("$what holds elements of type $(eltype(array)), which are not plain bits"))
    is_contiguous(array) || throw(argument_error(
        "$what is not contiguous in memory: it is a $(typeof(array))"; advice = "Pass a copy of it"))
    writable(array) || throw(argument_error("$what is read-only"; advice = "Pass a copy of it"))
    return array
end
writable(array) = true
writable(array::SubArray) = writable(parent(array))

# Values as a contiguous array that the library can read, of the tensor's size. Float32, BFloat16 and
# Float16 pass as they are; other real numbers are converted to Float32.
function as_source(values, size_, name)
    values isa AbstractArray || throw(argument_error(
        "$name: an array is needed, not a $(typeof(values))"; subject = name))
    size(values) == size_ || throw(argument_error(
        "$name has size $size_, the array has $(size(values))";
        subject = name, advice = "Sizes are in column order: C's shape reversed"))
    eltype(values) <: Real || throw(argument_error(
        "$name: an array of $(eltype(values)) holds no real numbers"; subject = name))
    eltype(values) <: Element || return Array{Float32}(values)
    return is_contiguous(values) ? values : Array(values)
end
