# SPDX-License-Identifier: Apache-2.0
# Objects die in any order, at any time, wherever the collector happens to run.

const ORDERS = 10_000
const CONTEXTS = 100 # each of them sees many orders

# One of each kind of object, some of them under way; none of them is released by hand.
function everything(ctx, unit, other, number)
    param = unit.params[1]
    full = gather(unit)
    return Any[
        full,
        full[param],
        Meron.dlpack(full, param),
        gather_begin(other),
        gather(other; mode = :copy),
        gather_begin(other; into = other.params[1] => zeros(Float32, 8)),
        Param(ctx, "p$number", 3),
        number <= 30 ? Group(ctx, [0]) : Plan("zero2"), # a context has 64 groups at most
        Plan("zero1"),
        barrier_begin(ctx.world),
        allreduce_begin!(ones(Float32, 16), ctx.world),
        bcast_begin!(ones(Int, 16), ctx.world),
    ]
end

# Drops the objects one by one in a random order, with collections in between, some used after.
function drop_all!(objects, generator)
    shuffle!(generator, objects)
    while !isempty(objects)
        object = pop!(objects)
        if rand(generator) < 0.2
            object isa ReadOnlyView || release(object)
        end
        object = nothing
        rand(generator) < 0.004 && GC.gc(false)
    end
end

function random_orders(generator, per_context)
    ctx = Meron.open(; rank = 0, world_size = 1, transport = "self", timeout = DEADLINE,
        arena_reserve = 1 << 24, threads = 1)
    unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
    other = Unit(ctx, "v", [Param(ctx, "x", 8)])
    optimizer = adamw(unit)
    survivors = Any[]
    for number in 1:per_context
        objects = everything(ctx, unit, other, number)
        number % 8 == 0 && append!(survivors, splice!(objects, 1:3))
        drop_all!(objects, generator)
    end
    # Some outlive the context: it is closed, or its last reference is dropped.
    if rand(generator, Bool)
        close(ctx)
        for object in survivors
            object isa ReadOnlyView && (@assert !isvalid(object))
        end
    end
    append!(survivors, Any[ctx, unit, other, optimizer, ctx.world])
    drop_all!(survivors, generator)
    GC.gc(rand(generator) < 0.2)
    return
end

@testset "$ORDERS random orders" begin
    generator = MersenneTwister(5)
    for _ in 1:CONTEXTS
        random_orders(generator, div(ORDERS, CONTEXTS))
    end
    GC.gc()
    GC.gc()
    Meron.Plan("zero0") # any call takes what the finalizers left
    @test Meron.released[] == 0
    @test length(Meron.open_contexts) <= 1 # what the compiler still keeps on the stack
    @test length(Meron.in_flight) <= 3
end

@testset "a view keeps its gather, and with it the lease" begin
    alone() do ctx
        unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
        Meron.update(u -> write!(u, unit.params[1], 1:64), unit)
        keep() = gather(unit)[unit.params[1]]
        v = keep()
        GC.gc()
        Meron.progress(ctx)
        @test Meron.info(unit).leases == 1 && sum(v) == sum(1:64)
    end
end

@testset "a view keeps its optimizer, and with it the states" begin
    folder = mktempdir()
    first_view(optimizer, unit) = nothing
    after_a_step(optimizer, unit) = (reduce!(unit, unit.params[1] => ones(64)); step!(optimizer))
    after_an_offload(optimizer, unit) = (offload(optimizer, folder); reload(optimizer))
    for prepare in (first_view, after_a_step, after_an_offload)
        alone() do ctx
            unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
            @noinline function keep() # inlined, it would leave the optimizer in this frame
                optimizer = adamw(unit)
                prepare(optimizer, unit)
                return state_view(optimizer, unit.params[1], :exp_avg)
            end
            v = keep()
            expected = copy(v)
            GC.gc()
            Meron.progress(ctx)
            @test status_of(() -> adamw(unit)) == "MERON_E_DUPLICATE" # the unit has one
            @test isvalid(v) && v == expected
        end
    end
end

@testset "a view keeps its update, which nobody has published" begin
    alone() do ctx
        unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
        @noinline keep() = shard_view(Meron.update_begin(unit), unit.params[1])
        v = keep()
        GC.gc()
        Meron.progress(ctx)
        @test isvalid(v) && status_of(() -> barrier(ctx.world)) === nothing # not given up
    end
end

@testset "a storm of the collector during training" begin
    alone() do ctx
        w = Param(ctx, "w", 257)
        unit = Unit(ctx, "u", [w])
        optimizer = adamw(unit; learning_rate = 0.01)
        results = map((false, true)) do storm
            Meron.update(u -> write!(u, w, zeros(257)), unit)
            for state in (:exp_avg, :exp_avg_sq)
                state_view(optimizer, w, state) .= 0
            end
            for step in 1:20
                gradients = gather(full -> cos.(full[w] .+ step), unit)
                futures = [allreduce_begin!(rand(Float32, 100), ctx.world) for _ in 1:3]
                storm && GC.gc(step % 4 == 0)
                future = reduce_begin!(unit, w => gradients)
                gradients = futures = nothing
                storm && GC.gc(step % 4 == 0)
                wait(future)
                step!(optimizer)
            end
            gather(full -> copy(full[w]), unit)
        end
        @test results[1] != zeros(257) && all(isfinite, results[2])
    end
end

@testset "the hot path allocates one small object" begin
    alone() do ctx
        unit = Unit(ctx, "u", [Param(ctx, "w", 64)])
        once() = gather(full -> nothing, unit)
        once()
        # The least of several: now and then a call also releases what finalizers have queued.
        once_allocates() = @allocated once()
        once_allocates()
        @test minimum(once_allocates() for _ in 1:20) <= 96  # the gather, and what measuring boxes
    end
end
