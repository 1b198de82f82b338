# SPDX-License-Identifier: Apache-2.0
# Checkpoints: what is saved is loaded, and what does not fit changes nothing.

function with_model(body, folder)
    alone() do ctx
        weight = Param(ctx, "weight", (5, 3))
        layer = Unit(ctx, "layer", [weight])
        body(ctx, weight, layer, adamw(layer))
    end
end

fill_(layer, weight, value) = update(u -> write!(u, weight, fill(Float32(value), 5, 3)), layer)
values_(layer, weight) = gather(full -> copy(parent(full[weight])), layer)

@testset "checkpoints" begin
    mktempdir() do folder
        with_model(folder) do ctx, weight, layer, optimizer
            fill_(layer, weight, 1.5)
            set_steps!(optimizer, 7)
            saving = save_checkpoint_begin(
                ctx, folder, "step-42", optimizer; step = 42, extra = "{\"epoch\": 3}")
            @test wait_copied(ctx)
            @test wait(saving)
            @test !save_progress(ctx).saving
            @test status_of(() -> save_checkpoint(ctx, folder, "step-42")) == "MERON_E_DUPLICATE"
            @test status_of(() -> save_checkpoint(ctx, folder, "a/b")) == "MERON_E_ARGUMENT"
            @test status_of(() -> save_checkpoint(ctx, folder, "b"; step = -1)) == "MERON_E_ARGUMENT"
        end
        loaded = with_model(folder) do ctx, weight, layer, optimizer
            @test status_of(() -> load_checkpoint!(ctx, folder)) == "MERON_E_ARGUMENT"
            @test status_of(() -> load_checkpoint!(ctx, folder, "none", optimizer)) ==
                  "MERON_E_NOT_FOUND"
            @test all(iszero, values_(layer, weight))
            loaded = load_checkpoint!(ctx, folder, nothing, optimizer)
            @test all(==(1.5f0), values_(layer, weight))
            @test info(optimizer).steps == 7
            @test info(loaded).step == 42 && info(loaded).world == 1
            @test Meron.path(loaded) == joinpath(folder, "step-42")
            @test occursin("epoch", Meron.extra(loaded))
            @test isempty(Meron.missing_states(loaded)) && isempty(Meron.unexpected_tensors(loaded))
            @test occursin("step 42", repr(loaded))
            loaded
        end
        @test info(loaded).step == 42 # it outlives its context
        release(loaded)
        release(loaded)
        @test status_of(() -> info(loaded)) == "MERON_E_STALE"
        @test occursin("released", repr(loaded))
    end
    @test status_of(() -> CheckpointTensor("a", ["text"])) == "MERON_E_ARGUMENT"
    @test status_of(() -> CheckpointTensor("a", zeros(4, 4)[1:2:3, :]')) == "MERON_E_ARGUMENT"
    @test status_of(() -> CheckpointTensor("a", zeros(4); first = 0)) == "MERON_E_ARGUMENT"
end
