# SPDX-License-Identifier: Apache-2.0
# What a gather of a unit that is at hand costs the caller, through Meron.jl. The counterpart of
# overhead.cpp: `meron run -n N -- julia --project=bindings/julia ranks.jl [--quick]`.
using Meron

function gathers(unit, times)
    for _ in 1:times
        gather(full -> nothing, unit)
    end
end

# Involuntary context switches of this process so far: the field nivcsw of C's struct rusage.
function interruptions()
    usage = zeros(Int, 18)
    ccall(:getrusage, Cint, (Cint, Ptr{Int}), 0, usage)
    return usage[18]
end

function share_cores(rank, world_size)
    cpus = zeros(UInt64, 16)
    ccall(:sched_getaffinity, Cint, (Cint, Csize_t, Ptr{UInt64}), 0, sizeof(cpus), cpus)
    mine = [cpu for cpu in 0:1023 if (cpus[div(cpu, 64)+1] >> (cpu % 64)) & 1 == 1]
    length(mine) < world_size && return
    chosen = mine[rank+1]
    fill!(cpus, 0)
    cpus[div(chosen, 64)+1] = UInt64(1) << (chosen % 64)
    ccall(:sched_setaffinity, Cint, (Cint, Csize_t, Ptr{UInt64}), 0, sizeof(cpus), cpus)
end

# The greatest value of any rank.
function largest(ctx, value)
    values = zeros(Float32, ctx.world_size)
    values[ctx.rank+1] = value
    return maximum(allreduce!(values, ctx.world))
end

# Microseconds of each batch on its slowest rank, and how many batches were disturbed.
function measure(ctx, unit, times, batches)
    gathers(unit, times)
    largest(ctx, 0)
    microseconds, disturbed = Float64[], 0
    for _ in 1:batches
        barrier(ctx.world)
        before, begun = interruptions(), time_ns()
        gathers(unit, times)
        took = time_ns() - begun
        disturbed += largest(ctx, interruptions() - before) > 0
        push!(microseconds, largest(ctx, took) / times / 1000)
    end
    return microseconds, disturbed
end

Meron.open() do ctx
    share_cores(ctx.rank, ctx.world_size)
    times, batches = "--quick" in ARGS ? (200, 3) : (1000, 25)
    unit = Unit(ctx, "tensor", [Param(ctx, "tensor", 1024)])
    series, disturbed = String[], 0
    for arm in ("only lease", "leased already")
        held = arm == "leased already" ? gather(unit) : nothing
        microseconds, count = measure(ctx, unit, times, batches)
        held === nothing || release(held)
        disturbed += count
        push!(series, "{\"arm\": \"$arm\", \"bytes\": 0, \"us\": [$(join(microseconds, ", "))]}")
    end
    ctx.rank == 0 &&
        println("{\"disturbed\": $(disturbed / (2 * batches)), \"series\": [$(join(series, ", "))]}")
    barrier(ctx.world)
end
