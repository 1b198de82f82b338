# SPDX-License-Identifier: Apache-2.0

"""
    Unit(ctx, name, params)

Params that are gathered and reduced together, such as a layer's; reserves the memory that the plan
gives them on this rank. The values are zero at first; `update` writes them. Collective over the
params' group.

- `name`: unique in the context, 1 to 512 bytes of UTF-8.
- `params`: of one group, none of them in a unit. `unit.params` has them.

Throws `MERON_E_DUPLICATE`, `MERON_E_NO_MEMORY` (with figures), `MERON_E_ARGUMENT`. Blocks if this
rank is 1,024 calls ahead of a peer.
"""
mutable struct Unit <: Owner
    id::UInt64
    name::String
    params::Vector{Param}
    context::Context
    gradients::Any # Loan of the places for gradients, until they are reduced; or nothing
    sums::Any # Loan of reduced gradients, until they are used; or nothing
    Unit(context) = finalizer(enqueue_owner, new(0, "", Param[], context, nothing, nothing))
end

kind_of(::Unit) = unit_kind

function Unit(context::Context, name, params)
    unit = Unit(context)
    unit.name = text(name, "the name of a unit")
    unit.params = collect(Param, params)
    handles = map(raw, unit.params)
    GC.@preserve unit @check LibMeron.meron_unit_create(
        out_pointer(unit, LibMeron.meron_unit), raw(context), unit.name, handles, length(handles))
    return unit
end

@inline function raw(unit::Unit)
    unit.context.isopen || throw_closed()
    unit.id == 0 && throw_released("unit")
    return LibMeron.meron_unit(unit.id)
end

Base.show(io::IO, unit::Unit) =
    print(io, "Meron.Unit(", repr(unit.name), ", ", length(unit.params), " params)")

const STATES = (:partitioned, :gathering, :available, :updating)
const CODECS = (:none, :bf16, :int8, :int4)

"""
    info(unit)

Information about a unit on this rank: `state` (`:partitioned`, `:gathering`, `:available`,
`:updating`), `version` of the values (0 until the first update), `leases` (gathers that hold it),
`reduced` (a reduced gradient waits for a step). Never blocks.

`param_codec` and `gradient_codec` are the codecs of values and gradients between replicas: `:none`,
`:bf16`, `:int8` or `:int4`, from the plan, or bf16 if the codec's error was above the plan's limit.
`param_error` and `gradient_error` are the relative errors of this rank's last encoding, |x - decoded
x| / |x| in the 2-norm, and `param_worst_block` and `gradient_worst_block` those of the worst block:
0 before the first one, and without a codec; NaN or infinite if values were.
"""
function info(unit::Unit)
    known = filled(LibMeron.meron_unit_info, LibMeron.meron_unit_get_info, raw(unit))
    return (
        state = STATES[known.state+1],
        version = Int(known.version),
        leases = Int(known.leases),
        reduced = known.reduced != 0,
        param_codec = CODECS[known.param_codec+1],
        gradient_codec = CODECS[known.gradient_codec+1],
        param_error = known.param_error,
        param_worst_block = known.param_worst_block,
        gradient_error = known.gradient_error,
        gradient_worst_block = known.gradient_worst_block,
    )
end

# The context and the handles of units that a call takes together.
function context_of(units)
    isempty(units) && throw(argument_error("at least one unit is needed"))
    return first(units).context
end
handles_of(units) = LibMeron.meron_unit[raw(unit) for unit in units]
