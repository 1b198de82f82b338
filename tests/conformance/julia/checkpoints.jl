# SPDX-License-Identifier: Apache-2.0
# The operations on checkpoints. Folders of a case go with rank 0's session.

function folder_of(session, statement)
    setup, name = session.setup, wanted(statement, "folder")
    path = joinpath(tempdir(), "meron-$(setup.job)-$(session.case)-$(session.plan)-$name")
    if setup.rank == 0 && !(path in session.files)
        rm(path; force = true, recursive = true)
        push!(session.files, path)
    end
    return path
end

flags(statement, names...) = [name => get(statement, String(name), "0") == "1" for name in names]
optional(statement, key) = has(statement, key) ? wanted(statement, key) : nothing
optimizers_of(session, statement) =
    [find(session, Optimizer, name) for name in parts(statement, "optimizers")]
units_of(session, statement) = has(statement, "units") ?
    [find(session, Unit, name) for name in parts(statement, "units")] : nothing
checkpoint_of(session, statement) = find(session, Checkpoint, statement.name)

# The tensor that `tensor=` gives: this rank's part of it, or nothing.
function given_of(session, statement)
    rank, world = session.setup.rank, session.setup.world
    split_ = get(statement, "split", "0") == "1"
    has(statement, "tensor") && (split_ || rank == 0) || return ()
    count = whole(statement, "count", 0)
    from, to = split_ ? (count * rank ÷ world, count * (rank + 1) ÷ world) : (0, count)
    type = DTYPES[wanted(statement, "dtype")]
    array = tensor_of(session.place, wanted(statement, "with"), type, (count,))[from+1:to]
    kind = has(statement, "kind") ? (kind = wanted(statement, "kind"),) : NamedTuple()
    return (CheckpointTensor(
        wanted(statement, "tensor"), array; size = (count,), first = from + 1, kind...),)
end

operation("save") do session, statement
    future = save_checkpoint_begin(
        context(session), folder_of(session, statement), statement.name,
        optimizers_of(session, statement); step = whole(statement, "step", 0),
        keep = whole(statement, "keep", 0), extra = optional(statement, "extra"),
        tensors = given_of(session, statement), mapping = optional(statement, "mapping"),
        units = units_of(session, statement),
        flags(statement, :values_only, :skip_frozen, :overwrite, :per_node)...)
    finish_or_keep(session, statement, future)
end

operation("wait_copied") do session, statement
    check_ended(statement, wait_copied(context(session); timeout = timeout_of(statement)))
end

operation("save_progress") do session, statement
    progress = save_progress(context(session))
    has(statement, "saving") &&
        check_equal("saving", progress.saving, wanted(statement, "saving") == "1")
    check(max(progress.copied, progress.written) <= progress.total, "more is done than there is")
    if has(statement, "done")
        check(progress.total > 0, "nothing was to be written")
        check_equal("copied", progress.copied, progress.total)
        check_equal("written", progress.written, progress.total)
    end
end

operation("load") do session, statement
    loaded = load_checkpoint!(
        context(session), folder_of(session, statement), optional(statement, "checkpoint"),
        optimizers_of(session, statement); mapping = optional(statement, "mapping"),
        claimed = parts(statement, "claimed"),
        units = units_of(session, statement),
        flags(statement, :lenient, :values_only, :rank0_only, :per_node)...)
    keep!(session, statement.name, loaded)
end

operation("checkpoint_open") do session, statement
    opened = open_checkpoint(folder_of(session, statement), optional(statement, "checkpoint"))
    keep!(session, statement.name, opened)
end

operation("checkpoint_is") do session, statement
    known = Meron.info(checkpoint_of(session, statement))
    for key in (:step, :world, :missing, :unexpected)
        text = String(key)
        has(statement, text) && check_equal(text, known[key], whole(statement, text, 0))
    end
end

const TEXTS = Dict(
    "path" => Meron.path, "extra" => Meron.extra, "manifest" => Meron.manifest,
    "missing" => checkpoint -> join(Meron.missing_states(checkpoint), '\n'),
    "unexpected" => checkpoint -> join(Meron.unexpected_tensors(checkpoint), '\n'))

operation("checkpoint_text") do session, statement
    check_has(TEXTS[wanted(statement, "text")](checkpoint_of(session, statement)), statement)
end

operation("checkpoint_read") do session, statement
    from = whole(statement, "begin", 0)
    array = zeros(DTYPES[wanted(statement, "dtype")], whole(statement, "count", 0))
    read!(
        checkpoint_of(session, statement), wanted(statement, "tensor"), array;
        kind = get(statement, "kind", "values"), first = from + 1)
    check_data(session.place, statement, array, from)
end

operation("checkpoint_list") do session, statement
    list = list_checkpoints(folder_of(session, statement))
    check_has(list, statement)
    count = length(collect(eachmatch(r"\"step\"", list)))
    has(statement, "count") &&
        check_equal("the number of checkpoints", count, whole(statement, "count", 0))
end

operation("checkpoint_remove") do session, statement
    remove_checkpoint(folder_of(session, statement), statement.name)
end

operation("checkpoint_write") do session, statement
    write_checkpoint(
        folder_of(session, statement), statement.name, given_of(session, statement);
        step = whole(statement, "step", 0), extra = optional(statement, "extra"),
        flags(statement, :overwrite)...)
end

operation("export_model") do session, statement
    dtype = optional(statement, "to")
    export_model(
        context(session), folder_of(session, statement);
        dtype = dtype === nothing ? nothing : DTYPES[dtype], mapping = optional(statement, "mapping"),
        max_file_bytes = whole(statement, "max", 0), tensors = given_of(session, statement),
        flags(statement, :overwrite)...)
end
