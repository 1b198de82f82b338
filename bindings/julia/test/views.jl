# SPDX-License-Identifier: Apache-2.0
# Views: nothing writes to what this rank alone must not write, and nothing reads what has ended.

const SIDE = 24
ones_() = ones(Float32, SIDE, SIDE)

# Ways to write to an array.
const WRITES = (
    v -> (v[1] = 1),
    v -> (v .= 1),
    v -> fill!(v, 1),
    v -> copyto!(v, ones_()),
    v -> map!(x -> 1.0f0, v, v),
    v -> copyto!(v, 1:SIDE^2),
    v -> copyto!(v, 1, ones(Float32, SIDE^2), 1, SIDE),
    v -> (v[:] = ones(Float32, SIDE^2)),
    v -> (v[:, 1] = ones(Float32, SIDE)),
    v -> (v[:, 1] .= 0),
    v -> (view(v, 1:2, :) .= 0),
    v -> rand!(v),
    v -> randn!(v),
    v -> sort!(view(v, :, 1)),
    v -> (vec(v) .= 1),
    v -> (reshape(v, 2, :)[1] = 1),
    v -> (v'[1] = 1),
    v -> (reinterpret(UInt32, v)[1] = 1),
    v -> lmul!(2.0f0, v),
    v -> rmul!(v, 2.0f0),
    v -> mul!(v, ones_(), ones_()),
    v -> mul!(v', ones_(), ones_()),
    v -> mul!(v, v, v),
    v -> mul!(view(v, :, 1), ones_(), ones(Float32, SIDE)),
    v -> BLAS.gemm!('N', 'N', 1.0f0, ones_(), ones_(), 0.0f0, v),
    v -> axpy!(1.0f0, ones_(), v),
    v -> transpose!(v, ones_()),
    v -> permutedims!(v, ones_(), (2, 1)),
    v -> cumsum!(v, ones_(), dims = 1),
    v -> sum!(v, ones_()),
    v -> (v .+= 1),
    v -> reverse!(vec(v)),
    v -> circshift!(v, ones_(), (1, 0)),
    v -> read!(IOBuffer(zeros(UInt8, 4 * SIDE^2)), v),
    v -> unsafe_store!(pointer(v), 1.0f0),
)

# Ways to read what an array is part of: how it is made while it is valid, and how it is read.
const READS = (
    (identity, x -> x[1]),
    (identity, x -> @inbounds(x[1])),
    (identity, sum),
    (identity, copy),
    (identity, x -> x .+ 1),
    (identity, x -> x * ones_()),
    (identity, x -> x * ones(Float32, SIDE)),
    (identity, x -> ones_() * x'),
    (identity, x -> norm(x)),
    (identity, x -> x == ones_()),
    (identity, deepcopy),
    (v -> view(v, :, 1:8), sum),
    (v -> view(v, :, 1:8), x -> x .+ 1),
    (v -> view(v, :, 1:8), x -> x[1]),
    (v -> view(v, :, 1:8), copy),
    (v -> view(v, :, 1:8), x -> ones_() * x),
    (v -> view(v, :, 1), x -> @inbounds(x[1])),
    (transpose, sum),
    (adjoint, x -> x * ones_()),
    (vec, sum),
    (v -> reshape(v, 2, :), sum),
    (v -> view(reshape(v, 2, :), 1, :), x -> x .+ 1),
    (v -> reinterpret(UInt32, v), x -> x[1]),
    (v -> PermutedDimsArray(v, (2, 1)), x -> x[1]),
    (v -> collect(eachcol(v)), x -> sum(x[1])),
    (Iterators.Stateful, popfirst!),
    (v -> Broadcast.broadcasted(+, v, 1), Broadcast.materialize),
    (v -> (x for x in v), sum),
)

for plan in ("zero1", "zero3")
    @testset "$plan" begin
        ctx = Meron.open(rank = 0, world_size = 1, transport = "self", timeout = DEADLINE, plan = plan)
        w = Param(ctx, "w", (SIDE, SIDE))
        unit = Unit(ctx, "u", [w])
        values = rand(Float32, SIDE, SIDE)
        Meron.update(u -> write!(u, w, values), unit)
        full = gather(unit)
        v = full[w]
        @test v isa ReadOnlyView{Float32,2} && !(v isa StridedArray) && !Meron.writable(v)
        for (number, write_) in enumerate(WRITES)
            @test (number, status_of(() -> write_(v))) == (number, "MERON_E_STATE")
        end
        @test v == values

        for end_ in (release, full -> close(ctx))
            full = gather(unit)
            made = [make(full[w]) for (make, _) in READS]
            foreach(((array, (_, read)),) -> read(array), zip(made, READS))
            end_(full)
            name = isopen(ctx) ? "MERON_E_STALE" : "MERON_E_CLOSED"
            for (number, (array, (_, read))) in enumerate(zip(made, READS))
                @test (number, status_of(() -> read(array))) == (number, name)
            end
        end
    end
end
