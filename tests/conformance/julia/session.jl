# SPDX-License-Identifier: Apache-2.0
# What one rank has while it executes a case: its objects by their names.

# Configuration of a run: rank, transport and options.
struct Setup
    rank::Int
    world::Int
    transport::String
    job::String
end

# An object, and its handle: the natural layer forgets the handle with the release, so only the raw one
# can release twice, or use a released object.
mutable struct Held
    item::Any
    handle::UInt64
    released::Bool
end

mutable struct Session
    setup::Setup
    case::String
    plan::String
    place::Place
    stop::Bool # what should_stop answers
    marked::Dict{String,Any}
    current::String
    objects::Vector{Pair{String,Held}} # oldest first
    files::Vector{String} # and folders, of the case, to be removed
    memories::Dict{String,Any} # of requests, by their names
    Session(setup, case, plan) = new(
        setup, case, plan, Place(setup.rank, setup.world), false, Dict(), "ctx", [], [], Dict())
end

function keep!(session, name, item)
    isempty(name) && throw(Malformed("a name is missing"))
    filter!(entry -> entry.first != name, session.objects)
    push!(session.objects, name => Held(item, item.id, false))
end

function held(session, name)
    for (known, object) in session.objects
        known == name && return object
    end
    throw(Malformed("there is no $name"))
end

function find(session, ::Type{T}, name) where {T}
    item = held(session, name).item
    item isa T || throw(Malformed("$name is of another kind"))
    return item::T
end

context(session) = find(session, Context, session.current)
group_of(session, name) =
    name in ("", "world") ? context(session).world : find(session, Group, name)
units_of(session, statement) = Unit[find(session, Unit, u) for u in parts(statement, "units")]

# The unit of a param; any other unit if it has none, to get the error.
function unit_of(session, param)
    units = [object.item for (_, object) in session.objects if object.item isa Unit]
    isempty(units) && throw(Malformed("there is no unit"))
    index = findfirst(unit -> any(p -> p === param, unit.params), units)
    return units[something(index, 1)]
end

release_raw(::Plan, id) = Meron.@check LibMeron.meron_plan_release(LibMeron.meron_plan(id))
release_raw(::Group, id) = Meron.@check LibMeron.meron_group_release(LibMeron.meron_group(id))
release_raw(::Param, id) = Meron.@check LibMeron.meron_param_release(LibMeron.meron_param(id))
release_raw(::Unit, id) = Meron.@check LibMeron.meron_unit_release(LibMeron.meron_unit(id))
release_raw(::Update, id) = Meron.@check LibMeron.meron_future_release(LibMeron.meron_future(id))
release_raw(::Gather, id) = Meron.@check LibMeron.meron_future_release(LibMeron.meron_future(id))
release_raw(::Meron.Future, id) = Meron.@check LibMeron.meron_future_release(LibMeron.meron_future(id))
release_raw(::Optimizer, id) =
    Meron.@check LibMeron.meron_optimizer_release(LibMeron.meron_optimizer(id))
release_raw(::Schedule, id) = Meron.@check LibMeron.meron_schedule_release(LibMeron.meron_schedule(id))
release_raw(::Checkpoint, id) =
    Meron.@check LibMeron.meron_checkpoint_release(LibMeron.meron_checkpoint(id))
release_raw(::Io, id) = Meron.@check LibMeron.meron_io_close(LibMeron.meron_io(id))
release_raw(::Meron.IoRequest, id) =
    Meron.@check LibMeron.meron_future_release(LibMeron.meron_future(id))
release_raw(::Meron.IoBuffer, id) =
    Meron.@check LibMeron.meron_io_buffer_release(LibMeron.meron_io_buffer(id))
release_raw(::Context, id) = Meron.@check LibMeron.meron_context_close(LibMeron.meron_context(id))

function release_held(object)
    if object.item isa Meron.DLPackTensor
        release(object.item)
    elseif object.released || object.item isa Meron.Owner && object.item.id == 0
        release_raw(object.item, object.handle)
    else
        # The raw release reports errors that the natural one ignores.
        release_raw(object.item, object.handle)
        object.item.id = 0
    end
    object.released = true
end

function end_session(session)
    while !isempty(session.objects)
        _, object = pop!(session.objects)
        try
            object.item isa Union{Context,Io} ? close(object.item) :
            object.released || release(object.item)
        catch error
            error isa MeronError || rethrow()
        end
    end
    foreach(path -> rm(path; force = true, recursive = true), session.files)
end
