# SPDX-License-Identifier: Apache-2.0

"""
States and update rule for some units; `adamw`, `adam`, `adagrad`, `lion` and `sgd` make one. Params are
in groups: at first all in group 0, whose numbers those functions take.
"""
mutable struct Optimizer <: Owner
    id::UInt64
    context::Context
    units::Vector{Unit} # whose reduced gradients a step uses
    written::Loan # of its states' writable views, until the next step
    shown::Loan # of those that are read-only
    function Optimizer(context, units)
        optimizer = new(0, context, units)
        optimizer.written, optimizer.shown = Loan(context, optimizer), Loan(context, optimizer)
        lock(context.states) do
            filter!(each -> each.value !== nothing, context.optimizers)
            push!(context.optimizers, WeakRef(optimizer))
        end
        return finalizer(enqueue_owner, optimizer)
    end
end

kind_of(::Optimizer) = optimizer_kind

function raw(optimizer::Optimizer)
    optimizer.context.isopen || throw_closed()
    optimizer.id == 0 && throw_released("optimizer")
    return LibMeron.meron_optimizer(optimizer.id)
end

# `known`: the names of the rule's options.
function make_optimizer(units, rule, kind, known, options)
    list = units isa Unit ? (units,) : units
    require_known(rule, known, options)
    numbers = Dict{Symbol,Any}(
        (name === :momentum ? :beta1 : name) => value for (name, value) in options)
    chosen = Ref(changed(
        initial(LibMeron.meron_optimizer_options, LibMeron.meron_optimizer_rule_init, kind),
        numbers))
    optimizer = Optimizer(context_of(list), collect(Unit, list))
    handles = handles_of(list)
    GC.@preserve optimizer @check LibMeron.meron_optimizer_create(
        out_pointer(optimizer, LibMeron.meron_optimizer), handles, length(handles), chosen)
    return optimizer
end

function require_known(what, known, options)
    for name in keys(options)
        name in known || throw(argument_error("$what has no option $name, but $(join(known, ", "))"))
    end
    return
end

"""
    add_optimizer_group!(
        optimizer, params; learning_rate, beta1, beta2, epsilon, weight_decay, lr_decay)

Gives some params their own hyperparameters, for example no weight decay; those that are not given are
group 0's current ones. Returns the group's number, 1, 2, ... All ranks must do the same before the
next step.

- `params`: that this optimizer trains, none in a group that was added.

Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (a param is in a group already), `MERON_E_STATE` (a step
is under way). Blocks while another thread begins an operation.
"""
function add_optimizer_group!(optimizer::Optimizer, params; options...)
    list = params isa Param ? (params,) : params
    group = Ref(group_of(optimizer, 0, options))
    handles = LibMeron.meron_param[raw(param) for param in list]
    number = GC.@preserve list receive(
        UInt32, LibMeron.meron_optimizer_add_group,
        raw(optimizer), handles, length(handles), group)
    return Int(number)
end

"""
    optimizer_group(optimizer, number)

The numbers of a group, 0 or one that `add_optimizer_group!` gave: a named tuple of `learning_rate`, `beta1`
(of SGD the momentum), `beta2`, `epsilon`, `weight_decay` and `lr_decay` (of Adagrad). Throws
`MERON_E_ARGUMENT` for another number. Never blocks.
"""
optimizer_group(optimizer::Optimizer, number) =
    as_tuple(LibMeron.meron_optimizer_group, raw_group(optimizer, number))

"""
    set_optimizer_group!(
        optimizer, number; learning_rate, beta1, beta2, epsilon, weight_decay, lr_decay)

Sets numbers of a group for the next steps, the same on all ranks; those that are not given stay. Throws
`MERON_E_ARGUMENT`. Never blocks.
"""
function set_optimizer_group!(optimizer::Optimizer, number; options...)
    group = Ref(group_of(optimizer, number, options))
    @check LibMeron.meron_optimizer_set_group(raw(optimizer), number, group)
    return
end

raw_group(optimizer, number) = filled(
    LibMeron.meron_optimizer_group, LibMeron.meron_optimizer_get_group,
    raw(optimizer), convert_field(UInt32, number, "a group's number"))

# The numbers of a group with some of them changed.
function group_of(optimizer, number, options)
    known = (:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :lr_decay)
    require_known("an optimizer group", known, options)
    return changed(raw_group(optimizer, number); options...)
end

"""
    skip!(optimizer, params)

Makes the next steps skip some params: their values, states and counts of steps stay as they are, like
those of a torch.optim param whose gradient is None. Replaces the params of the call before. All ranks
give the same params before the next step. Gradients of skipped params still count in the norm.

- `params`: that this optimizer trains; one, or any number of them. With none, no param is skipped.

Throws `MERON_E_ARGUMENT`, `MERON_E_STATE` (a step is under way). Never blocks.
"""
function skip!(optimizer::Optimizer, params)
    list = params isa Param ? (params,) : params
    handles = LibMeron.meron_param[raw(param) for param in list]
    GC.@preserve list @check LibMeron.meron_optimizer_set_skipped(
        raw(optimizer), handles, length(handles))
    return
end

"""
    param_steps(optimizer, param)

The number of steps that a param has taken: those of the optimizer, without the steps that skipped it
(`skip!`). Throws `MERON_E_ARGUMENT` for a param that this optimizer does not train. Never blocks.
"""
param_steps(optimizer::Optimizer, param::Param) = Int(
    receive(UInt64, LibMeron.meron_optimizer_param_steps, raw(optimizer), raw(param)))

"""
    set_param_steps!(optimizer, param, steps)

Sets the number of steps that one param has taken, the same on all ranks: for states that begin anew (0,
beside `write_state!` of zeros) or come from elsewhere. `set_steps!` resets it.

- `steps`: at most 2^53.

Throws `MERON_E_ARGUMENT` (also for a param that this optimizer does not train), `MERON_E_STATE` (a step
is under way). Never blocks.
"""
function set_param_steps!(optimizer::Optimizer, param::Param, steps)
    @check LibMeron.meron_optimizer_set_param_steps(
        raw(optimizer), raw(param), convert_field(UInt64, steps, "steps"))
    return
end

"""
    step!(optimizer)

Global gradient norm, clipping, update of this rank's parts, publication of the next version; waits
until this rank has done it. `step_begin!` only begins. Needs the reduced gradient of every unit, and
no lease on any of them on this rank. Collective.

Throws `MERON_E_STATE` (names the unit that is leased or not reduced), `MERON_E_NONFINITE` on all ranks
when the norm is not finite (nothing was changed, the gradients are discarded), and what `wait` throws.
"""
step!(optimizer::Optimizer) = finish(step_begin!(optimizer))

"""
    step_begin!(optimizer)

Begins a step; see `step!`.
"""
function step_begin!(optimizer::Optimizer)
    handle = raw(optimizer)
    end_views(optimizer)
    foreach(end_sums, optimizer.units)
    return begin_operation(optimizer.context) do out
        @check LibMeron.meron_optimizer_step_begin(out, handle)
    end
end

"""
    info(optimizer)

Information about an optimizer: `steps` taken, `norm` (global 2-norm of the last step's gradients,
before clipping), `learning_rate` of group 0, `groups` of params (at least 1), `states` of the rule
per element besides the master, `nvme_bytes` of this rank's states on tier nvme, `offloaded_bytes` of
these that `offload` has moved to a drive. Never blocks.
"""
info(optimizer::Optimizer) = as_tuple(
    LibMeron.meron_optimizer_info,
    filled(
        LibMeron.meron_optimizer_info, LibMeron.meron_optimizer_get_info, raw(optimizer)),
)

"""
    state_view(optimizer, param, state)

The elements `shard_range(param)` of a state: `:master` (f32 values; the param itself where that is f32),
`:exp_avg` (the average of the gradients; Lion's, and SGD's momentum) or `:exp_avg_sq` (the average of
their squares; Adagrad's sum of them). A vector of Float32: a `TensorView`, or a `ReadOnlyView` of a
master that is the param itself.

A step, `offload` and `load_checkpoint!` end the view, also if they throw: every use throws
`MERON_E_STALE` then. `save_checkpoint_begin` and `export_model` end the writable ones. They cannot end
`Meron.unsafe_array(view)`: do not write by it meanwhile. A loop in another thread stops at its next
element.

Throws `MERON_E_ARGUMENT` for a state that the rule does not keep, `MERON_E_UNSUPPORTED` if it is on
nvme, or in 16 or 8 bits: use `read_state`. Blocks until a save has copied the states, and while another
thread exports or loads.
"""
function state_view(optimizer::Optimizer, param::Param, state)
    code = state_code(state)
    return lock(optimizer.context.states) do
        view = receive(
            LibMeron.meron_view, LibMeron.meron_optimizer_state_view,
            raw(optimizer), raw(param), code)
        memory = shard_memory(view, Float32)
        view.writable == 0 && return ReadOnlyView{Float32,1}(memory, optimizer.shown)
        wait_copied(optimizer.context) # what is written now is not of the save's moment
        return TensorView{Float32,1}(memory, optimizer.written)
    end
end

"""
    read_state(optimizer, param, state)

A copy of the elements `shard_range(param)` of a state, from any tier and dtype: a vector of Float32.

Throws `MERON_E_ARGUMENT` as `state_view`, `MERON_E_STATE` (a step is under way), `MERON_E_IO`,
`MERON_E_CORRUPT`. Blocks on this rank's drive if states are on nvme; tasks of this thread do not run
meanwhile.
"""
function read_state(optimizer::Optimizer, param::Param, state)
    code = state_code(state)
    values = Vector{Float32}(undef, length(shard_range(param)))
    @check LibMeron.meron_optimizer_read_state(
        values, length(values), raw(optimizer), raw(param), code)
    return values
end

"""
    write_state!(optimizer, param, state, values)

Replaces the elements `shard_range(param)` of a state by as many numbers; states of 16 or 8 bits are rounded to
nearest. A master that is the param itself is written through an update. Blocks and throws as
`read_state`.
"""
function write_state!(optimizer::Optimizer, param::Param, state, values)
    code = state_code(state)
    data = convert(Vector{Float32}, vec(collect(values)))
    @check LibMeron.meron_optimizer_write_state(
        raw(optimizer), raw(param), code, data, length(data))
    return
end

"""
    offload(optimizer, folder = nothing)

Moves this rank's states from memory to its file on a drive, and gives their memory back, for a phase
that needs it for something else, as DeepSpeed's `offload_states` does. Params can be gathered
meanwhile; `reload` before the next step. Views of states end. `folder`: on a drive; `nothing` for the
plan's, or where this rank's file is already.

Throws `MERON_E_ARGUMENT` (no folder, one that will not do), `MERON_E_STATE` (a step is under way, they
are offloaded), `MERON_E_NO_SPACE`, `MERON_E_IO`: they are where they were then. Blocks on this rank's
drive; tasks of this thread stand still meanwhile.
"""
function offload(optimizer::Optimizer, folder::Union{Nothing,AbstractString} = nothing)
    @check LibMeron.meron_optimizer_offload(
        raw(optimizer), folder === nothing ? C_NULL : String(folder))
    end_views(optimizer)
    return
end

# Ends the views of states; those to come have loans of their own.
function end_views(optimizer)
    end_written(optimizer)
    optimizer.shown.ended = true
    optimizer.shown = Loan(optimizer.context, optimizer)
    return
end
function end_written(optimizer)
    optimizer.written.ended = true
    optimizer.written = Loan(optimizer.context, optimizer)
    return
end

# Calls `body`, which reads the states of all optimizers, or with `end_views` writes them. No task writes
# to views of them meanwhile.
function with_states(body, context, end_some = end_written)
    return lock(context.states) do
        for each in context.optimizers
            optimizer = each.value
            optimizer === nothing || end_some(optimizer::Optimizer)
        end
        return body()
    end
end

function state_code(state)
    state === :master && return LibMeron.MERON_OPTIMIZER_STATE_MASTER
    state === :exp_avg && return LibMeron.MERON_OPTIMIZER_STATE_EXP_AVG
    state === :exp_avg_sq && return LibMeron.MERON_OPTIMIZER_STATE_EXP_AVG_SQ
    throw(argument_error(
        "unknown state $(repr(state)): :master, :exp_avg and :exp_avg_sq are known"))
end

Base.show(io::IO, optimizer::Optimizer) =
    print(io, "Meron.Optimizer(", optimizer.id == 0 ? "released" : "open", ")")

function release(optimizer::Optimizer)
    optimizer.written.ended = optimizer.shown.ended = true
    return invoke(release, Tuple{Owner}, optimizer)
end
