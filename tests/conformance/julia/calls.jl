# SPDX-License-Identifier: Apache-2.0
# Generated from capi/api.json by tools/generate/generate.py: do not edit.
# The operation `call`. ../README.md defines it.

flag(text) = text == "1"
real(text) = parse(Float64, text)
integer(text) = parse(Int, text)

# The options that a statement has.
given(statement; kinds...) = Dict{Symbol,Any}(
    key => kind(wanted(statement, string(key))) for
    (key, kind) in kinds if has(statement, string(key)))

const OF_GROUPS = String["meron_barrier_begin"]
const CALLS = Dict{String,Function}(
    "meron_context_plan_json" => (it, s) -> Meron.plan_json(it),
    "meron_context_event_fd" => (it, s) -> Meron.event_fd(it),
    "meron_checkpoint_cancel_save" => (it, s) -> Meron.cancel_save(it),
    "meron_plan_json" => (it, s) -> Meron.json(it),
    "meron_plan_table" => (it, s) -> Meron.table(it),
    "meron_barrier_begin" => (it, s) -> Meron.barrier_begin(it),
    "meron_reduce_consume" => (it, s) -> Meron.consume!(it),
    "meron_reduce_scale_feedback" => (it, s) -> Meron.scale_feedback!(it, number(s, "factor", 0)),
    "meron_optimizer_set_max_norm" => (it, s) -> Meron.set_max_norm!(it, number(s, "max_norm", 0)),
    "meron_schedule_drop" => (it, s) -> Meron.drop!(it),
    "meron_io_describe" => (it, s) -> Meron.describe(it),
)

operation("call") do session, statement
    name = wanted(statement, "function")
    haskey(CALLS, name) || throw(Malformed("there is no call of $name"))
    object = isempty(statement.name) ? session.current : statement.name
    item = name in OF_GROUPS ? group_of(session, statement.name) : held(session, object).item
    result = CALLS[name](item, statement)
    result isa Meron.Future && return finish_or_keep(session, statement, result)
    result isa AbstractString && return check_has(result, statement)
    result === nothing && return
    has(statement, "is") && check_equal("the result", result, number(statement, "is", 0))
end
