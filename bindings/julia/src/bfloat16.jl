# SPDX-License-Identifier: Apache-2.0
# A bfloat16 for programs that use no package with one.

"""
A 16-bit float with the exponent of a Float32 and 7 bits of fraction. Arithmetic goes by way of
Float32; conversion rounds to nearest, ties to even. `reinterpret` gives the bits.

Not exported: a program that uses BFloat16s.jl has a `BFloat16` already. `Param`, arrays and checkpoints
take that one too, and `Core.BFloat16` of Julia 1.11.
"""
primitive type BFloat16 <: AbstractFloat 16 end

bits(x::BFloat16) = reinterpret(UInt16, x)
from_bits(number::UInt16) = reinterpret(BFloat16, number)

# ---- Conversion ----------------------------------------------------------------------------------

Base.Float32(x::BFloat16) = reinterpret(Float32, UInt32(bits(x)) << 16)
Base.Float64(x::BFloat16) = Float64(Float32(x))
Base.Float16(x::BFloat16) = Float16(Float32(x))
Base.BigFloat(x::BFloat16; options...) = BigFloat(Float64(x); options...)
Base.Bool(x::BFloat16) = Bool(Float32(x))
Base.BigInt(x::BFloat16) = BigInt(Float32(x))
for T in (Int8, Int16, Int32, Int64, Int128, UInt8, UInt16, UInt32, UInt64, UInt128)
    @eval Base.$(nameof(T))(x::BFloat16) = $T(Float32(x))
end

function BFloat16(x::Float32)
    number = reinterpret(UInt32, x)
    # Half of the last place that is kept, and one more where that place is odd. Rounding could carry
    # the fraction of a NaN away: one bit of it is set instead.
    upper = isnan(x) ? (number >> 16) | 0x40 : (number + 0x7fff + ((number >> 16) & 1)) >> 16
    return from_bits(upper % UInt16)
end

function BFloat16(x::Float64)
    near = Float32(x)
    number = reinterpret(UInt32, near)
    # Half way between two results only since it is rounded already: a step towards x decides.
    if number & 0xffff == 0x8000 && Float64(near) != x
        number += abs(Float64(near)) < abs(x) ? UInt32(1) : ~UInt32(0)
    end
    return BFloat16(reinterpret(Float32, number))
end
BFloat16(x::BFloat16) = x
BFloat16(x::Float16) = BFloat16(Float32(x))
for T in (Integer, Rational, AbstractIrrational, BigFloat)
    @eval BFloat16(x::$T) = BFloat16(Float64(x))
end

Base.promote_rule(::Type{BFloat16}, ::Type{T}) where {T<:Union{Float32,Float64,BigFloat}} = T
Base.promote_rule(::Type{BFloat16}, ::Type{Float16}) = Float32
Base.promote_rule(::Type{BFloat16}, ::Type{<:Integer}) = BFloat16
Base.widen(::Type{BFloat16}) = Float32

# ---- Limits --------------------------------------------------------------------------------------

Base.typemax(::Type{BFloat16}) = from_bits(0x7f80)
Base.typemin(::Type{BFloat16}) = from_bits(0xff80)
Base.floatmax(::Type{BFloat16}) = from_bits(0x7f7f)
Base.floatmin(::Type{BFloat16}) = from_bits(0x0080)
Base.eps(::Type{BFloat16}) = from_bits(0x3c00)
Base.maxintfloat(::Type{BFloat16}) = BFloat16(256)
Base.precision(::Type{BFloat16}) = 8

# ---- Arithmetic ----------------------------------------------------------------------------------

for operation in (:+, :-, :*, :/, :^, :rem, :hypot, :atan, :copysign)
    @eval Base.$operation(a::BFloat16, b::BFloat16) = BFloat16($operation(Float32(a), Float32(b)))
end
Base.fma(a::BFloat16, b::BFloat16, c::BFloat16) = BFloat16(fma(Float32(a), Float32(b), Float32(c)))
Base.muladd(a::BFloat16, b::BFloat16, c::BFloat16) =
    BFloat16(muladd(Float32(a), Float32(b), Float32(c)))
Base.:-(x::BFloat16) = from_bits(xor(bits(x), 0x8000))
Base.abs(x::BFloat16) = from_bits(bits(x) & 0x7fff)
Base.signbit(x::BFloat16) = bits(x) >= 0x8000

for function_ in (:sqrt, :cbrt, :exp, :exp2, :exp10, :expm1, :log, :log2, :log10, :log1p,
    :sin, :cos, :tan, :asin, :acos, :atan, :sinh, :cosh, :tanh, :asinh, :acosh, :atanh,
    :sinpi, :cospi, :significand)
    @eval Base.$function_(x::BFloat16) = BFloat16($function_(Float32(x)))
end
Base.sincos(x::BFloat16) = map(BFloat16, sincos(Float32(x)))
Base.modf(x::BFloat16) = map(BFloat16, modf(Float32(x)))
Base.exponent(x::BFloat16) = exponent(Float32(x))
Base.ldexp(x::BFloat16, n::Integer) = BFloat16(ldexp(Float64(x), n))
function Base.frexp(x::BFloat16)
    fraction, power = frexp(Float32(x))
    return BFloat16(fraction), power
end

for mode in (:Nearest, :ToZero, :Down, :Up, :NearestTiesAway, :NearestTiesUp)
    @eval Base.round(x::BFloat16, mode::RoundingMode{$(QuoteNode(mode))}) =
        BFloat16(round(Float32(x), mode))
end
for T in (Int8, Int16, Int32, Int64, Int128, UInt8, UInt16, UInt32, UInt64, UInt128)
    @eval Base.trunc(::Type{$T}, x::BFloat16) = trunc($T, Float32(x))
    @eval Base.unsafe_trunc(::Type{$T}, x::BFloat16) = unsafe_trunc($T, Float32(x))
end

# The n-th float after x: the numbers of the floats have their order.
function Base.nextfloat(x::BFloat16, n::Integer)
    isnan(x) && return x
    place, infinity = Int(bits(abs(x))), Int(bits(typemax(BFloat16)))
    next = clamp(big(signbit(x) ? -place : place) + n, -infinity, infinity)
    return from_bits(next < 0 ? UInt16(-next) | 0x8000 : UInt16(next))
end
Base.prevfloat(x::BFloat16, n::Integer) = nextfloat(x, -big(n))

# ---- Comparison ----------------------------------------------------------------------------------

for comparison in (:(==), :<, :<=)
    @eval Base.$comparison(a::BFloat16, b::BFloat16) = $comparison(Float32(a), Float32(b))
end
for T in (Int64, UInt64, Int128, UInt128) # which no bfloat16 holds exactly
    @eval Base.:(==)(a::BFloat16, b::$T) = Float64(a) == b
    @eval Base.:(==)(a::$T, b::BFloat16) = a == Float64(b)
end
Base.isnan(x::BFloat16) = isnan(Float32(x))
Base.isinf(x::BFloat16) = isinf(Float32(x))
Base.isfinite(x::BFloat16) = isfinite(Float32(x))
Base.issubnormal(x::BFloat16) = issubnormal(Float32(x))
Base.hash(x::BFloat16, seed::UInt) = hash(Float64(x), seed)
Base.decompose(x::BFloat16) = Base.decompose(Float32(x))

# ---- Text and random numbers ---------------------------------------------------------------------

Base.show(io::IO, x::BFloat16) = get(io, :typeinfo, Any) === BFloat16 ? print(io, Float32(x)) :
                                 print(io, "BFloat16(", Float32(x), ")")
function Base.tryparse(::Type{BFloat16}, text::AbstractString)
    number = tryparse(Float64, text)
    return number === nothing ? nothing : BFloat16(number)
end

# In [0, 1), as for other floats; each of 256 values has the same chance.
Random.rand(generator::Random.AbstractRNG, ::Random.SamplerTrivial{Random.CloseOpen01{BFloat16}}) =
    BFloat16(rand(generator, UInt8)) / BFloat16(256)
Random.randn(generator::Random.AbstractRNG, ::Type{BFloat16}) = BFloat16(randn(generator, Float32))
Random.randexp(generator::Random.AbstractRNG, ::Type{BFloat16}) =
    BFloat16(Random.randexp(generator, Float32))
