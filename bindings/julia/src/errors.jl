# SPDX-License-Identifier: Apache-2.0

"""
An error of the library, or one that this package found before it asked the library.

- `status`: the code, for example -300; `name`: its name, "MERON_E_TIMEOUT".
- `message`: the failure, the rank, the object and the remedy.
- `operation`: the failed operation, for example "gather"; `subject`: the tensor, unit, file or key
  concerned; `advice`: the remedy; each "" if unknown.
- `rank`: the rank that reports the error; `peer`: the rank that caused it if it is another one
  (dead, late, diverging); each `nothing` where there is none.

`Meron.damage(error)` says how far it reaches.
"""
struct MeronError <: Exception
    status::Int32
    name::String
    message::String
    operation::String
    subject::String
    advice::String
    rank::Union{Int,Nothing}
    peer::Union{Int,Nothing}
end

"""
    Meron.damage(error)

How much an error damages: `:call` (the call alone; everything is usable), `:resource` (this process
or host lacks something; nothing was changed), `:group` (the group is broken, on every rank),
`:context` (the context is unusable).
"""
function damage(error::MeronError)
    error.status > -200 && return :call
    error.status > -300 && return :resource
    return error.status > -400 ? :group : :context
end

function Base.showerror(io::IO, error::MeronError)
    print(io, error.name, ": ", error.message)
end

status_name(status) = unsafe_string(LibMeron.meron_status_name(status))

own_error(status, message; subject = "", advice = "") = MeronError(
    status,
    status_name(status),
    isempty(advice) ? message : "$message. $advice",
    "",
    subject,
    advice,
    nothing,
    nothing,
)
argument_error(message; options...) = own_error(LibMeron.MERON_E_ARGUMENT, message; options...)

@noinline throw_released(what) =
    throw(own_error(LibMeron.MERON_E_STALE, "this $what was released"; advice = "Make another one"))
@noinline throw_closed() = throw(own_error(
    LibMeron.MERON_E_CLOSED, "the context was closed"; advice = "Open another one by Meron.open"))

# Throws what a failed call left; frees the error object.
@noinline throw_error(status, error::Ptr{LibMeron.meron_error}) = throw(take_error(status, error))

# The error of a call; frees the library's own.
function take_error(status, error::Ptr{LibMeron.meron_error})
    error == C_NULL && return own_error(status, status_name(status)) # no memory was left for it
    made = MeronError(
        LibMeron.meron_error_code(error),
        status_name(LibMeron.meron_error_code(error)),
        unsafe_string(LibMeron.meron_error_message(error)),
        unsafe_string(LibMeron.meron_error_operation(error)),
        unsafe_string(LibMeron.meron_error_subject(error)),
        unsafe_string(LibMeron.meron_error_advice(error)),
        rank_or_nothing(LibMeron.meron_error_rank(error)),
        rank_or_nothing(LibMeron.meron_error_peer(error)),
    )
    LibMeron.meron_error_free(error)
    return made
end

rank_or_nothing(rank) = rank == LibMeron.MERON_RANK_NONE ? nothing : Int(rank)
