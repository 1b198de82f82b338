# SPDX-License-Identifier: Apache-2.0
# Parameters in nested named tuples, as Lux keeps them.

struct DenseLayer # as Flux has them
    weight::Matrix{Float32}
    bias::Vector{Float32}
end

alone() do ctx
    values = (
        layer_1 = (weight = rand(Float32, 3, 2), bias = zeros(Float32, 3), activation = tanh),
        pooling = NamedTuple(),
        layer_2 = ((scale = ones(2),), nothing, rand(Float32, 4)),
    )
    tree = ParamTree(ctx, "model", values)
    @test [unit.name for unit in tree.units] == ["model.layer_1", "model.layer_2"]
    @test tree.params.layer_1.weight.name == "model.layer_1.weight"
    @test size(tree.params.layer_1.weight) == (3, 2)
    @test tree.params.layer_1.activation === tanh
    gather(tree) do whole
        @test whole.layer_1.weight == values.layer_1.weight
        @test whole.layer_2[1].scale == [1, 1] && whole.layer_2[2] === nothing
        @test propertynames(whole) == propertynames(values)
    end
    gather(tree, :layer_2) do layer
        @test layer[3] == values.layer_2[3]
    end
    optimizer = adamw(tree.units; learning_rate = 0.1, weight_decay = 0.0)
    gradients = (
        layer_1 = (weight = ones(3, 2), bias = nothing, activation = nothing),
        pooling = nothing,
        layer_2 = ((scale = ones(2),), nothing, ones(4)),
    )
    reduce!(tree, gradients)
    step!(optimizer)
    gather(tree) do whole
        @test whole.layer_1.weight ≈ values.layer_1.weight .- 0.1f0
        @test whole.layer_1.bias == values.layer_1.bias
    end
    reduce!(tree, (layer_1 = nothing, layer_2 = nothing))
    @test status_of(() -> gather(identity, tree, :layer_9)) == "MERON_E_ARGUMENT"
    @test status_of(() -> ParamTree(ctx, "x", (a = 1,))) == "MERON_E_ARGUMENT"
    @test status_of(() -> ParamTree(ctx, "x", ones(3))) == "MERON_E_ARGUMENT"
    @test repr(tree) == "Meron.ParamTree(2 units, 4 params)"

    # Arrays that would not be trained are refused before anything is registered.
    dense, table = DenseLayer(ones(2, 2), ones(2)), ones(2)
    for (hidden, place) in (
        (dense, "x.b.weight"), ([dense], "x.b[1].weight"), (Ref(table), "x.b.x"),
        (Dict(:w => table), "x.b[:w]"), (x -> x .* table, "x.b.table"), ([table, table], "x.b[1]"))
        error = error_of(() -> ParamTree(ctx, "x", (a = (ones(3),), b = hidden)))
        @test error.name == "MERON_E_ARGUMENT" && occursin("its array $place would", error.message)
    end
    @test status_of(() -> ParamTree(ctx, "x", (ones(ComplexF32, 3),))) == "MERON_E_ARGUMENT"
    x = ParamTree(ctx, "x", (a = ones(3), b = (tanh, "relu", 1:2, nothing, Dict(:n => [1, 2]), sum)))
    @test length(x.units) == 2
    @test status_of(() -> reduce!(tree, (layer_1 = (weight = ones(3, 2),), layer_2 = nothing))) ==
          "MERON_E_ARGUMENT"
end
