# SPDX-License-Identifier: Apache-2.0

"""
Params of a unit that have one dtype and are all trained or all frozen, one after another in memory;
`flats` lists them. A gather copies a flat into an array of yours at once:

    array = zeros(eltype(flat), length(flat))
    gather(layer; into = flat => array) do full
        full[weight]                    # a part of `array`
    end

`eltype(flat)`, `length(flat)` (with the padding behind each param), `flat.frozen` and `flat.params`
describe it; `flat_range(param)` is the place of a param. The layout depends only on the unit's params: it is the same
on all ranks and under all plans.
"""
struct Flat
    unit::Unit
    index::Int # in `flats(unit)`
    dtype::DataType
    length::Int
    frozen::Bool
    params::Vector{Param}
end

Base.eltype(flat::Flat) = flat.dtype
Base.length(flat::Flat) = flat.length
Base.size(flat::Flat) = (flat.length,)
name_of(flat::Flat) = "flat $(flat.index) of $(flat.unit.name)"
name_of(param::Param) = param.name
Base.show(io::IO, flat::Flat) = print(io, "Meron.Flat(", flat.index, " of ", repr(flat.unit.name), ", ",
    flat.dtype, ", ", flat.length, ", ", length(flat.params), " params)")

"""
    flats(unit)

The flats that a unit's params are in, in the order of their first params. Never blocks.
"""
function flats(unit::Unit)
    count = filled(LibMeron.meron_unit_info, LibMeron.meron_unit_get_info, raw(unit)).flats
    return map(1:Int(count)) do index
        known = filled(LibMeron.meron_flat_info, LibMeron.meron_unit_flat, raw(unit), index - 1)
        params = filter(param -> info(param).flat == index - 1, unit.params)
        Flat(unit, index, type_of(known.dtype, eltype(first(params))), Int(known.elements), known.frozen != 0, params)
    end
end

"""
    flat_range(param)

The linear indices of the param's elements in an array that its flat was gathered into.
"""
function flat_range(param::Param)
    first = info(param).flat_offset + 1
    return first:first+length(param)-1
end
