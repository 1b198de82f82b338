# SPDX-License-Identifier: Apache-2.0
# Names and texts: what the package exports, and what its objects print.

using Distributed

@testset "exported names are of no library of Julia's own" begin
    own = setdiff(names(Meron), (:Meron,))
    for other in (Base, Distributed, LinearAlgebra, Random, Test)
        @test isempty(intersect(own, names(other)))
    end
    # Names that many packages have.
    @test isempty(intersect(own, (:Future, :BFloat16, :info, :update, :part, :open, :close, :status)))
    @test isempty(intersect(own, Meron.PUBLIC))
    @test all(name -> isdefined(Meron, name), (own..., Meron.PUBLIC...))
end

@testset "objects print one line" begin
    alone() do ctx
        w = Param(ctx, "w", (2, 3))
        unit = Unit(ctx, "u", [w])
        optimizer = adamw(unit)
        writing = Meron.update_begin(unit)
        @test repr(writing) == "Meron.Update(open)"
        Meron.publish(writing)
        full = gather(unit)
        future = barrier_begin(ctx.world)
        io = Io()
        buffer = Meron.pinned(io, 100)
        objects = (ctx, ctx.world, w, unit, optimizer, writing, full, future, io, buffer,
            Schedule(unit), Meron.dlpack(full, w), CheckpointTensor("t", zeros(3)), flats(unit)[1],
            ParamTree(ctx, "m", (zeros(2),)))
        for object in objects
            text = repr(object)
            @test startswith(text, "Meron.") && length(text) < 160 && !occursin('\n', text)
            @test !occursin("circular", text) && repr("text/plain", object) == text
        end
        for object in (optimizer, full, future, buffer)
            @test deepcopy(object) === object
            release(object)
            @test occursin(r"released|ended", repr(object))
        end
        @test repr(writing) == "Meron.Update(ended)"
        close(io)
    end
end

@testset "a released context is closed" begin
    ctx = Meron.open(; rank = 0, world_size = 1, transport = "self")
    w = Param(ctx, "w", 4)
    v = gather(Unit(ctx, "u", [w]))[w]
    release(ctx)
    @test !isopen(ctx) && status_of(() -> v[1]) == "MERON_E_CLOSED"
end
