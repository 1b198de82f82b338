# SPDX-License-Identifier: Apache-2.0

"""
    Meron.dlpack(full, param)

The whole tensor of `param` as a DLPack 1.x tensor, for packages and libraries that take one:
`pointer(tensor)` is a `Ptr{Cvoid}` to the DLManagedTensorVersioned, in C's order of sizes. No copy is
made. The tensor has a lease of its own, which ends when it is released (or found by the collector);
`Meron.hand_over(tensor)` is the pointer for a consumer that calls the deleter itself.

It must not be read after the context was closed; on a CUDA device, read it by work of a stream for
which `wait_stream` was called. Throws as `full[param]`, and `MERON_E_UNSUPPORTED` for `mode = :copy`
and `into`: those arrays are Julia's own.
"""
mutable struct DLPackTensor <: Owner
    id::UInt64 # the address
    context::Context
    DLPackTensor(context) = finalizer(enqueue_owner, new(0, context))
end

kind_of(::DLPackTensor) = dlpack_kind

function dlpack(full::Gather, param::Param)
    tensor = DLPackTensor(full.context)
    GC.@preserve tensor @check LibMeron.meron_gather_dlpack(
        out_pointer(tensor, Ptr{LibMeron.DLManagedTensorVersioned}), raw(full), raw(param))
    full.ready || full isa Gather{:device} || isempty(full.context.device) || wait(full)
    return tensor
end

"""
    Meron.dlpack(unit, param)

The reduced gradient of `shard_range(param)` as a writable DLPack tensor of one dimension, Float32. It lends
the gradient until it is released: until then a step, `consume!`, `discard!` and `destroy!` of the unit
throw `MERON_E_STATE`. Throws as `reduced`.
"""
function dlpack(unit::Unit, param::Param)
    raw(unit)
    tensor = DLPackTensor(unit.context)
    GC.@preserve tensor @check LibMeron.meron_reduced_dlpack(
        out_pointer(tensor, Ptr{LibMeron.DLManagedTensorVersioned}), raw(param))
    return tensor
end

function Base.pointer(tensor::DLPackTensor)
    tensor.id == 0 && throw_released("DLPack tensor")
    return Ptr{Cvoid}(UInt(tensor.id))
end

"""
    Meron.hand_over(tensor)

The pointer of a DLPack tensor, whose deleter the receiver calls from now on.
"""
function hand_over(tensor::DLPackTensor)
    id = take_handle!(tensor)
    id == 0 && throw_released("DLPack tensor")
    return Ptr{Cvoid}(UInt(id))
end

# The fields that have the same offset in every version of DLPack 1.x.
struct ManagedTensorHead
    major::UInt32
    minor::UInt32
    manager_context::Ptr{Cvoid}
    deleter::Ptr{Cvoid}
end

function delete_dlpack(address_::UInt64)
    tensor = Ptr{ManagedTensorHead}(UInt(address_))
    deleter = unsafe_load(tensor).deleter
    deleter == C_NULL || ccall(deleter, Cvoid, (Ptr{Cvoid},), tensor)
    return
end

Base.show(io::IO, tensor::DLPackTensor) =
    print(io, "Meron.DLPackTensor(", tensor.id == 0 ? "released" : pointer(tensor), ")")
