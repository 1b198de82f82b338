# SPDX-License-Identifier: Apache-2.0
# Arrays: column order, element types, views in place.

@testset "sizes are C's shapes reversed" begin
    alone() do ctx
        w = Param(ctx, "w", (4, 3, 2))
        scalar = Param(ctx, "scalar", ())
        empty = Param(ctx, "empty", (3, 0))
        unit = Unit(ctx, "u", [w, scalar, empty])
        @test Meron.info(w).shape == (2, 3, 4)
        @test size(w) == (4, 3, 2) && length(w) == 24 && ndims(w) == 3 && eltype(w) == Float32
        @test shard_range(w) == 1:24
        values = reshape(Float32.(1:24), 4, 3, 2)
        Meron.update(unit) do u
            write!(u, w, values)
            write!(u, scalar, fill(7.0f0))
            @test shard_view(u, w) == vec(values)
        end
        gather(unit) do full
            @test full[w] == values
            @test strides(full[w]) == strides(values)
            @test full[w][2, 3, 1] == values[2, 3, 1]
            @test full[scalar][] == 7
            @test size(full[empty]) == (3, 0) && sum(full[empty]) == 0
            @test Meron.unsafe_array(full[w])[6] == 6
            address(v) = pointer(Meron.unsafe_array(v))
            @test address(full[w]) == address(full[w]) # the same memory: no copy
        end
    end
end

@testset "element types" begin
    @test BFloat16(1.5) + BFloat16(2) == BFloat16(3.5)
    @test isnan(BFloat16(NaN32)) && isinf(BFloat16(Inf)) && BFloat16(3.0f38) < BFloat16(Inf)
    @test Float32(BFloat16(1 + 2.0f0^-8)) == 1.0f0 # a tie goes to even
    @test Float32(BFloat16(1 + 3 * 2.0f0^-8)) == 1 + 2.0f0^-6
    @test Int(BFloat16(3)) == 3 && -BFloat16(1) == BFloat16(-1) && BFloat16(2) isa AbstractFloat
    @test BFloat16(1 + 2.0^-8 + 2.0^-40) == 1 + 2.0^-7 # rounded once
    x = BFloat16(1.5)
    @test (sqrt(x), exp(x), x^2, x^0.5f0) == (BFloat16(sqrt(1.5)), BFloat16(exp(1.5)), 2.25, sqrt(1.5f0))
    @test (eps(BFloat16), eps(x), eps(BFloat16(4))) == (2^-7, 2^-7, 2^-5) && !(BFloat16(256) == 257)
    @test (typemax(BFloat16), floatmin(BFloat16)) == (Inf, 2.0^-126) && isfinite(floatmax(BFloat16))
    @test (round(x), floor(x), ceil(Int, x), trunc(Int, -x), round(Int, x)) == (2, 1, 2, -1, 2)
    @test isinteger(BFloat16(3)) && !isinteger(x) && hash(x) == hash(1.5) && isequal(x, 1.5)
    @test nextfloat(x) - x == eps(x) && prevfloat(BFloat16(0)) < 0 && nextfloat(typemax(BFloat16)) == Inf
    @test parse(BFloat16, "1.5") == x && tryparse(BFloat16, "x") === nothing && eval(Meta.parse("$x")) == x
    @test all(y -> 0 <= y < 1, rand(BFloat16, 100)) && length(unique(rand(BFloat16, 100))) > 20
    @test randn!(zeros(BFloat16, 3)) isa Vector{BFloat16} && BFloat16(1//2) + 1//2 == 1 == BFloat16(big"1.0")
    @test x * π ≈ 1.5π && abs(-x) == x && signbit(BFloat16(-0.0)) && isapprox(x, BFloat16(1.508))
    @test (Bool(BFloat16(1)), BigInt(BFloat16(3)), widen(BFloat16)) == (true, 3, Float32)
    @test status_of(() -> Meron.code_of(Int16)) == "MERON_E_ARGUMENT"
    alone() do ctx
        for T in (Float32, BFloat16, Float16)
            @test LibMeron.meron_dtype_size(Meron.code_of(T)) == sizeof(T)
            p = Param(ctx, "p$T", (3, 2); dtype = T)
            unit = Unit(ctx, "u$T", [p])
            for values in (T.(reshape(1:6, 3, 2)), reshape(1:6, 3, 2), rand(Bool, 3, 2), rand(3, 2))
                Meron.update(u -> write!(u, p, values), unit)
                expected = T.(Float32.(values))
                gather(full -> (@test full[p] == expected; @test eltype(full[p]) == T), unit)
            end
            # Arrays that are not contiguous are copied.
            wide = rand(Float32, 2, 3)
            Meron.update(u -> write!(u, p, transpose(wide)), unit)
            gather(full -> (@test full[p] == T.(permutedims(wide))), unit)
        end
        for T in (Float32, BFloat16, Float16)
            @test allreduce!(T[1, 2], ctx.world; op = :mean) == T[1, 2]
        end
        @test bcast!(Int8[1, 2, 3], ctx.world) == Int8[1, 2, 3]
    end
end

# As that of the package BFloat16s, or Core's.
module OtherFloats
primitive type BFloat16 <: AbstractFloat 16 end
end

@testset "bfloat16s of others" begin
    alone() do ctx
        p = Param(ctx, "p", 3; dtype = OtherFloats.BFloat16)
        unit = Unit(ctx, "u", [p])
        theirs = reinterpret(OtherFloats.BFloat16, BFloat16[1, 2, 3])
        Meron.update(u -> write!(u, p, theirs), unit)
        gather(unit) do full
            @test eltype(full[p]) === OtherFloats.BFloat16
            @test reinterpret(UInt16, full[p]) == reinterpret(UInt16, theirs)
        end
        mine = zeros(BFloat16, 3)
        gather(full -> (@test mine == 1:3), unit; into = p => mine)
        @test eltype(flats(unit)[1]) === OtherFloats.BFloat16
        @test allreduce!(copy(theirs), ctx.world) == theirs
        @test CheckpointTensor("t", theirs) isa CheckpointTensor
    end
end

function sum_in_one_function(full, w) # as a trainer writes it
    v, sum = full[w], 0.0f0
    for i in eachindex(v)
        sum += v[i]
    end
    return sum
end

@testset "the compiler knows a view's type" begin
    alone() do ctx
        w = Param(ctx, "w", (50, 40))
        @test w isa Param{Float32,2} && @inferred(size(w)) == (50, 40) && @inferred(eltype(w)) == Float32
        unit = Unit(ctx, "u", [w])
        full = gather(unit)
        @test @inferred(sum_in_one_function(full, w)) == 0
        sum_in_one_function(full, w)
        @test @allocated(sum_in_one_function(full, w)) < 2000 # 2,000 elements are not boxed
    end
end

@testset "views are arrays" begin
    alone() do ctx
        w = Param(ctx, "w", (5, 4))
        unit = Unit(ctx, "u", [w])
        values = rand(Float32, 5, 4)
        Meron.update(u -> write!(u, w, values), unit)
        gather(unit) do full
            v = full[w]
            @test v isa ReadOnlyView{Float32,2}
            @test v * ones(Float32, 4) ≈ values * ones(Float32, 4) # by way of BLAS
            @test v' * v ≈ values' * values
            @test v .+ 1 == values .+ 1
            @test copy(v) isa Matrix{Float32} && copy(v) == values
            @test collect(v) == values && v[:, 2] == values[:, 2] && sum(v) ≈ sum(values)
            @test Meron.unsafe_array(v) isa Matrix{Float32}
            for a in (v, v', transpose(v), values'), b in (v, v', transpose(v), values, values')
                size(a, 2) == size(b, 1) && @test a * b ≈ Array(a) * Array(b)
                size(a, 2) == 5 && @test a * v[:, 1] ≈ Array(a) * values[:, 1]
            end
            @test mul!(ones(Float32, 5), v, vec(v)[1:4], 2, 1) ≈ 2 .* (values * values[1:4]) .+ 1
            @test view(v, 2:3, :) .* 2 == 2 .* values[2:3, :] && maximum(view(v, :, 2:2)) == maximum(values[:, 2])
            @test status_of(() -> allreduce!(v, ctx.world)) == "MERON_E_ARGUMENT"
        end
        Meron.update(unit) do u
            v = shard_view(u, w)
            @test v isa TensorView{Float32,1}
            v .= 3
            v[1] = 4
            view(v, 2:4) .= view(v, 1:3) # which share memory
            @test v[1:5] == [4, 4, 3, 3, 3]
            v[2] = 3
        end
        gather(full -> (@test full[w][1] == 4 && all(full[w][2:end] .== 3)), unit)
    end
end

@testset "gathers into flats" begin
    alone() do ctx
        w, b = Param(ctx, "w", (3, 2)), Param(ctx, "b", 5; dtype = BFloat16)
        s = Param(ctx, "s", ())
        unit = Unit(ctx, "u", [w, b, s])
        values = rand(Float32, 3, 2)
        Meron.update(u -> (write!(u, w, values); write!(u, b, 1:5); write!(u, s, fill(7.0f0))), unit)
        of_f32, of_bf16 = flats(unit)
        @test (eltype(of_f32), length(of_f32), of_f32.frozen) == (Float32, 64, false)
        @test (eltype(of_bf16), size(of_bf16), of_bf16.params) == (BFloat16, (32,), [b])
        @test flat_range(w) == 1:6 && flat_range(s) == 33:33 && flat_range(b) == 1:5
        @test occursin("1 of", sprint(show, of_f32))
        mine = fill(-1.0f0, 64)
        gather(unit; into = of_f32 => mine) do full
            @test full[w] == values && full[s][] == 7
            @test parent(parent(full[w])) === mine && mine[33] == 7
            @test status_of(() -> full[b]) == "MERON_E_ARGUMENT"
        end
        half = zeros(BFloat16, 5)
        gather(unit; into = (of_f32 => mine, b => half)) do full
            @test full[b] === half == BFloat16.(1:5)
        end
        for bad in (zeros(Float32, 63), zeros(64), view(zeros(Float32, 128), 1:2:128))
            @test status_of(() -> gather(unit; into = of_f32 => bad)) == "MERON_E_ARGUMENT"
        end
        both = [of_f32 => mine, w => zeros(Float32, 3, 2)]
        @test status_of(() -> gather(unit; into = both)) == "MERON_E_DUPLICATE"
        other = Unit(ctx, "v", [Param(ctx, "x", 2)])
        @test status_of(() -> gather(other; into = of_f32 => mine)) == "MERON_E_ARGUMENT"
        @test isempty(Meron.in_flight)
    end
end

@testset "gathers into arrays" begin
    alone() do ctx
        w, b = Param(ctx, "w", (3, 2)), Param(ctx, "b", 5; dtype = BFloat16)
        unit = Unit(ctx, "u", [w, b])
        other = Unit(ctx, "v", [Param(ctx, "x", 2)])
        values = rand(Float32, 3, 2)
        Meron.update(u -> (write!(u, w, values); write!(u, b, 1:5)), [unit, other])
        mine = zeros(Float32, 3, 2)
        full = gather(unit; into = w => mine)
        @test mine == values && full[w] === mine
        @test status_of(() -> full[b]) == "MERON_E_ARGUMENT"
        release(full)
        copy_ = gather([unit, other]; mode = :copy)
        array = copy_[b]
        release(copy_)
        @test array == BFloat16.(1:5)
        begun = gather_begin(unit; into = Dict(w => mine))
        @test wait(begun; timeout = 1) && isready(begun)
        gather(unit; mode = :copy) do whole
            whole[w] .= 0 # mine alone
        end
        gather(f -> (@test f[w] == values), unit)
        @test isempty(Meron.in_flight)
    end
end
