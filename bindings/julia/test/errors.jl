# SPDX-License-Identifier: Apache-2.0
# Bad input gets a MeronError; nothing crashes.

@testset "an error has all its parts" begin
    error = error_of(() -> Plan("zero4"))
    @test error.status == -100
    @test error.name == "MERON_E_ARGUMENT"
    @test occursin("zero4", error.message)
    @test Meron.damage(error) == :call
    @test sprint(showerror, error) == "MERON_E_ARGUMENT: $(error.message)"
    @test status_of(() -> Meron.parse_plan("{\"preset\":")) == "MERON_E_PARSE"
    alone() do ctx
        Param(ctx, "w", 3)
        error = error_of(() -> Param(ctx, "w", 3))
        @test error.name == "MERON_E_DUPLICATE"
        @test error.rank == 0
        @test error.peer === nothing
        @test occursin("w", error.subject)
    end
end

# The error is the body's own, and no half of the values becomes a version.
@testset "an update whose body throws" begin
    alone() do ctx
        w, b = Param(ctx, "w", 8), Param(ctx, "b", 8)
        unit = Unit(ctx, "u", [w, b])
        @test_throws DivideError Meron.update(u -> div(1, 0), unit)
        @test gather(full -> collect(full[w]), unit) == zeros(8)
        view = Ref{Any}()
        @test_throws DivideError Meron.update(unit) do u
            view[] = shard_view(u, w)
            write!(u, w, ones(8))
            div(1, 0)
        end
        error = error_of(() -> gather(identity, unit))
        @test error.name == "MERON_E_ABORTED"
        @test occursin("rank 0 gave up the update of unit 'u'", error.message)
        @test status_of(() -> view[][1]) == "MERON_E_STALE"
    end
end

@testset "text" begin
    alone() do ctx
        for bad in ("a\0b", String(UInt8[0x61, 0xff, 0x62]), "", "x"^513)
            @test status_of(() -> Param(ctx, bad, 3)) == "MERON_E_ARGUMENT"
        end
        @test status_of(() -> Param(ctx, :name, 3)) == "MERON_E_ARGUMENT"
        @test Param(ctx, "größe", 3).name == "größe"
    end
    @test status_of(() -> alone(identity; job = "a\0")) == "MERON_E_ARGUMENT"
    @test status_of(() -> Meron.open(transport = "telegraph")) == "MERON_E_ARGUMENT"
    @test status_of(() -> Meron.open(rank = 2^40)) == "MERON_E_ARGUMENT"
    @test status_of(() -> Meron.open(timeout = -1)) == "MERON_E_ARGUMENT"
    @test status_of(() -> Meron.open(plan = 3)) == "MERON_E_ARGUMENT"
end

@testset "sizes and types" begin
    alone() do ctx
        @test status_of(() -> Param(ctx, "a", (3, -1))) == "MERON_E_ARGUMENT"
        @test status_of(() -> Param(ctx, "a", (2^62, 2^62))) == "MERON_E_ARGUMENT"
        @test status_of(() -> Param(ctx, "a", 2.5)) == "MERON_E_ARGUMENT"
        @test status_of(() -> Param(ctx, "a", 3; dtype = Int32)) == "MERON_E_ARGUMENT"
        @test status_of(() -> Unit(ctx, "u", Param[])) == "MERON_E_ARGUMENT"
        @test status_of(() -> gather(Unit[])) == "MERON_E_ARGUMENT"

        matrix = rand(Float32, 4, 4)
        world = ctx.world
        @test status_of(() -> allreduce!(view(matrix, 1:2, :), world)) == "MERON_E_ARGUMENT"
        @test status_of(() -> allreduce!(transpose(matrix), world)) == "MERON_E_ARGUMENT"
        @test status_of(() -> allreduce!(rand(Int32, 4), world)) == "MERON_E_ARGUMENT" # Int32
        @test status_of(() -> allreduce!(1:4, world)) == "MERON_E_ARGUMENT"
        @test status_of(() -> allreduce!(3.0f0, world)) == "MERON_E_ARGUMENT"
        @test status_of(() -> bcast!(["text"], world)) == "MERON_E_ARGUMENT"
        @test status_of(() -> bcast!(matrix, world; root = 4)) == "MERON_E_ARGUMENT"
        @test status_of(() -> allreduce!(matrix, world; op = :product)) == "MERON_E_ARGUMENT"
        # Whole columns lie side by side.
        @test allreduce!(view(matrix, :, 2:3), world) == matrix[:, 2:3]

        w = Param(ctx, "w", (4, 3))
        other = Param(ctx, "other", 3)
        unit = Unit(ctx, "u", [w])
        Meron.update(unit) do u
            @test status_of(() -> write!(u, w, zeros(3, 4))) == "MERON_E_ARGUMENT"
            @test status_of(() -> write!(u, w, zeros(ComplexF32, 4, 3))) == "MERON_E_ARGUMENT"
            @test status_of(() -> write!(u, w, 1)) == "MERON_E_ARGUMENT"
            @test status_of(() -> write!(u, other, zeros(3))) == "MERON_E_ARGUMENT"
        end
        small = zeros(Float32, 3, 3)
        for bad in (small, zeros(4, 3), view(zeros(Float32, 8, 3), 1:4, :))
            @test status_of(() -> gather(unit; into = w => bad)) == "MERON_E_ARGUMENT"
        end
        @test status_of(() -> gather(unit; mode = :none)) == "MERON_E_ARGUMENT"
        @test status_of(() -> adamw(unit; speed = 3)) == "MERON_E_ARGUMENT"
        @test status_of(() -> adamw(unit; beta1 = 1.0)) == "MERON_E_ARGUMENT"
        @test status_of(() -> adamw(Unit[])) == "MERON_E_ARGUMENT"
        gather(unit) do full
            @test status_of(() -> full[other]) == "MERON_E_ARGUMENT"
        end
        @test status_of(() -> Group(ctx, [0, 0])) == "MERON_E_ARGUMENT"
        @test status_of(() -> Group(ctx, [7])) == "MERON_E_ARGUMENT"
    end
end

@testset "after release, after close" begin
    plan = Plan("zero1")
    release(plan)
    release(plan)
    @test status_of(() -> Meron.json(plan)) == "MERON_E_STALE"

    ctx = Meron.open(rank = 0, world_size = 1, transport = "self")
    w = Param(ctx, "w", 4)
    unit = Unit(ctx, "u", [w])
    optimizer = adamw(unit)
    group = Group(ctx, [0])
    full = gather(unit)
    view_ = full[w]
    other = gather(unit)
    held = other[w]
    future = barrier_begin(ctx.world)
    release(full)
    @test status_of(() -> full[w]) == "MERON_E_STALE"
    @test status_of(() -> view_[1]) == "MERON_E_STALE"
    @test status_of(() -> sum(view_)) == "MERON_E_STALE"
    @test status_of(() -> view_ .+ 1) == "MERON_E_STALE"
    @test status_of(() -> allreduce!(view_, ctx.world)) == "MERON_E_STALE"
    @test !isvalid(view_) && isvalid(held)
    @test occursin("given back", repr(view_))
    @test occursin("given back", sprint(show, MIME"text/plain"(), view_))
    tensor = Meron.dlpack(other, w)
    release(tensor)
    @test status_of(() -> pointer(tensor)) == "MERON_E_STALE"

    closed = [
        () -> held[1],
        () -> sum(held),
        () -> Param(ctx, "x", 3),
        () -> Unit(ctx, "v", [w]),
        () -> gather(unit),
        () -> gather(identity, unit),
        () -> gradient_view(unit, w),
        () -> reduce!(unit),
        () -> reduced(unit, w),
        () -> discard!(unit),
        () -> Meron.update(identity, unit),
        () -> Meron.info(w),
        () -> Meron.info(unit),
        () -> Meron.info(optimizer),
        () -> step!(optimizer),
        () -> state_view(optimizer, w, :exp_avg),
        () -> barrier(group),
        () -> Meron.status(group),
        () -> allreduce!(zeros(Float32, 2), group),
        () -> wait(future),
        () -> other[w],
        () -> Meron.stats(ctx),
        () -> Meron.progress(ctx),
        () -> Meron.flight_record(ctx),
    ]
    close(ctx)
    close(ctx)
    @test !isopen(ctx)
    for use in closed
        @test status_of(use) == "MERON_E_CLOSED"
    end
    foreach(release, (w, unit, optimizer, group, full, other, future))
    # The raw layer refuses too.
    raw = LibMeron.meron_unit(12345)
    @test LibMeron.meron_unit_release(raw, C_NULL) == LibMeron.MERON_E_HANDLE
end

@testset "callbacks" begin
    struct Enough <: Exception end
    ctx = Meron.open(; rank = 0, world_size = 1, transport = "self", should_stop = () -> true)
    @test isopen(ctx)
    close(ctx)
    # No other rank arrives: should_stop ends the open.
    begun = time()
    lonely(stop) = Meron.open(;
        rank = 0, world_size = 2, transport = "local", job = "lonely", timeout = 10, should_stop = stop)
    @test status_of(() -> lonely(() -> time() - begun > 0.3)) == "MERON_E_CANCELLED"
    @test_throws Enough lonely(() -> throw(Enough()))
    @test time() - begun < 8

    # An exception of a log function is reported, and does not propagate.
    seen = Tuple{Symbol,String}[]
    callbacks = Meron.Callbacks((level, message) -> push!(seen, (level, message)), nothing)
    message = "wörds"
    deliver() = GC.@preserve callbacks message ccall(
        @cfunction(Meron.on_log, Cvoid, (Ptr{Cvoid}, Int32, Ptr{UInt8}, Csize_t)), Cvoid,
        (Ptr{Cvoid}, Int32, Ptr{UInt8}, Csize_t), pointer_from_objref(callbacks),
        LibMeron.MERON_LOG_WARNING, message, sizeof(message))
    deliver()
    @test seen == [(:warning, message)]
    callbacks.log = (_, _) -> throw(Enough())
    @test_logs (:error, r"log function of a context failed") deliver()
end
