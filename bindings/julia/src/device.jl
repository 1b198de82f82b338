# SPDX-License-Identifier: Apache-2.0
# The device that a rank computes on: its streams, and memory of it.

"""
    Meron.DeviceArray(pointer::Ptr{T}, size, keep = nothing)

Dense memory of a context's device. `full[param]` returns it on a CUDA device, and `reduce!` and
`into` of a gather take it as well as a `CuArray`. `pointer(array)`, `size(array)`, `eltype(array)`;
the pointer is not checked. `keep` is the object that keeps the memory alive.

One of a gather is read-only, for work of a stream that waits for it (`wait_stream`), until the gather
is released: `unsafe_wrap(CuArray, reinterpret(CuPtr{T}, pointer(array)), size(array))`.
"""
struct DeviceArray{T,N}
    pointer::Ptr{T}
    size::NTuple{N,Int}
    keep::Any
end
DeviceArray(pointer::Ptr{T}, size::NTuple{N,Integer}, keep = nothing) where {T,N} =
    DeviceArray{T,N}(pointer, map(Int, size), keep)

Base.pointer(array::DeviceArray) = array.pointer
Base.size(array::DeviceArray) = array.size
Base.length(array::DeviceArray) = prod(array.size)
Base.eltype(::Type{<:DeviceArray{T}}) where {T} = T

Base.show(io::IO, array::DeviceArray{T}) where {T} =
    print(io, "Meron.DeviceArray{$T}(", array.pointer, ", ", array.size, ")")

# Where the elements are, in memory of the host or of a device (a CuPtr). The caller preserves the array.
device_address(array, what) =
    pointer(array) isa Ptr ? address(array, what) : Ptr{Cvoid}(UInt(pointer(array)))

function as_source(array::DeviceArray, size_, name)
    size(array) == size_ || throw(argument_error(
        "$name has size $size_, the array has $(size(array))"; subject = name))
    code_of(eltype(array))
    return array
end

require_writable(array::DeviceArray, what) = array

# A stream as the library takes it; null is the device's default stream.
stream_pointer(stream::Ptr) = Ptr{Cvoid}(stream)
stream_pointer(stream) = throw(argument_error("a stream must be a Ptr{Cvoid}, not $(repr(stream))"))

const TIERS = (device = LibMeron.MERON_TIER_DEVICE, host = LibMeron.MERON_TIER_HOST)
tier_code(tier) =
    tier isa Symbol && haskey(TIERS, tier) ? TIERS[tier] :
    throw(argument_error("unknown tier $(repr(tier)): :device and :host are known"))
