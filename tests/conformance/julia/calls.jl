# SPDX-License-Identifier: Apache-2.0
# Generated from capi/api.json by tools/generate/generate.py: do not edit.
# The operation `call`. ../README.md defines it.

const CALLS = Dict{String,Function}(
    "meron_plan_json" => (it, s) -> Meron.json(it),
    "meron_plan_table" => (it, s) -> Meron.table(it),
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
    result = CALLS[name](held(session, object).item, statement)
    result isa AbstractString && return check_has(result, statement)
    result === nothing && return
    has(statement, "is") && check_equal("the result", result, number(statement, "is", 0))
end
