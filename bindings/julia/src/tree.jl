# SPDX-License-Identifier: Apache-2.0
# Parameters in nested (named) tuples, as Lux keeps them, and Functors gives them.

"""
    ParamTree(ctx, name, values; dtype = Float32)

Registers a nested `NamedTuple` (or tuple) of arrays: a param per array, named by its path
("name.layer_1.weight"), and a unit per child of the root, so that layers are gathered one by one.
Writes the values. Other values than arrays of real numbers (functions, `nothing`, numbers) stay
unchanged. Collective over the world.

A struct with arrays of floats in it, such as a layer of Flux, is refused (`MERON_E_ARGUMENT`), because
its arrays would not be trained; also a dictionary, a `Ref` or a closure with some. Pass named tuples of
the arrays: `(weight = layer.weight, bias = layer.bias)`, or `fmapstructure(identity, model)` of Functors.

- `tree.params`: the same tree of `Param`s; `tree.units`: its units.
- `gather(body, tree)`: `body(whole)` with the same tree of views; `gather(body, tree, :layer_1)`
  that child of it alone.
- `reduce!(tree, gradients; ...)`: a tree of gradients of the same shape, as Zygote gives it; a
  `nothing` counts as zero.
- `adamw(tree.units)` makes an optimizer.

Throws what `Param`, `Unit` and `update` throw.
"""
struct ParamTree{T}
    context::Context
    params::T
    units::Vector{Unit}
    children::Vector{Any} # a key of the root for each unit
end

is_leaf(value) = value isa AbstractArray{<:Real}
is_node(value) = value isa Union{NamedTuple,Tuple}

function ParamTree(context::Context, name, values; dtype = Float32)
    is_node(values) || throw(argument_error(
        "$name: a NamedTuple or a tuple of arrays is needed, not a $(typeof(values))"))
    refuse_hidden(values, string(name))
    params = map_tree(values, string(name)) do value, path
        Param(context, path, size(value); dtype = dtype)
    end
    units, children = Unit[], Any[]
    for key in keys(params)
        found = Param[]
        each_leaf((param, _) -> push!(found, param), params[key], values[key])
        isempty(found) && continue
        push!(units, Unit(context, "$name.$key", found))
        push!(children, key)
    end
    isempty(units) && throw(argument_error("$name holds no array of real numbers"))
    update(units) do writing
        each_leaf((param, value) -> write!(writing, param, value), params, values)
    end
    return ParamTree(context, params, units, children)
end

# Throws if a value that is neither a leaf nor a node has arrays of floats in it: they would not be trained.
function refuse_hidden(value, path)
    is_leaf(value) && return
    is_node(value) && return foreach(key -> refuse_hidden(value[key], "$path.$key"), keys(value))
    found = hidden_array(value, IdDict{Any,Nothing}())
    found === nothing && return
    isempty(found) && throw(argument_error(
        "$path: an array of $(eltype(value)) holds no real numbers"; subject = path))
    throw(argument_error(
        "$path is a $(nameof(typeof(value))), and its array $path$found would not be trained";
        subject = path,
        advice = "Pass a NamedTuple of the arrays, such as (weight = layer.weight, bias = layer.bias)"))
end

# Where in a value an array of floats is, as text, or nothing. `seen` ends cycles.
function hidden_array(value, seen)
    isbits(value) && return nothing
    value isa Union{AbstractString,Symbol,Type,Module,Task,IO} && return nothing
    value isa AbstractArray{<:Union{AbstractFloat,Complex{<:AbstractFloat}}} && return ""
    value isa AbstractArray{<:Number} && return nothing
    haskey(seen, value) && return nothing
    seen[value] = nothing
    for (part, name) in parts_of(value)
        found = hidden_array(part, seen)
        found === nothing || return name * found
    end
    return nothing
end
parts_of(list::AbstractArray) =
    ((list[i], "[$i]") for i in eachindex(list) if isassigned(list, i))
parts_of(table::AbstractDict) = ((value, "[$(repr(key))]") for (key, value) in table)
parts_of(value) = (
    (getfield(value, i), ".$(fieldname(typeof(value), i))")
    for i in 1:nfields(value) if isdefined(value, i))

# The tree with `change(leaf, path)` for each leaf.
map_tree(change, value, path) =
    is_leaf(value) ? change(value, path) : is_node(value) ? map_node(change, value, path) : value
function map_node(change, node, path)
    changed_ = map(key -> map_tree(change, node[key], "$path.$key"), Tuple(keys(node)))
    return node isa NamedTuple ? NamedTuple{keys(node)}(changed_) : changed_
end

# `visit(param, value)` for each param and what stands at its place in another tree.
function each_leaf(visit, params, values)
    if params isa Param
        visit(params, values)
    elseif is_node(params) && values !== nothing
        for key in keys(params)
            holds_params(params[key]) || continue
            haskey_of(values, key) || throw(argument_error("the tree lacks $key"))
            each_leaf(visit, params[key], values[key])
        end
    end
    return
end
holds_params(node) = node isa Param || is_node(node) && any(holds_params, Tuple(node))
haskey_of(values, key) = is_node(values) && (values isa NamedTuple ? haskey(values, key) : key <= length(values))

# The tree of full tensors. Other nodes than params stay unchanged.
whole(full::Gather, node) =
    node isa Param ? full[node] :
    node isa NamedTuple ? NamedTuple{keys(node)}(map(child -> whole(full, child), Tuple(node))) :
    node isa Tuple ? map(child -> whole(full, child), node) : node

gather(body::F, tree::ParamTree) where {F} =
    gather(full -> body(whole(full, tree.params)), tree.units)

Base.show(io::IO, tree::ParamTree) = print(io, "Meron.ParamTree(", length(tree.units), " units, ",
    sum(unit -> length(unit.params), tree.units), " params)")

function gather(body::F, tree::ParamTree, child) where {F}
    unit = unit_of(tree, child)
    return gather(full -> body(whole(full, tree.params[child])), unit)
end

function unit_of(tree::ParamTree, child)
    index = findfirst(isequal(child), tree.children)
    index === nothing &&
        throw(argument_error("the tree has no child $(repr(child)) with params"))
    return tree.units[index]
end

"""
    reduce!(tree, gradients; op = :mean, boundary = true, divisor = 1)

Reduces a tree of gradients and waits: see `ParamTree`.
"""
function reduce!(tree::ParamTree, gradients; options...)
    futures = map(zip(tree.children, tree.units)) do (child, unit)
        pairs_ = Pair{Param,Any}[]
        mine = gradients === nothing ? nothing : gradients[child]
        each_leaf(tree.params[child], mine) do param, value
            value === nothing || push!(pairs_, param => value)
        end
        reduce_begin!(unit, pairs_; options...)
    end
    foreach(finish, futures)
    return
end
