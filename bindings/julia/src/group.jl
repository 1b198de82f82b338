# SPDX-License-Identifier: Apache-2.0
# Groups of ranks, and collectives on the caller's arrays. The ranks of a group begin their
# collectives on it in the same order; ranks that diverge get MERON_E_MISMATCH naming both calls.

"""
    Group(ctx, ranks)

Some ranks, in an order: world ranks, each once. Collective over the world: every rank calls it with
the same list; ranks outside of it get `nothing`. `ctx.world` is the group of all.

Fields: `rank`, this rank's place in the group, from 0; `size`, the number of ranks in it.

Throws `MERON_E_ARGUMENT` for a rank beyond the world or twice.
Blocks if this rank is 1,024 calls ahead of a peer.
"""
mutable struct Group <: Owner
    id::UInt64
    rank::Int
    size::Int
    context::Context
    Group(context::Context) = finalizer(enqueue_owner, new(0, 0, 0, context))
end

kind_of(::Group) = group_kind

function Group(context::Context, ranks)
    group = Group(context)
    list = collect(Int32, ranks)
    GC.@preserve group @check LibMeron.meron_group_create(
        out_pointer(group, LibMeron.meron_group), raw(context), list, length(list))
    return group.id == 0 ? nothing : describe!(group)
end

function world_group(context::Context)
    group = Group(context)
    GC.@preserve group @check LibMeron.meron_context_world(
        out_pointer(group, LibMeron.meron_group), raw(context))
    return describe!(group)
end

function describe!(group::Group)
    group.rank = receive(Int32, LibMeron.meron_group_rank, raw(group))
    group.size = receive(Int32, LibMeron.meron_group_size, raw(group))
    return group
end

function raw(group::Group)
    group.context.isopen || throw_closed()
    group.id == 0 && throw_released("group")
    return LibMeron.meron_group(group.id)
end

Base.show(io::IO, group::Group) = print(io, "Meron.Group(rank $(group.rank) of $(group.size))")

"""
    Meron.status(group)

`nothing` while the group is whole, else the `MeronError` that broke it. Never blocks.
"""
function status(group::Group)
    operation = raw(group)
    try
        @check LibMeron.meron_group_status(operation)
    catch error
        error isa MeronError && damage(error) == :group || rethrow()
        return error
    end
    return nothing
end

"""
    bcast!(array, group; root = 0)

Copies the array of the group's rank `root` into those of the other ranks, in place, and waits.
`array`: contiguous and writable, of any type of plain bits, with equal bytes on all ranks. Returns
it. Errors as `wait`, and `MERON_E_ARGUMENT`.
"""
bcast!(array, group::Group; root = 0) = (finish(bcast_begin!(array, group; root = root)); array)

"""
    bcast_begin!(array, group; root = 0)

Begins a broadcast; `array` is kept alive, and not to be touched, until it has ended.
"""
function bcast_begin!(array, group::Group; root = 0)
    handle = raw(group)
    require_writable(array, "the array")
    data, bytes = address(array, "the array"), sizeof(eltype(array)) * length(array)
    return begin_operation(group.context, array) do out
        @check LibMeron.meron_broadcast_begin(out, handle, data, bytes, root)
    end
end

"""
    allreduce!(array, group; op = :sum)

Combines the arrays of all ranks element by element, in place, and waits. Values are combined in the
order of the ranks: equal bits on every rank and in every run. Sums of 16-bit elements are in f32. Made
for small arrays such as losses, metrics and counts; gradients go by `reduce!`.

`array`: contiguous and writable, of Float32, BFloat16, Float16, Float64 or Int64; `op`: `:sum`, `:mean`
(not of Int64), `:max` or `:min`, which are NaN if a rank's value is. Length, type and `op` are equal on
all ranks. Returns it. Errors as `wait`, and `MERON_E_ARGUMENT`.
"""
allreduce!(array, group::Group; op = :sum) =
    (finish(allreduce_begin!(array, group; op = op)); array)

"""
    allreduce_begin!(array, group; op = :sum)

Begins an all-reduce; `array` is kept alive, and not to be touched, until it has ended.
"""
function allreduce_begin!(array, group::Group; op = :sum)
    handle, operation = raw(group), reduction(op)
    require_writable(array, "the array")
    code = number_code(eltype(array))
    data = address(array, "the array")
    return begin_operation(group.context, array) do out
        @check LibMeron.meron_all_reduce_begin(out, handle, data, length(array), code, operation)
    end
end

function reduction(op)
    op === :sum && return LibMeron.MERON_REDUCE_OP_SUM
    op === :mean && return LibMeron.MERON_REDUCE_OP_MEAN
    op === :max && return LibMeron.MERON_REDUCE_OP_MAX
    op === :min && return LibMeron.MERON_REDUCE_OP_MIN
    throw(argument_error("unknown reduction $(repr(op)): :sum, :mean, :max and :min are known"))
end

# Of an all-reduce: the types of tensors, and two of numbers that only it takes.
function number_code(type)
    type === Float64 && return LibMeron.MERON_F64
    type === Int64 && return LibMeron.MERON_I64
    return code_of(type)
end
