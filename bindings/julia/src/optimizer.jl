# SPDX-License-Identifier: Apache-2.0

"""
States and update rule for some units; `adamw` makes one.
"""
mutable struct Optimizer <: Owner
    id::UInt64
    context::Context
    loan::Loan # of its states' views, until the next step
    Optimizer(context) = finalizer(enqueue_owner, new(0, context, Loan(context)))
end

kind_of(::Optimizer) = optimizer_kind

function raw(optimizer::Optimizer)
    optimizer.context.isopen || throw_closed()
    optimizer.id == 0 && throw_released("optimizer")
    return LibMeron.meron_optimizer(optimizer.id)
end

"""
    adamw(units; learning_rate, beta1, beta2, epsilon, weight_decay, max_norm)

An AdamW optimizer (arXiv 1711.05101) for the trainable params of some units. Its states are f32, and
zero at first. Collective over the units' group.

- `learning_rate` = 1e-3; `beta1` = 0.9 and `beta2` = 0.999, each 0 or more and below 1; `epsilon` =
  1e-8, above 0; `weight_decay` = 0.01, 0 or more.
- `max_norm` = 0: gradients are scaled to at most this global 2-norm; 0 does not clip.

Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (a unit has an optimizer already),
`MERON_E_NO_MEMORY`. Never blocks.
"""
function adamw(units; options...)
    list = units isa Unit ? (units,) : units
    known = (:learning_rate, :beta1, :beta2, :epsilon, :weight_decay, :max_norm)
    for name in keys(options)
        name in known || throw(argument_error("adamw has no option $name, but $(join(known, ", "))"))
    end
    chosen = Ref(changed(
        initial(LibMeron.meron_optimizer_options, LibMeron.meron_optimizer_options_init); options...))
    optimizer = Optimizer(context_of(list))
    handles = handles_of(list)
    GC.@preserve optimizer @check LibMeron.meron_optimizer_create(
        out_pointer(optimizer, LibMeron.meron_optimizer), handles, length(handles), chosen)
    return optimizer
end

"""
    set_learning_rate!(optimizer, rate)

The learning rate of the next steps, the same on all ranks. Never blocks.
"""
function set_learning_rate!(optimizer::Optimizer, rate)
    @check LibMeron.meron_optimizer_set_learning_rate(raw(optimizer), rate)
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
    optimizer.loan.ended = true
    optimizer.loan = Loan(optimizer.context)
    return begin_operation(optimizer.context) do out
        @check LibMeron.meron_optimizer_step_begin(out, handle)
    end
end

"""
    info(optimizer)

What is known about an optimizer: `steps` taken, `norm` (global 2-norm of the last step's gradients,
before clipping), `learning_rate`. Never blocks.
"""
info(optimizer::Optimizer) = as_tuple(
    LibMeron.meron_optimizer_info,
    filled(
        LibMeron.meron_optimizer_info, LibMeron.meron_optimizer_get_info, raw(optimizer)),
)

"""
    state_view(optimizer, param, state)

The elements `owned(param)` of a state: `:master` (f32 values; the param itself where that is f32),
`:exp_avg` or `:exp_avg_sq` (the moments). A vector of Float32, writable but for a master that is the
param itself, until the next step. Never blocks.
"""
function state_view(optimizer::Optimizer, param::Param, state)
    view = receive(
        LibMeron.meron_view, LibMeron.meron_optimizer_state_view,
        raw(optimizer), raw(param), state_code(state))
    return part_view(view, optimizer.loan)
end

function state_code(state)
    state === :master && return LibMeron.MERON_STATE_MASTER
    state === :exp_avg && return LibMeron.MERON_STATE_EXP_AVG
    state === :exp_avg_sq && return LibMeron.MERON_STATE_EXP_AVG_SQ
    throw(argument_error(
        "unknown state $(repr(state)): :master, :exp_avg and :exp_avg_sq are known"))
end

function release(optimizer::Optimizer)
    optimizer.loan.ended = true
    return invoke(release, Tuple{Owner}, optimizer)
end
