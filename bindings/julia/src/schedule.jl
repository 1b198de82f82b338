# SPDX-License-Identifier: Apache-2.0
# The order in which a trainer uses its units, recorded and replayed.

"""
    Schedule(units; options...)

The order in which passes use some units: a pass records it, and the next one of its kind follows it.
Gathers are begun ahead, and what is used again soon stays full. Collective over the units' group:
units and options are equal on all ranks.

    start_pass!(schedule)                   # a forward and backward
    enter!(schedule, 1)                     # schedule.units[1] is full from here
    schedule[param]
    leave!(schedule, 1)                     # to here
    drop!(schedule)                         # before an optimizer's step

Options, all in elements:

- `prefetch_elements` = 50_000_000: gathers are prefetched for the next uses within this many
  elements; 0: no prefetch.
- `max_live_elements` = 1_000_000_000: limit of prefetched and kept units, never of the unit in use.
- `max_reuse_elements` = 1_000_000_000: a unit stays full if its next recorded use is within this many
  elements of other units' uses.
- `persist_elements` = 100_000: a unit of at most so many stays full from its first use until `drop!`.
- `persist_total_elements`: limit for all such units together, in the order of `units`; no limit.

and the memory of views:

- `tier` = `:host`: `:device` for the memory of the context's device, where it has one.
- `stream` = `C_NULL`: for views on the device, the stream (a `Ptr{Cvoid}`: a cudaStream_t; `C_NULL` is
  the default one) that waits for a unit that is entered, and behind whose work so far its memory goes
  back. It lives as long as the schedule.

The calls alone determine the gathers, so ranks that make the same calls stay in step. Let one task
at a time use it.

Throws `MERON_E_ARGUMENT`, `MERON_E_DUPLICATE` (a unit twice).
Blocks if this rank is 1,024 calls ahead of a peer.
"""
mutable struct Schedule <: Owner
    id::UInt64
    units::Vector{Unit}
    context::Context
    uses::Vector{Int} # by unit: how often it is entered
    loans::Vector{Any} # by unit: the Loan of its views while it is entered, or nothing
    remote::Bool # its views are where the host cannot read
    Schedule(context::Context, units::Vector{Unit}, remote::Bool) = finalizer(
        enqueue_owner,
        new(0, units, context, zeros(Int, length(units)),
            fill!(Vector{Any}(undef, length(units)), nothing), remote))
end

kind_of(::Schedule) = schedule_kind

function raw(schedule::Schedule)
    schedule.context.isopen || throw_closed()
    schedule.id == 0 && throw_released("schedule")
    return LibMeron.meron_schedule(schedule.id)
end

const SCHEDULE_OPTIONS = (
    :prefetch_elements, :max_live_elements, :max_reuse_elements, :persist_elements,
    :persist_total_elements)

function Schedule(units; tier = :host, stream = C_NULL, options...)
    list = units isa Unit ? Unit[units] : collect(Unit, units)
    for name in keys(options)
        name in SCHEDULE_OPTIONS || throw(argument_error(
            "a schedule has no option $name, but $(join(SCHEDULE_OPTIONS, ", ")), tier, stream"))
    end
    chosen = Ref(changed(
        initial(LibMeron.meron_schedule_options, LibMeron.meron_schedule_options_init);
        tier = tier_code(tier), stream = stream_pointer(stream), options...))
    context = context_of(list)
    schedule = Schedule(context, list, tier === :device && is_remote(context))
    handles = handles_of(list)
    GC.@preserve schedule @check LibMeron.meron_schedule_create(
        out_pointer(schedule, LibMeron.meron_schedule), handles, length(handles), chosen)
    return schedule
end

# The index of a unit, from 0, as the library counts.
place_of(::Schedule, index::Integer) = Int(index) - 1
function place_of(schedule::Schedule, unit::Unit)
    index = findfirst(each -> each === unit, schedule.units)
    index === nothing && throw(argument_error("unit $(unit.name) is not in the schedule"))
    return index - 1
end

"""
    start_pass!(schedule, kind = 0)

Starts a pass: the forward, and backward if there is one, of a micro-batch. Each `kind`, 0 to 15, has
its own recorded order. Releases prefetched units that were not used.

Throws `MERON_E_STATE` when units are entered (see `reset!`).
Blocks if this rank is 1,024 calls ahead of a peer.
"""
function start_pass!(schedule::Schedule, kind = 0)
    @check LibMeron.meron_schedule_start_pass(raw(schedule), kind)
    return
end

# An enter that did not end continues with the next call, so it is waited for like an operation.
struct Entering
    schedule::LibMeron.meron_schedule
    place::Int
end
poll_operation(use::Entering, error) =
    LibMeron.meron_schedule_enter(use.schedule, use.place, 0, error)
wait_operation(use::Entering, slice, error) =
    LibMeron.meron_schedule_enter(use.schedule, use.place, slice, error)

"""
    enter!(schedule, unit; timeout = nothing)

Enters a unit, given as itself or by its index in `schedule.units`: it stays full until it is left as
often as it is entered. Collective over the units' group if it is not full already. Returns `true` when
it is full, and `false` after `timeout` seconds: then it is not entered, and the next enter of the unit
continues the same use.

Throws `MERON_E_STATE` (the unit, or a prefetched one, is being updated), `MERON_E_ARGUMENT`, and what
`wait` throws.
"""
function enter!(schedule::Schedule, unit; timeout = nothing)
    place = place_of(schedule, unit)
    use = Entering(raw(schedule), place)
    await(use, nanoseconds(timeout)) || return false
    schedule.uses[place+1] += 1
    return true
end

"""
    leave!(schedule, unit)

Leaves a unit once; views of its tensors are refused when it was left as often as entered.

Throws `MERON_E_STATE` when it is not entered. Blocks if this rank is 1,024 calls ahead of a peer.
"""
function leave!(schedule::Schedule, unit)
    place = place_of(schedule, unit)
    @check LibMeron.meron_schedule_leave(raw(schedule), place)
    schedule.uses[place+1] -= 1
    schedule.uses[place+1] == 0 && end_loan(schedule, place + 1)
    return
end

function end_loan(schedule, index)
    loan = schedule.loans[index]
    loan === nothing || ((loan::Loan).ended = true)
    schedule.loans[index] = nothing
    return
end

"""
    schedule[param]

The whole tensor of a param whose unit is entered: a read-only view, without a copy. On a device it is
for work of the schedule's stream, and on a CUDA one a `DeviceArray`.

Throws `MERON_E_STATE` (its unit is not entered), `MERON_E_ARGUMENT` (the schedule does not have it).
"""
function Base.getindex(schedule::Schedule, param::Param{T,N}) where {T,N}
    view = receive(LibMeron.meron_view, LibMeron.meron_schedule_view, raw(schedule), raw(param))
    schedule.remote &&
        return DeviceArray(Ptr{T}(view.data), param.size, schedule)
    index = findfirst(unit -> any(each -> each === param, unit.params), schedule.units)::Int
    schedule.loans[index] === nothing && (schedule.loans[index] = Loan(schedule.context, schedule))
    return ReadOnlyView{T,N}(wrap_memory(view, T, param.size), schedule.loans[index]::Loan)
end

"""
    reset!(schedule)

Forgets all uses and the pass, and gives everything back: after an exception in the trainer. The
recorded orders stay. Blocks while another thread begins an operation.
"""
function reset!(schedule::Schedule)
    @check LibMeron.meron_schedule_reset(raw(schedule))
    end_uses(schedule)
    return
end

function end_uses(schedule)
    fill!(schedule.uses, 0)
    foreach(index -> end_loan(schedule, index), eachindex(schedule.loans))
end

"""
    info(schedule)

Information about a schedule: `entered` units now, `units`, `passes` and `uses` so far; among the
uses `ready` (full already), `ahead` (with a prefetched gather) and `deviations` (not next in the
recorded order); `live_elements`, `peak_live_elements`, `wait_ns`. Never blocks.
"""
info(schedule::Schedule) = as_tuple(
    LibMeron.meron_schedule_info,
    filled(LibMeron.meron_schedule_info, LibMeron.meron_schedule_get_info, raw(schedule)))

function release(schedule::Schedule)
    end_uses(schedule)
    return invoke(release, Tuple{Owner}, schedule)
end

Base.show(io::IO, schedule::Schedule) =
    print(io, "Meron.Schedule(", length(schedule.units), " units)")
