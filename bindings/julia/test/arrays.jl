# SPDX-License-Identifier: Apache-2.0
# Arrays: column order, element types, views in place.

@testset "sizes are C's shapes reversed" begin
    alone() do ctx
        w = Param(ctx, "w", (4, 3, 2))
        scalar = Param(ctx, "scalar", ())
        empty = Param(ctx, "empty", (3, 0))
        unit = Unit(ctx, "u", [w, scalar, empty])
        @test info(w).shape == (2, 3, 4)
        @test size(w) == (4, 3, 2) && length(w) == 24 && ndims(w) == 3 && eltype(w) == Float32
        @test shard_range(w) == 1:24
        values = reshape(Float32.(1:24), 4, 3, 2)
        update(unit) do u
            write!(u, w, values)
            write!(u, scalar, fill(7.0f0))
            @test part(u, w) == vec(values)
        end
        gather(unit) do full
            @test full[w] == values
            @test strides(full[w]) == strides(values)
            @test full[w][2, 3, 1] == values[2, 3, 1]
            @test full[scalar][] == 7
            @test size(full[empty]) == (3, 0) && sum(full[empty]) == 0
            @test unsafe_load(pointer(full[w]), 6) == 6
            @test pointer(full[w]) == pointer(full[w]) # the same memory: no copy
        end
    end
end

@testset "element types" begin
    @test BFloat16(1.5) + BFloat16(2) == BFloat16(3.5)
    @test isnan(BFloat16(NaN32)) && isinf(BFloat16(Inf)) && BFloat16(3.0f38) < BFloat16(Inf)
    @test Float32(BFloat16(1 + 2.0f0^-8)) == 1.0f0 # a tie goes to even
    @test Float32(BFloat16(1 + 3 * 2.0f0^-8)) == 1 + 2.0f0^-6
    @test Int(BFloat16(3)) == 3 && -BFloat16(1) == BFloat16(-1) && BFloat16(2) isa AbstractFloat
    alone() do ctx
        for T in (Float32, BFloat16, Float16)
            @test LibMeron.meron_dtype_size(Meron.code_of(T)) == sizeof(T)
            p = Param(ctx, "p$T", (3, 2); dtype = T)
            unit = Unit(ctx, "u$T", [p])
            for values in (T.(reshape(1:6, 3, 2)), reshape(1:6, 3, 2), rand(Bool, 3, 2), rand(3, 2))
                update(u -> write!(u, p, values), unit)
                expected = T.(Float32.(values))
                gather(full -> (@test full[p] == expected; @test eltype(full[p]) == T), unit)
            end
            # Arrays that are not contiguous are copied.
            wide = rand(Float32, 2, 3)
            update(u -> write!(u, p, transpose(wide)), unit)
            gather(full -> (@test full[p] == T.(permutedims(wide))), unit)
        end
        for T in (Float32, BFloat16, Float16)
            @test allreduce!(T[1, 2], ctx.world; op = :mean) == T[1, 2]
        end
        @test bcast!(Int8[1, 2, 3], ctx.world) == Int8[1, 2, 3]
    end
end

@testset "views are arrays" begin
    alone() do ctx
        w = Param(ctx, "w", (5, 4))
        unit = Unit(ctx, "u", [w])
        values = rand(Float32, 5, 4)
        update(u -> write!(u, w, values), unit)
        gather(unit) do full
            v = full[w]
            @test v isa DenseArray{Float32,2}
            @test v * ones(Float32, 4) ≈ values * ones(Float32, 4) # by way of BLAS
            @test v' * v ≈ values' * values
            @test v .+ 1 == values .+ 1
            @test copy(v) isa Matrix{Float32} && copy(v) == values
            @test collect(v) == values && v[:, 2] == values[:, 2] && sum(v) ≈ sum(values)
            @test parent(v) isa Matrix{Float32} && parent(v) == values
            @test !Meron.writable(v)
            for write_ in (
                () -> v[1] = 1, () -> v .= 0, () -> fill!(v, 0), () -> copyto!(v, values),
                () -> v .+= values)
                @test status_of(write_) == "MERON_E_STATE"
            end
            @test status_of(() -> allreduce!(v, ctx.world)) == "MERON_E_ARGUMENT"
        end
        update(unit) do u
            v = part(u, w)
            @test Meron.writable(v)
            v .= 3
            v[1] = 4
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
        update(u -> (write!(u, w, values); write!(u, b, 1:5); write!(u, s, fill(7.0f0))), unit)
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
        update(u -> (write!(u, w, values); write!(u, b, 1:5)), [unit, other])
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
