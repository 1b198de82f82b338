# SPDX-License-Identifier: Apache-2.0
# The states of all units, saved, loaded and exported by all ranks together.

list_of_optimizers(optimizer::Optimizer) = (optimizer,)
list_of_optimizers(optimizers) = optimizers
raw_optimizers(optimizers) =
    LibMeron.meron_optimizer[raw(each) for each in list_of_optimizers(optimizers)]

# `nothing`: all. The library would take an empty list for all.
function raw_units(units)
    units === nothing && return LibMeron.meron_unit[]
    some = units isa Unit ? (units,) : collect(units)
    isempty(some) && throw(argument_error("no units are given: give some, or nothing for all"))
    return LibMeron.meron_unit[raw(each) for each in some]
end

"""
    save_checkpoint(ctx, folder, name, optimizers = (); options...)

Saves as `save_checkpoint_begin` does, and waits for the end.
"""
save_checkpoint(context::Context, folder, name, optimizers = (); options...) =
    finish(save_checkpoint_begin(context, folder, name, optimizers; options...))

"""
    save_checkpoint_begin(ctx, folder, name, optimizers = (); step = 0, keep = 0, extra = nothing,
                          tensors = (), mapping = nothing, values_only = false,
                          skip_frozen = false, overwrite = false, per_node = false,
                          units = nothing)

Begins to save the states of all units, as they are now, as `name` in `folder`; a `Future`. Collective
over the world.

    saving = save_checkpoint_begin(ctx, "runs/a", "step-100", optimizer; step = 100, keep = 2)
    ... # forward and backward continue wait(saving)

The checkpoint is complete or does not exist, and any number of ranks can load it. A thread of the
library copies and writes; a step or an update waits until its units are copied. The future throws a
failure of any rank on all ranks, and so does the next save if no call has waited for the future.
Existing checkpoints stay, and training can continue. Writable views of states end, and `state_view` gives
new ones as soon as the save has copied the states.

- `folder`: which all ranks see; made if it is not there. `name`: of this one, for example "step-100".
- `optimizers`: one or several, whose states are saved too.
- `step`: the program's count; the newest checkpoint has the highest.
- `keep`: so many complete checkpoints stay in the folder; 0: all.
- `extra`: the program's own state, the text of a JSON object; rank 0's is kept.
- `tensors`: `CheckpointTensor`s; those of all ranks together have each element of a tensor once. Their
  arrays must not change before `wait_copied` returns.
- `mapping`: where params are to have other names in the files, also for their states: the text of a JSON
  object, `"PARAM": "NAME"`; `""` leaves the param out.
- `values_only`: leaves masters and states of optimizers out; `skip_frozen`: frozen params.
- `overwrite`: replaces a checkpoint of that name.
- `per_node`: each node has a folder of its own, such as one on a local disk; ranks of a node give the
  same.
- `units`: the units that are saved, the same on all ranks; `nothing`: all. They have all units of the
  optimizers and all params of the mapping.

`Meron.cancel_save(ctx)` cancels it: the future then throws `MERON_E_CANCELLED`. A save within an
accumulation has what the last update left, and gradients stay as they are.

Throws `MERON_E_ARGUMENT` (a name that will not do, `extra` is no JSON object), `MERON_E_DUPLICATE` (the
name is taken), `MERON_E_STATE` (a step is under way, a unit is in use),
`MERON_E_UNSUPPORTED` (a unit of some ranks only), `MERON_E_NO_SPACE`, `MERON_E_IO`. Blocks until the
save before has ended.
"""
function save_checkpoint_begin(
    context::Context, folder, name, optimizers = (); step = 0, keep = 0, extra = nothing,
    tensors = (), mapping = nothing, values_only = false, skip_frozen = false, overwrite = false,
    per_node = false, units = nothing)
    alive = Any[]
    handle, handles = raw(context), raw_optimizers(optimizers)
    chosen = raw_units(units)
    table, count = raw_tensors(tensors, alive)
    options = Ref(changed(
        initial(LibMeron.meron_checkpoint_save_options, LibMeron.meron_checkpoint_save_options_init);
        step = step, keep = keep, values_only = values_only, skip_frozen = skip_frozen,
        overwrite = overwrite, per_node = per_node, extra = pointer_of(extra, "extra", alive),
        mapping = pointer_of(mapping, "mapping", alive),
        optimizers = table_of(handles, alive), optimizer_count = length(handles),
        tensors = table, tensor_count = count, units = table_of(chosen, alive),
        unit_count = length(chosen)))
    folder_, name_ = text(folder, "the folder"), text(name, "the name of a checkpoint")
    return with_states(context) do
        begin_operation(context, alive) do out
            @check LibMeron.meron_checkpoint_save_begin(out, handle, folder_, name_, options)
        end
    end
end

"""
    wait_copied(ctx; timeout = nothing)

Waits until the save under way has copied what it saves: `true`, also if no save is under way, or if it
has failed; or until `timeout` seconds have passed: `false`. Blocks on the drive.
"""
function wait_copied(context::Context; timeout = nothing)
    status = @check LibMeron.meron_checkpoint_wait_copied(raw(context), nanoseconds(timeout))
    return status != LibMeron.MERON_IN_PROGRESS
end

"""
    save_progress(ctx)

How far the save under way is, or how far the last one came: a named tuple of `saving`, and of the bytes
that this rank writes in `total` (0: not known yet, or no save), has `copied` out of the units, and has
`written`. Never blocks.
"""
function save_progress(context::Context)
    known = as_tuple(LibMeron.meron_checkpoint_progress, filled(
        LibMeron.meron_checkpoint_progress, LibMeron.meron_checkpoint_get_progress, raw(context)))
    return (saving = known.saving == 1, total = known.total, copied = known.copied,
        written = known.written)
end

"""
    load_checkpoint!(ctx, folder, name = nothing, optimizers = (); lenient = false,
                     values_only = false, rank0_only = false, per_node = false, mapping = nothing,
                     claimed = (), units = nothing)

Loads a checkpoint into all units, whatever world and plan saved it: values, masters, states, counts of
steps and the numbers of groups of the optimizers; a `Checkpoint`. Collective over the world.

Before anything changes, all ranks have compared names, shapes and optimizers, and opened the files; an
error after that breaks the group. Views of states end.

- `folder`: of checkpoints, or one of them; with `values_only` also a model as Hugging Face publishes
  it. `name`: `nothing` for the newest complete one.
- `optimizers`: as they were given to the save.
- `lenient`: leaves alone what the other side lacks.
- `values_only`: loads values; optimizers keep their states.
- `rank0_only`: only rank 0 sees the files, and sends the others their parts.
- `per_node`: each node has a folder of its own. A rank of each reads the node's files for all; there may
  be other nodes than at the save.
- `mapping`: where params have other names in the files: the text of a JSON object, `"PARAM": "TENSOR"`,
  or `"PARAM": ["TENSOR", ...]`, one after the other along C's first dimension.
- `claimed`: names of values that the program reads itself.
- `units`: the units that are loaded, the same on all ranks; `nothing`: all. They have all units of the
  optimizers. Others stay as they are.

Blocks on the drive and on all ranks. Throws `MERON_E_NOT_FOUND`, `MERON_E_CORRUPT` (names tensor, file
and offset), `MERON_E_VERSION` (of a newer one), `MERON_E_ARGUMENT` (what does not fit is listed),
`MERON_E_STATE` as `save_checkpoint_begin` and for a gradient that is not empty, `MERON_E_IO`,
`MERON_E_NO_MEMORY`, `MERON_E_AUTH` (a link).
"""
function load_checkpoint!(
    context::Context, folder, name = nothing, optimizers = (); lenient = false, values_only = false,
    rank0_only = false, per_node = false, mapping = nothing, claimed = (), units = nothing)
    checkpoint, alive = Checkpoint(), Any[]
    handle, handles = raw(context), raw_optimizers(optimizers)
    chosen = raw_units(units)
    lines = isempty(claimed) ? nothing : join(claimed, '\n')
    options = Ref(changed(
        initial(LibMeron.meron_checkpoint_load_options, LibMeron.meron_checkpoint_load_options_init);
        lenient = lenient, values_only = values_only, rank0_only = rank0_only, per_node = per_node,
        optimizers = table_of(handles, alive), optimizer_count = length(handles),
        mapping = pointer_of(mapping, "mapping", alive),
        claimed = pointer_of(lines, "claimed", alive), units = table_of(chosen, alive),
        unit_count = length(chosen)))
    folder_ = text(folder, "the folder")
    name_ = pointer_of(name, "the name of a checkpoint", alive)
    with_states(context, end_views) do
        GC.@preserve checkpoint alive @check LibMeron.meron_checkpoint_load(
            out_pointer(checkpoint, LibMeron.meron_checkpoint), handle, folder_, name_, options)
    end
    return checkpoint
end

"""
    export_model(ctx, folder; dtype = nothing, max_file_bytes = 0, mapping = nothing, tensors = (),
                 overwrite = false)

Writes the values of all units as Hugging Face publishes models: `model.safetensors`, or several files
and an index. Collective over the world; each rank writes its own part of each tensor in place, so
nothing is gathered. Other files of the folder are left alone. Writable views of states end.

- `folder`: which all ranks see; made if it is not there.
- `dtype`: `Float32`, `BFloat16` or `Float16` of the values in the files; `nothing`: each param's own.
- `max_file_bytes`: a file is closed before it would exceed it; 0: 5 GB.
- `mapping`: where params have other names in the files, the text of a JSON object.
- `tensors`: `CheckpointTensor`s of kind "values" of rank 0, whole.
- `overwrite`: replaces a model that is there.

Blocks on the drive and on all ranks. Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (a model is there),
`MERON_E_STATE` as `save_checkpoint_begin`, `MERON_E_NO_SPACE`, `MERON_E_IO`.
"""
function export_model(
    context::Context, folder; dtype = nothing, max_file_bytes = 0, mapping = nothing, tensors = (),
    overwrite = false)
    alive, handle = Any[], raw(context)
    table, count = raw_tensors(tensors, alive)
    options = Ref(changed(
        initial(LibMeron.meron_checkpoint_export_options,
            LibMeron.meron_checkpoint_export_options_init);
        dtype = dtype === nothing ? LibMeron.MERON_F32 : code_of(dtype),
        keep_dtype = dtype === nothing, overwrite = overwrite, max_file_bytes = max_file_bytes,
        mapping = pointer_of(mapping, "mapping", alive), tensors = table, tensor_count = count))
    folder_ = text(folder, "the folder")
    with_states(context) do
        GC.@preserve alive @check LibMeron.meron_checkpoint_export(handle, folder_, options)
    end
    return
end
