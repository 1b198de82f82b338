# SPDX-License-Identifier: Apache-2.0

"""
    Param(ctx, name, size; dtype = Float32, frozen = false, group = nothing)

Registers a named tensor that the ranks of a group share. Collective over its group: all ranks
register the same params in the same order.

- `name`: unique in the context, 1 to 512 bytes of UTF-8.
- `size`: a tuple or a number, in column order: C's shape reversed; `()` is a scalar.
- `dtype`: `Float32`, `Float16`, or a bfloat16: `Meron.BFloat16`, or that of BFloat16s.jl or `Core`.
  Views of the param have this element type.
- `frozen`: it gets no gradient and no optimizer state.
- `group`: the ranks that share it; `nothing` is the world.

`param.name`, `size(param)`, `eltype(param)`, `length(param)`, `param.frozen`, `shard_range(param)` tell.
The type, `Param{T,N}`, has the element type and the number of dimensions: code that takes views of it is
compiled for these.

Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE`, `MERON_E_MISMATCH`.
Blocks if this rank is 1,024 calls ahead of a peer.
"""
mutable struct Param{T,N} <: Owner
    id::UInt64
    name::String
    size::NTuple{N,Int}
    frozen::Bool
    context::Context
    Param{T,N}(context, name, size, frozen) where {T,N} =
        finalizer(enqueue_owner, new{T,N}(0, name, size, frozen, context))
end

kind_of(::Param) = param_kind

function Param(
    context::Context, name, size; dtype = Float32, frozen = false, group = nothing)
    code, c_name = code_of(dtype), text(name, "the name of a param")
    sizes = size_tuple(size, c_name)
    param = Param{dtype,length(sizes)}(context, c_name, sizes, convert_field(Bool, frozen, :frozen))
    shape = collect(Int64, reverse(sizes))
    GC.@preserve param c_name shape begin
        desc = changed(
            initial(LibMeron.meron_param_desc, LibMeron.meron_param_desc_init);
            dtype = code,
            name = pointer(c_name),
            shape = pointer(shape),
            dims = length(shape),
            frozen = frozen,
            group = group === nothing ? LibMeron.meron_group(0) : raw(group),
        )
        @check LibMeron.meron_param_register(
            out_pointer(param, LibMeron.meron_param), raw(context), Ref(desc))
    end
    return param
end

size_tuple(size::Integer, name) = size_tuple((size,), name)
function size_tuple(size, name)
    try
        return map(Int, Tuple(size))
    catch error
        error isa Union{InexactError,MethodError} || rethrow()
        throw(argument_error("$name: $(repr(size)) is no size"; subject = name))
    end
end

function raw(param::Param)
    param.context.isopen || throw_closed()
    param.id == 0 && throw_released("param")
    return LibMeron.meron_param(param.id)
end

Base.size(param::Param) = param.size
Base.ndims(::Param{T,N}) where {T,N} = N
Base.length(param::Param) = prod(param.size)
Base.ndims(::Type{<:Param{T,N}}) where {T,N} = N
Base.eltype(::Type{<:Param{T}}) where {T} = T
Base.show(io::IO, param::Param) =
    print(io, "Meron.Param(", repr(param.name), ", ", eltype(param), ", ", param.size, ")")

"""
    shard_range(param)

The linear indices of the elements that this rank updates; empty before the param is in a unit.
"""
function shard_range(param::Param)
    known = info(param)
    return known.shard_offset+1:known.shard_offset+known.shard_count
end

"""
    Meron.info(param)

Information about a param: the fields of `meron_param_info`, shape in C's order.
"""
function info(param::Param)
    known = filled(LibMeron.meron_param_info, LibMeron.meron_param_get_info, raw(param))
    name = unsafe_string(receive(Ptr{UInt8}, LibMeron.meron_param_name, raw(param)))
    return (
        name = name,
        dtype = eltype(param),
        shape = known.shape[1:known.dims],
        count = Int(known.count),
        frozen = known.frozen != 0,
        shard_offset = Int(known.shard_offset),
        shard_count = Int(known.shard_count),
        flat = Int(known.flat),
        flat_offset = Int(known.flat_offset),
    )
end
