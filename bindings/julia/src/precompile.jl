# SPDX-License-Identifier: Apache-2.0
# The calls of a usual program, compiled with the package: its first calls are faster. No library is loaded
# meanwhile, so nothing is called here.

with_keywords(function_, names, types...) = precompile(Tuple{
    Core.kwftype(typeof(function_)), NamedTuple{names,Tuple{types...}}, typeof(function_)})

precompile(load_library, ())
precompile(open, ())
with_keywords(open, (:rank, :world_size), Int, Int)
with_keywords(open, (:plan,), String)
precompile(close, (Context,))
precompile(Unit, (Context, String, Vector{Param}))
precompile(update_begin, (Unit,))
precompile(publish, (Update,))
precompile(release, (Update,))
precompile(wait, (Future,))
precompile(finish, (Future,))
precompile(barrier, (Group,))
precompile(step!, (Optimizer,))
precompile(adamw, (Unit,))
precompile(adamw, (Vector{Unit},))
precompile(reduce!, (Unit,))
precompile(on_should_stop, (Ptr{Cvoid},))
precompile(take_error, (Int32, Ptr{LibMeron.meron_error}))
for units in (Unit, Vector{Unit})
    precompile(gather_begin, (units,))
    precompile(gather, (units,))
end
for N in 1:2
    precompile(Param, (Context, String, NTuple{N,Int}))
    precompile(write!, (Update, Param{Float32,N}, Array{Float32,N}))
    precompile(getindex, (Gather{:host}, Param{Float32,N}))
    precompile(gradient_view, (Unit, Param{Float32,N}))
    precompile(reduce!, (Unit, Pair{Param{Float32,N},Array{Float32,N}}))
end
