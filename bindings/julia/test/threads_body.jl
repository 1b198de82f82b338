# SPDX-License-Identifier: Apache-2.0
using Meron, Random, Test
using Meron: BFloat16

include("ranks.jl")

# Old versions of Julia start no more threads than there are cores.
const RANKS = Threads.nthreads()
@test RANKS >= 2

@testset "ranks are threads, and the collector runs meanwhile" begin
    bits = run_ranks(RANKS) do ctx
        w = Param(ctx, "w", (16, 16))
        unit = Unit(ctx, "u", [w])
        Meron.update(u -> write!(u, w, ones(16, 16)), unit)
        optimizer = adamw(unit; learning_rate = 0.01)
        for step in 1:30
            gradient = gather(full -> sin.(full[w] .* step), unit)
            # A rank that collects must not wait for one that waits for it.
            ctx.rank == step % RANKS && GC.gc(step % 5 == 0)
            rubbish = [rand(100) for _ in 1:100]
            reduce!(unit, w => gradient)
            step!(optimizer)
            allreduce!(Float32[length(rubbish)], ctx.world)
        end
        gather(full -> hash(collect(full[w])), unit)
    end
    @test bits[1] isa UInt && all(isequal(bits[1]), bits)
end

@testset "opening waits without holding up the collector" begin
    ranks = run_ranks(RANKS) do ctx
        for number in 1:20
            Meron.open(; rank = ctx.rank, world_size = RANKS, transport = "local",
                job = "again$number", timeout = 20) do inner
                ctx.rank == number % RANKS && GC.gc()
                barrier(inner.world)
            end
        end
        ctx.rank
    end
    @test ranks == 0:RANKS-1
end

@testset "opening waits while timers of other threads are served" begin
    # Old versions of Julia serve timers on the first thread only, unless inside of Threads.@threads.
    options = (world_size = 2, transport = "local", job = "timers", timeout = 5)
    peer = Threads.@spawn begin
        sleep(0.2)
        Meron.open(ctx -> barrier(ctx.world); rank = 1, options...)
    end
    @test Meron.open(ctx -> (barrier(ctx.world); true); rank = 0, options...)
    wait(peer)
end

@testset "objects die on all threads at once" begin
    function churn(seed)
        generator = MersenneTwister(seed)
        for number in 1:15
            ctx = Meron.open(; rank = 0, world_size = 1, transport = "self", arena_reserve = 1 << 24)
            unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
            objects = Any[ctx, unit]
            for _ in 1:20
                full = gather(unit)
                push!(objects, full, full[unit.params[1]], barrier_begin(ctx.world),
                    allreduce_begin!(ones(Float32, 16), ctx.world), Plan("zero1"))
            end
            number % 3 == 0 && close(ctx)
            shuffle!(generator, objects)
            while !isempty(objects)
                pop!(objects)
                rand(generator) < 0.02 && GC.gc(rand(generator) < 0.1)
            end
        end
        return true
    end
    done = fill(false, RANKS)
    Threads.@threads for i in 1:RANKS
        done[i] = churn(i)
    end
    @test all(done)
end

@testset "two threads release one object" begin
    Meron.open(; rank = 0, world_size = 1, transport = "self") do ctx
        w = Param(ctx, "w", 64)
        unit = Unit(ctx, "u", [w])
        full = gather(unit)
        for _ in 1:1_000 # a second call of its deleter ends the process
            tensor, ready = Meron.dlpack(full, w), Threads.Atomic{Int}(0)
            Threads.@threads for i in 1:2
                Threads.atomic_add!(ready, 1)
                while ready[] < 2 GC.safepoint() end
                release(tensor)
            end
        end
        @test Meron.info(unit).leases == 1
    end
end

@testset "one context is used by several threads" begin
    Meron.open(; rank = 0, world_size = 1, transport = "self") do ctx
        unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
        Meron.update(u -> write!(u, unit.params[1], 1:64), unit)
        sums = zeros(RANKS)
        Threads.@threads for i in 1:RANKS
            for _ in 1:500
                sums[i] += gather(full -> sum(full[unit.params[1]]), unit)
            end
        end
        @test sums == fill(500.0 * sum(1:64), RANKS)
        @test Meron.info(unit).leases == 0
    end
end

@testset "an export is of one moment beside a thread that writes to views of states" begin
    Meron.open(; rank = 0, world_size = 1, transport = "self", timeout = 20) do ctx
        count = 1 << 20
        weight = Param(ctx, "w", count; dtype = BFloat16)
        optimizer = adamw(Unit(ctx, "u", [weight]))
        stop = Threads.Atomic{Bool}(false)
        writer = Threads.@spawn begin
            view, ended = state_view(optimizer, weight, :master), 0
            number = 0
            while !stop[]
                GC.safepoint()
                number = (number + 1) % 100
                try
                    view .= number
                catch error
                    error isa MeronError && error.name == "MERON_E_STALE" || rethrow()
                    view, ended = state_view(optimizer, weight, :master), ended + 1
                end
            end
            ended
        end
        mktempdir() do folder
            values = zeros(Float32, count)
            for number in 1:20
                export_model(ctx, folder; dtype = Float32, overwrite = true)
                read!(open_checkpoint(folder), "w", values)
                @test all(==(values[1]), values)
            end
        end
        stop[] = true
        @test fetch(writer) > 0
    end
end
