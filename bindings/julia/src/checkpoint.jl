# SPDX-License-Identifier: Apache-2.0
# Checkpoints as files, without a context.

# The names of element types in safetensors.
const SAFETENSORS = Dict{DataType,String}(
    Float64 => "F64", Float32 => "F32", Float16 => "F16",
    Int64 => "I64", Int32 => "I32", Int16 => "I16", Int8 => "I8",
    UInt64 => "U64", UInt32 => "U32", UInt16 => "U16", UInt8 => "U8", Bool => "BOOL")
safetensors_name(type) = is_bfloat16(type) ? "BF16" : get(SAFETENSORS, type, "")

"""
    CheckpointTensor(name, array; kind = "extra", size = size(array), first = 1)

A tensor of the program's own, or a part of one, that goes into a checkpoint.

- `name`: 1 to 512 bytes of UTF-8.
- `array`: contiguous, of floats, integers or Bools. It is not copied.
- `kind`: "values" for a buffer of a model, "exp_avg" or "state.KEY" for a state of an optimizer:
  docs/checkpoint-format.md.
- `size`: of the whole tensor, if `array` is a part of it; `first`: the linear index of the part's first
  element in the tensor.
"""
struct CheckpointTensor
    name::String
    array::Any
    kind::String
    size::Tuple{Vararg{Int}}
    first::Int
    function CheckpointTensor(name, array; kind = "extra", size = Base.size(array), first = 1)
        is_contiguous(array) || throw(argument_error("the array of $name is not contiguous"))
        isempty(safetensors_name(eltype(array))) &&
            throw(argument_error("safetensors has no elements of type $(eltype(array))"))
        first >= 1 || throw(argument_error("the first element of $name is $first: give 1 or more"))
        return new(text(name, "the name of a tensor"), array, text(kind, "kind"), size, first)
    end
end

Base.show(io::IO, tensor::CheckpointTensor) = print(io, "Meron.CheckpointTensor(", repr(tensor.name), ", ",
    eltype(tensor.array), ", ", tensor.size, ", ", repr(tensor.kind), ")")

# `alive` holds what options point to; it is preserved as long as they are used.
function pointer_of(value, what, alive)
    value === nothing && return Ptr{UInt8}(C_NULL)
    push!(alive, text(value, what))
    return pointer(last(alive)) # a String ends in NUL
end

function table_of(list, alive)
    push!(alive, list)
    return isempty(list) ? Ptr{eltype(list)}(C_NULL) : pointer(list)
end

function raw_tensors(tensors, alive)
    rows = map(collect(CheckpointTensor, tensors)) do tensor
        push!(alive, tensor)
        shape = UInt64[reverse(tensor.size)...] # row-major
        count = length(tensor.array)
        LibMeron.meron_checkpoint_tensor(
            sizeof(LibMeron.meron_checkpoint_tensor), length(shape),
            pointer_of(tensor.name, "name", alive), pointer_of(tensor.kind, "kind", alive),
            pointer_of(safetensors_name(eltype(tensor.array)), "dtype", alive), table_of(shape, alive),
            tensor.first - 1, count,
            count == 0 ? C_NULL : address(tensor.array, "the array of $(tensor.name)"))
    end
    return table_of(Vector{LibMeron.meron_checkpoint_tensor}(rows), alive), length(rows)
end

"""
A checkpoint, or a model as Hugging Face publishes it, that was opened (`open_checkpoint`) or loaded
(`load_checkpoint!`). `release` closes its files; loaded states stay.

- `info(checkpoint)`: a named tuple of `step`, `world` (ranks that saved it), `bytes`, `tensors`,
  `bytes_read`, and the numbers of `missing` states and `unexpected` tensors.
- `Meron.path(checkpoint)`: of its directory. `Meron.extra(checkpoint)`: the program's own state, the
  text of a JSON object. `Meron.manifest(checkpoint)`: the text of all of its manifest.
- `Meron.missing_states(checkpoint)`: states that it lacks, which the load did not change.
  `Meron.unexpected_tensors(checkpoint)`: its tensors that no unit has.
- `read!(checkpoint, name, array)` reads elements.
"""
mutable struct Checkpoint <: Owner
    id::UInt64
    Checkpoint() = finalizer(enqueue_owner, new(0))
end

kind_of(::Checkpoint) = checkpoint_kind

function raw(checkpoint::Checkpoint)
    checkpoint.id == 0 && throw_released("checkpoint")
    return LibMeron.meron_checkpoint(checkpoint.id)
end

info(checkpoint::Checkpoint) = as_tuple(LibMeron.meron_checkpoint_info,
    filled(LibMeron.meron_checkpoint_info, LibMeron.meron_checkpoint_get_info, raw(checkpoint)))

function text_of(checkpoint::Checkpoint, kind)
    handle = raw(checkpoint)
    return GC.@preserve checkpoint unsafe_string(
        receive(Ptr{UInt8}, LibMeron.meron_checkpoint_text, handle, kind))
end

"The path of a checkpoint's directory, or of its one file."
path(checkpoint::Checkpoint) = text_of(checkpoint, LibMeron.MERON_CHECKPOINT_TEXT_PATH)

"The program's own state, as it was given to the save: the text of a JSON object."
extra(checkpoint::Checkpoint) = text_of(checkpoint, LibMeron.MERON_CHECKPOINT_TEXT_EXTRA)

"All of a checkpoint's manifest, the text of a JSON object: docs/checkpoint-format.md."
manifest(checkpoint::Checkpoint) = text_of(checkpoint, LibMeron.MERON_CHECKPOINT_TEXT_MANIFEST)

"The states that a checkpoint lacks, and that stayed as they were when it was loaded."
missing_states(checkpoint::Checkpoint) =
    split(text_of(checkpoint, LibMeron.MERON_CHECKPOINT_TEXT_MISSING), '\n'; keepempty = false)

"The tensors of a checkpoint that no unit has."
unexpected_tensors(checkpoint::Checkpoint) =
    split(text_of(checkpoint, LibMeron.MERON_CHECKPOINT_TEXT_UNEXPECTED), '\n'; keepempty = false)

"""
    read!(checkpoint, name, array; kind = "values", first = 1)

Fills an array with elements of a tensor as the files have them, after their checksums were compared:
those from the linear index `first` on. The array is contiguous, of elements of the size of the
tensor's. Local: no other rank takes part. Returns the array.

Blocks on the drive. Throws `MERON_E_NOT_FOUND` (no such tensor, a file is gone), `MERON_E_ARGUMENT`
(outside of the tensor), `MERON_E_CORRUPT`, `MERON_E_IO`.
"""
function Base.read!(checkpoint::Checkpoint, name, array; kind = "values", first = 1)
    require_writable(array, "the array")
    first >= 1 || throw(argument_error("the first element is $first: give 1 or more"))
    handle, count = raw(checkpoint), length(array)
    kind_, name_ = text(kind, "kind"), text(name, "the name of a tensor")
    GC.@preserve checkpoint array @check LibMeron.meron_checkpoint_read(
        address(array, "the array"), count * sizeof(eltype(array)), handle, kind_, name_, first - 1,
        count)
    return array
end

function Base.show(io::IO, checkpoint::Checkpoint)
    checkpoint.id == 0 && return print(io, "Meron.Checkpoint(released)")
    print(io, "Meron.Checkpoint(", repr(path(checkpoint)), ", step ", info(checkpoint).step, ")")
end

"""
    open_checkpoint(folder, name = nothing)

Opens a checkpoint to look at it and to read tensors, without a context.

- `folder`: of checkpoints, or one of them; or a model as Hugging Face publishes it, a directory or one
  file. `name`: `nothing` for the newest complete one.

Blocks on the drive. Throws `MERON_E_NOT_FOUND`, `MERON_E_CORRUPT`, `MERON_E_PARSE`, `MERON_E_VERSION`
(of a newer one), `MERON_E_ARGUMENT`, `MERON_E_AUTH` (a link), `MERON_E_IO`.
"""
function open_checkpoint(folder, name = nothing)
    checkpoint, alive, folder_ = Checkpoint(), Any[], text(folder, "the folder")
    GC.@preserve checkpoint alive @check LibMeron.meron_checkpoint_open(
        out_pointer(checkpoint, LibMeron.meron_checkpoint), folder_,
        pointer_of(name, "the name of a checkpoint", alive))
    return checkpoint
end

"""
    list_checkpoints(folder)

The complete checkpoints in a folder, newest first: the text of a JSON array of objects with "name",
"step", "world" (ranks that saved it), "bytes" (of its files), "created" and "whole" (false if params,
states or units were left out).

Blocks on the drive. Throws `MERON_E_NOT_FOUND` (no such folder), `MERON_E_IO`.
"""
list_checkpoints(folder) = take_string(LibMeron.meron_checkpoint_list, text(folder, "the folder"))

"""
    remove_checkpoint(folder, name)

Removes a checkpoint, complete or not, with all that is in its directory. It loses its name first: if
the process is killed, it is there as before or gone. Any one process may call it.

Blocks on the drive. Throws `MERON_E_ARGUMENT` (it is no checkpoint, and stays), `MERON_E_NOT_FOUND`,
`MERON_E_AUTH` (a link), `MERON_E_STATE` (a save of that name is pending, or a process has it open),
`MERON_E_IO`.
"""
function remove_checkpoint(folder, name)
    folder_, name_ = text(folder, "the folder"), text(name, "the name of a checkpoint")
    @check LibMeron.meron_checkpoint_remove(folder_, name_)
    return
end

"""
    write_checkpoint(folder, name, tensors; step = 0, extra = nothing, optimizers = nothing,
                     overwrite = false)

Writes `CheckpointTensor`s as a checkpoint of one rank, without a context.

- `step`: the program's count. `extra`: its own state, the text of a JSON object. `optimizers`: the
  manifest's list of them, the text of a JSON array (docs/checkpoint-format.md).
- `overwrite`: replaces a checkpoint of that name.

Blocks on the drive. Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (the name is taken),
`MERON_E_STATE`, `MERON_E_NO_SPACE`, `MERON_E_IO`.
"""
function write_checkpoint(
    folder, name, tensors; step = 0, extra = nothing, optimizers = nothing, overwrite = false)
    alive = Any[]
    table, count = raw_tensors(tensors, alive)
    options = Ref(changed(
        initial(LibMeron.meron_checkpoint_write_options,
            LibMeron.meron_checkpoint_write_options_init);
        overwrite = overwrite, step = step, extra = pointer_of(extra, "extra", alive),
        optimizers = pointer_of(optimizers, "optimizers", alive), tensors = table,
        tensor_count = count))
    folder_, name_ = text(folder, "the folder"), text(name, "the name of a checkpoint")
    GC.@preserve alive @check LibMeron.meron_checkpoint_write(folder_, name_, options)
    return
end
