# SPDX-License-Identifier: Apache-2.0

"""
    Plan("zero2")
    Meron.parse_plan(json)

The strategy as a table: the ranks and the dtype of each kind of state. A preset ("zero0" to
"zero3"; for several nodes "mics(4)", "hpz(4)" or "zeropp(4)"; the argument is the number of ranks
in a group, by default a node's) or JSON text, for which docs/plan.md has every key.

Throws a `MeronError`: `MERON_E_ARGUMENT` for an unknown preset (the message lists the known ones),
`MERON_E_PARSE` (line and key), `MERON_E_UNSUPPORTED`. Never blocks. Threads: any.
"""
mutable struct Plan <: Owner
    id::UInt64
    Plan() = finalizer(enqueue_owner, new(0))
end

kind_of(::Plan) = plan_kind

function Plan(preset::AbstractString)
    plan = Plan()
    name = text(preset, "the name of a plan")
    GC.@preserve plan @check LibMeron.meron_plan_preset(
        out_pointer(plan, LibMeron.meron_plan), name)
    return plan
end

"""
    Meron.parse_plan(json)

The plan that JSON text describes; see `Plan`.
"""
function parse_plan(json)
    plan = Plan()
    words = json_text(json)
    GC.@preserve plan @check LibMeron.meron_plan_parse(
        out_pointer(plan, LibMeron.meron_plan), words, sizeof(words))
    return plan
end

json_text(json) =
    json isa AbstractString ? String(json) :
    throw(argument_error("JSON is passed as text, not as a $(typeof(json))"))

function raw(plan::Plan)
    plan.id == 0 && throw_released("plan")
    return LibMeron.meron_plan(plan.id)
end

Base.:(==)(a::Plan, b::Plan) = json(a) == json(b)
Base.hash(plan::Plan, seed::UInt) = hash(json(plan), hash(:MeronPlan, seed))
Base.show(io::IO, plan::Plan) =
    print(io, plan.id == 0 ? "Meron.Plan(released)" : "Meron.parse_plan($(repr(json(plan))))")

"""
    Meron.predict(plan, model; ranks, micro_batches = 1, gathers_per_micro_batch = 2,
                  ranks_per_node = 0, optimizer_states = 2, table = false)

Predicts bytes per link and step and peak bytes per rank, as JSON text, or as a table for people.

- `model`: JSON text: `{"parameters": N, "layers": L, "dtype": "bf16"}`, or
  `{"units": [{"name": ..., "tensors": [{"name", "shape", "dtype"}]}]}` (shapes in C's order).
- `gathers_per_micro_batch`: of every unit; 2 are forward and backward.
- `ranks_per_node`: how many ranks share memory, side by side; 0: all of them.
- `optimizer_states`: that the update rule keeps of an element, besides the master: 2 for AdamW and
  Adam, 1 for Adagrad, Lion and SGD with a momentum, 0 for SGD without one.

Throws `MERON_E_PARSE`, `MERON_E_ARGUMENT`. Never blocks.
"""
function predict(plan::Plan, model; ranks, micro_batches = 1, gathers_per_micro_batch = 2,
    ranks_per_node = 0, optimizer_states = 2, table = false)
    words = json_text(model)
    workload = Ref(workload_of(
        ranks, micro_batches, gathers_per_micro_batch, ranks_per_node, optimizer_states))
    return take_string(LibMeron.meron_plan_predict, raw(plan), words, sizeof(words), workload, table)
end

workload_of(
    ranks, micro_batches, gathers_per_micro_batch, ranks_per_node = 0, optimizer_states = 2) = changed(
    initial(LibMeron.meron_workload, LibMeron.meron_workload_init);
    ranks = ranks,
    micro_batches = micro_batches,
    gathers_per_micro_batch = gathers_per_micro_batch,
    ranks_per_node = ranks_per_node,
    optimizer_states = optimizer_states,
)

as_plan(plan::Plan) = plan
as_plan(plan::AbstractString) =
    startswith(lstrip(plan), '{') ? parse_plan(plan) : Plan(plan)
as_plan(plan) = throw(argument_error("a plan is a Plan, a preset's name or JSON text, not $plan"))
