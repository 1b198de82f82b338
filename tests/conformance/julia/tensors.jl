# SPDX-License-Identifier: Apache-2.0
# The operations on params, units, updates, gathers, gradients and optimizers.

# ---- Params, units, updates ------------------------------------------------------------------------

operation("param") do session, statement
    keep!(session, statement.name, Param(
        context(session), get(statement, "name", statement.name), size_of(wanted(statement, "shape"));
        dtype = DTYPES[wanted(statement, "dtype")],
        frozen = get(statement, "frozen", "0") == "1",
        group = has(statement, "group") ? group_of(session, wanted(statement, "group")) : nothing))
end

operation("param_is") do session, statement
    known = Meron.info(find(session, Param, statement.name))
    found = Dict(
        "shape" => isempty(known.shape) ? "scalar" : join(known.shape, 'x'),
        "dtype" => DTYPE_NAMES[known.dtype],
        "count" => string(known.count),
        "frozen" => string(Int(known.frozen)),
        "name" => known.name,
    )
    foreach(((key, value),) -> check_equal(key, value, get(statement, key, value)), found)
end

operation("shard_range") do session, statement
    param = find(session, Param, statement.name)
    check(last(shard_range(param)) <= length(param), "owns more than there is")
    total = allreduce!(Float32[length(shard_range(param))], context(session).world)
    copies = get(statement, "all", "0") == "1" ? session.setup.world : 1
    check_equal("what all ranks own", Int(total[1]), copies * length(param))
end

operation("unit") do session, statement
    params = Param[find(session, Param, name) for name in parts(statement, "params")]
    keep!(session, statement.name,
        Unit(context(session), get(statement, "name", statement.name), params))
end

operation("unit_is") do session, statement
    unit = find(session, Unit, statement.name)
    check_equal("the name", unit.name, get(statement, "name", unit.name))
    names = join((param.name for param in unit.params), ',')
    check_equal("the params", names, get(statement, "params", names))
    found = join(("$(DTYPE_NAMES[eltype(flat)]):$(length(flat))" for flat in flats(unit)), ',')
    check_equal("the flats", found, get(statement, "flats", found))
    known = Meron.info(unit)
    for key in (:state, :version, :leases, :reduced, :param_codec, :gradient_codec)
        value = known[key]
        found = string(value isa Bool ? Int(value) : value)
        check_equal(key, found, get(statement, string(key), found))
    end
    check_error(statement, "param_error", known.param_error, known.param_worst_block)
    check_error(statement, "gradient_error", known.gradient_error, known.gradient_worst_block)
end

# Errors are 0, or above 0 and at most what is given.
function check_error(statement, name, errors...)
    has(statement, name) || return
    most = parse(Float64, wanted(statement, name))
    check(all(most == 0 ? error == 0 : 0 < error <= most for error in errors),
        "$name is $errors, not up to $most")
end

operation("update") do session, statement
    keep!(session, statement.name, Meron.update_begin(units_of(session, statement)))
end

operation("write") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    size_ = has(statement, "count") ? (whole(statement, "count", 0),) : size(param)
    type = has(statement, "dtype") ? DTYPES[wanted(statement, "dtype")] : eltype(param)
    values = tensor_of(session.place, wanted(statement, "with"), type, size_)
    write!(find(session, Update, statement.name), param, values)
end

operation("write_view") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    view = shard_view(find(session, Update, statement.name), param)
    offset = first(shard_range(param)) - 1
    if has(statement, "before")
        expected = values_at(session.place, wanted(statement, "before"), length(view), offset)
        check(all(view .== expected), "the view shows other values")
    end
    view .= values_at(session.place, wanted(statement, "with"), length(view), offset)
end

operation("publish") do session, statement
    Meron.publish(find(session, Update, statement.name))
    held(session, statement.name).released = true
end

# ---- Gathers ---------------------------------------------------------------------------------------

function begin_gather(session, statement)
    units = units_of(session, statement)
    mode = Symbol(get(statement, "mode", "view"))
    wanted_of = get(statement, "by", "param") == "flat" ? flats : unit -> unit.params
    into = mode == :into ? [
        wanted => fill(eltype(wanted)(-1), size(wanted)) for unit in units for wanted in wanted_of(unit)
    ] : nothing
    return gather_begin(length(units) == 1 ? units[1] : units; mode = mode, into = into,
        tier = Symbol(get(statement, "tier", "device")))
end

operation("gather") do session, statement
    full = begin_gather(session, statement)
    try
        wait(full)
    catch
        release(full)
        rethrow()
    end
    keep!(session, statement.name, full)
end

operation("gather_begin") do session, statement
    keep!(session, statement.name, begin_gather(session, statement))
end

operation("wait_stream") do session, statement
    check(wait_stream(find(session, Gather, statement.name)), "it is not full")
end

operation("release_on_stream") do session, statement
    release_on_stream!(find(session, Gather, statement.name))
    held(session, statement.name).released = true
end

function gathered(session, statement)
    full = find(session, Gather, statement.name)
    param = find(session, Param, wanted(statement, "param"))
    array = full[param]
    check_equal("the dtype", eltype(array), eltype(param))
    check_equal("the size", size(array), size(param))
    check_equal("writable", Meron.writable(array), full.into !== nothing)
    return array
end

operation("full") do session, statement
    array = gathered(session, statement)
    check_data(session.place, statement, array)
    get(statement, "same", "0") == "1" && check_same(session, array)
end

# Every rank of the world has these bytes: the sum of each half of the CRC is a multiple of it.
function check_same(session, array)
    crc = crc_of(array)
    own = Float32[crc>>16, crc&0xffff]
    sums = allreduce!(copy(own), context(session).world)
    check(sums == session.setup.world .* own, "the ranks differ")
end

operation("overwrite") do session, statement
    array = gathered(session, statement)
    vec(array) .= values_at(session.place, wanted(statement, "with"), length(array))
end

# The fields of a DLTensor behind the head of a DLManagedTensorVersioned.
struct VersionedTensor
    head::Meron.ManagedTensorHead
    flags::UInt64
    data::Ptr{Cvoid}
    device::NTuple{2,Int32}
    ndim::Int32
    code::UInt8
    bits::UInt8
    lanes::UInt16
    shape::Ptr{Int64}
    strides::Ptr{Int64}
    byte_offset::UInt64
end
const DLPACK_CODES = Dict((2, 32) => Float32, (2, 16) => Float16, (4, 16) => BFloat16)

operation("dlpack") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    tensor = Meron.dlpack(find(session, Gather, wanted(statement, "gather")), param)
    known = unsafe_load(Ptr{VersionedTensor}(pointer(tensor)))
    check_equal("the dtype", DLPACK_CODES[(Int(known.code), Int(known.bits))], eltype(param))
    shape = ntuple(d -> unsafe_load(known.shape, d), known.ndim)
    check_equal("the shape", shape, reverse(size(param)))
    array = unsafe_wrap(Array, Ptr{eltype(param)}(known.data + known.byte_offset), size(param))
    check_data(session.place, statement, array)
    keep!(session, statement.name, tensor)
end

# ---- Gradients and optimizers ----------------------------------------------------------------------

operation("gradient") do session, statement
    param = find(session, Param, statement.name)
    sets = has(statement, "set")
    view = gradient_view(unit_of(session, param), param; overwrite = sets)
    values = values_at(session.place, wanted(statement, sets ? "set" : "add"), length(view))
    if sets
        view .= reshape(values, size(view))
    else
        view .+= reshape(values, size(view))
    end
end

function sources_of(session, statement)
    sources = Pair{Param,Any}[]
    for (key, value) in statement.arguments
        key == "source" || continue
        name, text = split(value, '@'; limit = 2)
        param = find(session, Param, String(name))
        size_ = has(statement, "count") ? (whole(statement, "count", 0),) : size(param)
        type = has(statement, "dtype") ? DTYPES[wanted(statement, "dtype")] : eltype(param)
        push!(sources, param => tensor_of(session.place, text, type, size_))
    end
    if has(statement, "from")
        full = find(session, Gather, wanted(statement, "from"))
        for param in find(session, Unit, statement.name).params
            push!(sources, param => full[param])
        end
    end
    return isempty(sources) ? nothing : sources
end

operation("reduce") do session, statement
    future = reduce_begin!(
        find(session, Unit, statement.name), sources_of(session, statement);
        op = Symbol(get(statement, "op", "mean")),
        boundary = get(statement, "boundary", "1") == "1",
        divisor = number(statement, "divisor", 1.0))
    finish_or_keep(session, statement, future)
end

operation("reduce_finish") do session, statement
    future = reduce_finish_begin!(
        find(session, Unit, statement.name);
        op = Symbol(get(statement, "op", "mean")),
        divisor = number(statement, "divisor", 1.0))
    finish_or_keep(session, statement, future)
end

operation("reduce_wait") do session, statement
    units = units_of(session, statement)
    check_ended(statement, wait_reductions(units; timeout = timeout_of(statement)))
end

operation("reduced") do session, statement
    param = find(session, Param, statement.name)
    array = reduced(unit_of(session, param), param)
    check_equal("the dtype", eltype(array), Float32)
    check_data(session.place, statement, array, first(shard_range(param)) - 1)
end

operation("clip") do session, statement
    norm = clip_gradients!(units_of(session, statement), number(statement, "max_norm", 0.0))
    check_equal("the norm", norm, number(statement, "is", norm))
end

operation("reduced_dlpack") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    tensor = Meron.dlpack(unit_of(session, param), param)
    known = unsafe_load(Ptr{VersionedTensor}(pointer(tensor)))
    check_equal("the dtype", DLPACK_CODES[(Int(known.code), Int(known.bits))], Float32)
    check_equal("the dimensions", Int(known.ndim), 1)
    check_equal("the size", unsafe_load(known.shape, 1), length(shard_range(param)))
    array = unsafe_wrap(
        Array, Ptr{Float32}(known.data + known.byte_offset), (length(shard_range(param)),))
    check_data(session.place, statement, array, first(shard_range(param)) - 1)
    keep!(session, statement.name, tensor)
end

operation("discard") do session, statement
    discard!(find(session, Unit, statement.name))
end

operation("destroy") do session, statement
    destroy!(find(session, Unit, statement.name))
end

const NUMBERS = ("lr" => :learning_rate, "beta1" => :beta1, "beta2" => :beta2,
    "epsilon" => :epsilon, "weight_decay" => :weight_decay, "lr_decay" => :lr_decay)
const OPTIONS = (NUMBERS..., "max_norm" => :max_norm, "dampening" => :dampening,
    "nesterov" => :nesterov)
const RULES = Dict("adamw" => adamw, "adam" => adam, "adagrad" => adagrad, "lion" => lion, "sgd" => sgd)

numbers(statement, names) =
    [own => number(statement, key, 0.0) for (key, own) in names if has(statement, key)]

operation("optimizer") do session, statement
    kind = get(statement, "kind", "adamw")
    options = numbers(statement, OPTIONS)
    units = units_of(session, statement)
    if !haskey(RULES, kind) # Julia has no word for it
        chosen = Ref(Meron.changed(
            Meron.initial(LibMeron.meron_optimizer_options, LibMeron.meron_optimizer_rule_init,
                parse(Int, kind));
            options...))
        handles = map(Meron.raw, units)
        made = Meron.receive(LibMeron.meron_optimizer, LibMeron.meron_optimizer_create,
            handles, length(handles), chosen)
        Meron.@check LibMeron.meron_optimizer_release(made)
        return
    end
    if kind == "sgd"
        options = [(own === :beta1 ? :momentum : own) => value for (own, value) in options]
    end
    keep!(session, statement.name, RULES[kind](units; options...))
end

operation("step") do session, statement
    finish_or_keep(session, statement, step_begin!(find(session, Optimizer, statement.name)))
end

operation("optimizer_is") do session, statement
    known = Meron.info(find(session, Optimizer, statement.name))
    for (key, found) in (
        "steps" => known.steps, "norm" => known.norm, "lr" => known.learning_rate,
        "groups" => known.groups, "states" => known.states, "nvme_bytes" => known.nvme_bytes)
        has(statement, key) && check_equal(key, Float64(found), number(statement, key, 0.0))
    end
end

operation("learning_rate") do session, statement
    set_learning_rate!(find(session, Optimizer, statement.name), number(statement, "lr", 0.0))
end

operation("set_steps") do session, statement
    set_steps!(find(session, Optimizer, statement.name), whole(statement, "steps", 0))
end

operation("skip") do session, statement
    skip!(find(session, Optimizer, statement.name),
        Param[find(session, Param, name) for name in parts(statement, "params")])
end

operation("param_steps") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    found = param_steps(find(session, Optimizer, statement.name), param)
    check_equal("steps", found, whole(statement, "is", 0))
end

operation("set_param_steps") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    set_param_steps!(
        find(session, Optimizer, statement.name), param, whole(statement, "steps", 0))
end

operation("optimizer_group") do session, statement
    params = Param[find(session, Param, name) for name in parts(statement, "params")]
    made = add_optimizer_group!(
        find(session, Optimizer, statement.name), params; numbers(statement, NUMBERS)...)
    check_equal("the group's number", made, whole(statement, "number", made))
end

operation("set_optimizer_group") do session, statement
    set_optimizer_group!(find(session, Optimizer, statement.name), whole(statement, "number", 0);
        numbers(statement, NUMBERS)...)
end

operation("optimizer_group_is") do session, statement
    group = optimizer_group(find(session, Optimizer, statement.name), whole(statement, "number", 0))
    for (key, own) in NUMBERS
        check_equal(key, group[own], number(statement, key, group[own]))
    end
end

operation("state") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    view = state_view(
        find(session, Optimizer, statement.name), param, Symbol(wanted(statement, "state")))
    check_equal("the dtype", eltype(view), Float32)
    offset = first(shard_range(param)) - 1
    if has(statement, "set")
        view .= values_at(session.place, wanted(statement, "set"), length(view), offset)
    else
        check_data(session.place, statement, view, offset)
    end
end

operation("state_read") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    optimizer = find(session, Optimizer, statement.name)
    name = Symbol(wanted(statement, "state"))
    if has(statement, "count") # the natural layer takes as many as there are
        out = zeros(Float32, whole(statement, "count", 0))
        Meron.@check LibMeron.meron_optimizer_read_state(
            out, length(out), Meron.raw(optimizer), Meron.raw(param), Meron.state_code(name))
        return
    end
    values = read_state(optimizer, param, name)
    check_equal("the dtype", eltype(values), Float32)
    check_data(session.place, statement, values, first(shard_range(param)) - 1)
end

operation("offload") do session, statement
    offload(
        find(session, Optimizer, statement.name),
        has(statement, "folder") ? wanted(statement, "folder") : nothing)
end

operation("reload") do session, statement
    reload(find(session, Optimizer, statement.name))
end

operation("state_write") do session, statement
    param = find(session, Param, wanted(statement, "param"))
    count = whole(statement, "count", length(shard_range(param)))
    values = values_at(session.place, wanted(statement, "with"), count, first(shard_range(param)) - 1)
    write_state!(
        find(session, Optimizer, statement.name), param, Symbol(wanted(statement, "state")), values)
end
