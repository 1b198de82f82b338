# SPDX-License-Identifier: Apache-2.0
# Checkpoints: what is saved is loaded, and what does not fit changes nothing.

function with_model(body, folder)
    alone() do ctx
        weight = Param(ctx, "weight", (5, 3))
        layer = Unit(ctx, "layer", [weight])
        body(ctx, weight, layer, adamw(layer))
    end
end

fill_(layer, weight, value) = Meron.update(u -> write!(u, weight, fill(Float32(value), 5, 3)), layer)
values_(layer, weight) = gather(full -> copy(full[weight]), layer)

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
            @test Meron.info(optimizer).steps == 7
            @test Meron.info(loaded).step == 42 && Meron.info(loaded).world == 1
            @test Meron.path(loaded) == joinpath(folder, "step-42")
            @test occursin("epoch", Meron.extra(loaded))
            @test isempty(Meron.missing_states(loaded)) && isempty(Meron.unexpected_tensors(loaded))
            @test occursin("step 42", repr(loaded))
            loaded
        end
        alone() do ctx
            other = Param(ctx, "other", (5, 3))
            Unit(ctx, "layer", [other])
            @test status_of(() -> load_checkpoint!(ctx, folder; values_only = true)) ==
                  "MERON_E_ARGUMENT"
            partial = load_checkpoint!(ctx, folder; values_only = true, lenient = true)
            @test Meron.missing_states(partial) == ["other"]
            @test Meron.unexpected_tensors(partial) == ["weight"]
        end
        @test Meron.info(loaded).step == 42 # it outlives its context
        release(loaded)
        release(loaded)
        @test status_of(() -> Meron.info(loaded)) == "MERON_E_STALE"
        @test occursin("released", repr(loaded))
    end
    @test status_of(() -> CheckpointTensor("a", ["text"])) == "MERON_E_ARGUMENT"
    @test status_of(() -> CheckpointTensor("a", zeros(4, 4)[1:2:3, :]')) == "MERON_E_ARGUMENT"
    @test status_of(() -> CheckpointTensor("a", zeros(4); first = 0)) == "MERON_E_ARGUMENT"
end

# Calls that read or write the states of all optimizers.
beside_states(ctx, folder, optimizer) = (
    save = () -> save_checkpoint(ctx, folder, "next", optimizer),
    export_ = () -> export_model(ctx, joinpath(folder, "exported")),
    load = () -> load_checkpoint!(ctx, folder, "first", optimizer),
)

@testset "a save, an export and a load end views of states" begin
    for call in (:save, :export_, :load)
        mktempdir() do folder
            with_model(folder) do ctx, weight, layer, optimizer
                state_view(optimizer, weight, :exp_avg) .= 1
                save_checkpoint(ctx, folder, "first", optimizer)
                average = state_view(optimizer, weight, :exp_avg)
                master = state_view(optimizer, weight, :master) # the param itself: read-only
                getfield(beside_states(ctx, folder, optimizer), call)()
                @test !isvalid(average) && isvalid(master) == (call !== :load)
                others = zeros(Float32, 15)
                writes = (() -> average .= 2, () -> average[1] = 2, () -> copyto!(average, others))
                for write in writes
                    error = error_of(write)
                    @test error.name == "MERON_E_STALE" && occursin("view of a state", error.message)
                end
                @test all(==(1), read_state(optimizer, weight, :exp_avg))
                @test all(==(1), state_view(optimizer, weight, :exp_avg))
            end
        end
    end
end

@testset "a state that is written during a save is not seen" begin
    alone() do ctx
        count = 1 << 22
        weight = Param(ctx, "weight", count)
        optimizer = adamw(Unit(ctx, "layer", [weight]))
        state_view(optimizer, weight, :exp_avg) .= 1
        mktempdir() do folder
            saving = save_checkpoint_begin(ctx, folder, "a", optimizer)
            state_view(optimizer, weight, :exp_avg) .= 2
            wait(saving)
            saved = open_checkpoint(folder, "a")
            @test all(==(1), read!(saved, "weight", zeros(Float32, count); kind = "exp_avg"))
        end
    end
end

@testset "a save leaves gradients alone; nothing is loaded beside them, or saved in an update" begin
    mktempdir() do folder
        with_model(folder) do ctx, weight, layer, optimizer
            save_checkpoint(ctx, folder, "first", optimizer)
            gradient_view(layer, weight) .= 1
            save_checkpoint(ctx, folder, "second", optimizer)
            error = error_of(() -> load_checkpoint!(ctx, folder, "second", optimizer))
            @test error.name == "MERON_E_STATE" && occursin("gradient of unit 'layer'", error.message)
            reduce!(layer)
            @test all(==(1), reduced(layer, weight))
            discard!(layer)
            Meron.update(layer) do writing
                shard_view(writing, weight) .= 1
                for call in beside_states(ctx, folder, optimizer)
                    error = error_of(call)
                    @test error.name == "MERON_E_STATE" && occursin("'layer'", error.message)
                end
            end
        end
    end
end
