# SPDX-License-Identifier: Apache-2.0
# Gradients, optimizers, groups, plans: each public function does what it says.

@testset "a step under $plan" for plan in ("zero0", "zero3")
    alone(; plan = plan) do ctx
        w = Param(ctx, "w", (3, 2))
        unit = Unit(ctx, "u", [w])
        optimizer = adamw(unit; learning_rate = 0.1, weight_decay = 0.0)
        place = gradient_view(unit, w)
        place .+= 2
        future = reduce_begin!(unit; divisor = 2)
        @test wait(future)
        @test isready(future)
        @test !isvalid(place)
        @test Meron.info(unit).reduced
        sums = reduced(unit, w)
        @test sums == ones(Float32, 6)
        discard!(unit)
        @test !isvalid(sums) && !Meron.info(unit).reduced

        reduce!(unit, [w => ones(3, 2)]; boundary = false)
        reduce!(unit, Dict(w => ones(Float16, 3, 2)); op = :sum)
        step!(optimizer)
        known = Meron.info(optimizer)
        @test known.steps == 1 && known.norm ≈ 2 * sqrt(6) && known.learning_rate == 0.1
        gather(full -> (@test full[w] ≈ fill(-0.1f0, 3, 2)), unit)
        @test state_view(optimizer, w, :exp_avg) ≈ fill(0.2f0, 6)
        @test length(state_view(optimizer, w, :exp_avg_sq)) == 6
        @test state_view(optimizer, w, :master) ≈ fill(-0.1f0, 6)
        @test status_of(() -> state_view(optimizer, w, :momentum)) == "MERON_E_ARGUMENT"
        set_learning_rate!(optimizer, 0.5)
        @test Meron.info(optimizer).learning_rate == 0.5
        set_steps!(optimizer, 7)
        @test Meron.info(optimizer).steps == 7
        @test status_of(() -> set_steps!(optimizer, -1)) == "MERON_E_ARGUMENT"
        @test status_of(() -> set_steps!(optimizer, 2^53 + 1)) == "MERON_E_ARGUMENT"
        @test status_of(() -> step!(optimizer)) == "MERON_E_STATE" # nothing is reduced
        gradient_view(unit, w; overwrite = true) .= NaN32
        reduce!(unit)
        @test status_of(() -> step!(optimizer)) == "MERON_E_NONFINITE"

        # The next gradient ends a view of the reduced one, and so does a step.
        for next in (() -> (consume!(unit); gradient_view(unit, w) .= 1), () -> step!(optimizer))
            reduce!(unit)
            sums = reduced(unit, w)
            next()
            @test status_of(() -> sums .= 1) == "MERON_E_STALE"
        end
    end
end

# Hyperparameters with exact results, for a value of 2 and a gradient of 2.
@testset "the rule $name" for (name, make, value, states) in (
    ("Adam", u -> adam(u; learning_rate = 0.25, beta1 = 0.5, beta2 = 0.75, epsilon = 2), 1.875, 2),
    ("Adagrad", u -> adagrad(u; learning_rate = 0.5, epsilon = 1, weight_decay = 0.5), 1.625, 1),
    ("Lion", u -> lion(u; learning_rate = 0.25, beta1 = 0.5, beta2 = 0.75, weight_decay = 0.5), 1.5, 1),
    ("SGD", u -> sgd(u; learning_rate = 0.5), 1.0, 0),
    ("SGD with momentum", u -> sgd(u; learning_rate = 0.5, momentum = 0.5, dampening = 0.5), 1.0, 1),
    ("Nesterov's", u -> sgd(u; learning_rate = 0.25, momentum = 0.5, nesterov = true), 1.25, 1),
)
    alone() do ctx
        w = Param(ctx, "w", (3, 2))
        unit = Unit(ctx, "u", [w])
        Meron.update(u -> write!(u, w, fill(2.0, 3, 2)), unit)
        optimizer = make(unit)
        @test Meron.info(optimizer).states == states
        reduce!(unit, [w => fill(2.0, 3, 2)])
        step!(optimizer)
        gather(full -> (@test all(full[w] .== value)), unit)
        @test read_state(optimizer, w, :master) == fill(Float32(value), 6)
        states == 0 &&
            @test status_of(() -> read_state(optimizer, w, :exp_avg)) == "MERON_E_ARGUMENT"
        @test status_of(() -> sgd(unit; beta1 = 0.5)) == "MERON_E_ARGUMENT" # its name is momentum
    end
end

@testset "optimizer groups and states" begin
    alone(; plan = "{\"optimizer\": {\"dtype\": \"bf16\"}}") do ctx
        w, b = Param(ctx, "w", (3, 2)), Param(ctx, "b", 3)
        unit = Unit(ctx, "u", [w, b])
        optimizer = adamw(unit; learning_rate = 0.5)
        @test add_optimizer_group!(optimizer, b; weight_decay = 0) == 1
        @test optimizer_group(optimizer, 1) == (
            learning_rate = 0.5, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.0,
            lr_decay = 0.0)
        set_optimizer_group!(optimizer, 1; learning_rate = 0.25)
        @test optimizer_group(optimizer, 1).learning_rate == 0.25
        @test optimizer_group(optimizer, 0).learning_rate == 0.5
        @test Meron.info(optimizer).groups == 2
        @test status_of(() -> set_optimizer_group!(optimizer, 1; lr_decay = 0.5)) == "MERON_E_ARGUMENT"
        @test status_of(() -> add_optimizer_group!(optimizer, [w, b])) == "MERON_E_DUPLICATE"
        @test status_of(() -> add_optimizer_group!(optimizer, [w]; speed = 1)) == "MERON_E_ARGUMENT"
        for number in (-1, 2, 1 << 32)
            @test status_of(() -> optimizer_group(optimizer, number)) == "MERON_E_ARGUMENT"
        end
        write_state!(optimizer, w, :exp_avg, 1:6)
        @test read_state(optimizer, w, :exp_avg) == Float32.(1:6)
        @test read_state(optimizer, b, :exp_avg) == zeros(Float32, 3)
        @test status_of(() -> state_view(optimizer, w, :exp_avg)) == "MERON_E_UNSUPPORTED"
        @test status_of(() -> write_state!(optimizer, w, :exp_avg, 1:5)) == "MERON_E_ARGUMENT"
        @test status_of(() -> read_state(optimizer, w, :momentum)) == "MERON_E_ARGUMENT"
        release(optimizer)
        @test status_of(() -> read_state(optimizer, w, :exp_avg)) == "MERON_E_STALE"
    end
end

@testset "a skipped param keeps its values and its count" begin
    alone() do ctx
        w, b, loose = Param(ctx, "w", (3, 2)), Param(ctx, "b", 3), Param(ctx, "loose", 2)
        unit = Unit(ctx, "u", [w, b])
        optimizer = sgd(unit; learning_rate = 0.5)
        function take()
            reduce!(unit, [w => fill(2.0, 3, 2), b => fill(2.0, 3)])
            return step!(optimizer)
        end
        skip!(optimizer, b)
        take()
        @test param_steps(optimizer, w) == 1 && param_steps(optimizer, b) == 0
        @test read_state(optimizer, w, :master) == fill(-1.0f0, 6)
        @test read_state(optimizer, b, :master) == zeros(Float32, 3)
        skip!(optimizer, [])
        take()
        @test param_steps(optimizer, w) == 2 && param_steps(optimizer, b) == 1
        @test read_state(optimizer, b, :master) == fill(-1.0f0, 3)
        set_param_steps!(optimizer, b, 9)
        @test param_steps(optimizer, b) == 9
        set_steps!(optimizer, 4)
        @test param_steps(optimizer, b) == 4
        for wrong in (
            () -> skip!(optimizer, [w, loose]),
            () -> param_steps(optimizer, loose),
            () -> set_param_steps!(optimizer, loose, 1),
            () -> set_param_steps!(optimizer, b, -1),
            () -> set_param_steps!(optimizer, b, 2^53 + 1),
        )
            @test status_of(wrong) == "MERON_E_ARGUMENT"
        end
        release(optimizer)
        @test status_of(() -> skip!(optimizer, b)) == "MERON_E_STALE"
        @test status_of(() -> param_steps(optimizer, b)) == "MERON_E_STALE"
    end
end

@testset "Adagrad decays its rate" begin
    alone() do ctx
        w = Param(ctx, "w", (3, 2))
        unit = Unit(ctx, "u", [w])
        for wrong in (-0.5, NaN, Inf)
            @test status_of(() -> adagrad(unit; lr_decay = wrong)) == "MERON_E_ARGUMENT"
        end
        @test status_of(() -> adamw(unit; lr_decay = 0.5)) == "MERON_E_ARGUMENT"
        optimizer = adagrad(unit; learning_rate = 0.5, epsilon = 3, lr_decay = 1)
        for gradient in (3.0, 4.0)
            reduce!(unit, [w => fill(gradient, 3, 2)])
            step!(optimizer)
        end
        @test read_state(optimizer, w, :master) == fill(-0.375f0, 6)
        set_optimizer_group!(optimizer, 0; lr_decay = 0.25)
        @test optimizer_group(optimizer, 0).lr_decay == 0.25
        @test add_optimizer_group!(optimizer, w; lr_decay = 0.125) == 1
        @test optimizer_group(optimizer, 1).lr_decay == 0.125
    end
end

@testset "one wait for many units under $plan" for plan in ("zero0", "zero1", "zero2", "zero3")
    alone(; plan = plan) do ctx
        params = [Param(ctx, "w$i", (3, 2)) for i in 1:3]
        units = [Unit(ctx, "u$i", [params[i]]) for i in 1:3]
        @test wait_reductions(units; timeout = 0)
        release(reduce_begin!(units[1], [params[1] => ones(3, 2)]))
        release(reduce_begin!(units[2], [params[2] => ones(3, 2)]; boundary = false))
        release(reduce_finish_begin!(units[2]; divisor = 0.5))
        @test wait_reductions(unit for unit in units)
        @test reduced(units[1], params[1]) == ones(Float32, 6)
        @test reduced(units[2], params[2]) == fill(2.0f0, 6)
        @test status_of(() -> wait_reductions(Unit[])) == "MERON_E_ARGUMENT"
        @test status_of(() -> wait_reductions(units; timeout = -1)) == "MERON_E_ARGUMENT"
        @test_throws MethodError wait_reductions(params)
        alone() do other
            foreign = Unit(other, "u", [Param(other, "w", 3)])
            @test status_of(() -> wait_reductions([units[3], foreign])) == "MERON_E_HANDLE"
        end
        Meron.abort(ctx.world, "to see it")
        @test status_of(() -> wait_reductions(units)) == "MERON_E_ABORTED"
    end
end

@testset "contexts, groups and plans" begin
    alone(; plan = Plan("zero2"), threads = 1, log = (_, _) -> nothing) do ctx
        @test (ctx.rank, ctx.world_size, ctx.transport) == (0, 1, "self")
        group = Group(ctx, [0])
        @test (group.rank, group.size) == (0, 1)
        barrier(group)
        @test Meron.status(group) === nothing
        before = Meron.stats(ctx)
        unit = Unit(ctx, "u", [Param(ctx, "w", 100)])
        gather(identity, unit)
        @test Meron.stats(ctx).operations > before.operations
        @test Meron.predict(ctx).param_bytes == Meron.stats(ctx).param_bytes
        Meron.progress(ctx)
        @test occursin("gather", Meron.flight_record(ctx))
        @test all(object -> !isempty(repr(object)), (ctx, group, unit, unit.params[1], Plan("zero0")))
        Meron.abort(group, "to see it")
        error = Meron.status(group)
        @test error.name == "MERON_E_ABORTED" && Meron.damage(error) == :group
        @test occursin("to see it", error.message)
    end
    plan = Plan("zero3")
    @test Meron.parse_plan(Meron.json(plan)) == plan
    @test hash(Meron.parse_plan(Meron.json(plan))) == hash(plan)
    @test Meron.parse_plan("{\"preset\": \"zero1\"}") == Plan("zero1") != plan
    @test occursin("gradient", Meron.table(plan))
    model = "{\"parameters\": 1000, \"layers\": 2, \"dtype\": \"f32\"}"
    @test occursin("bytes", Meron.predict(plan, model; ranks = 2))
    @test occursin("zero3", Meron.predict(plan, model; ranks = 2, table = true))
    @test occursin("transports", Meron.system_info())
end

@testset "every function of the interface is used" begin
    folder = joinpath(dirname(@__DIR__), "src")
    files = [joinpath(folder, name) for name in readdir(folder) if name != "generated.jl"]
    source = join(map(file -> read(file, String), files))
    unused(name) = !occursin(Regex("\\b$name\\b"), source)
    # sizeof; `wait` releases; an allocator is not offered; a unit keeps its name and params; groups start from
    # one of the optimizer; tensors are in an array; and transfers are begun and waited for, so that other
    # tasks run.
    @test filter(unused, collect(fieldnames(LibMeron.Functions))) ==
          [:meron_dtype_size, :meron_future_finish, :meron_allocator_init, :meron_unit_name, :meron_unit_param,
           :meron_optimizer_group_init, :meron_checkpoint_tensor_init, :meron_io_read, :meron_io_write]
end

@testset "what is public is documented" begin
    documented = Set(binding.var for binding in keys(Docs.meta(Meron)))
    for name in (names(Meron)..., Meron.PUBLIC...)
        @test name in documented || name == :Meron
    end
end

@testset "a device" begin
    memory(view) = pointer(Meron.unsafe_array(view))
    alone(; device = "emulated") do ctx
        w = Param(ctx, "w", (3, 2))
        unit = Unit(ctx, "u", [w])
        values = reshape(collect(1.0f0:6.0f0), 3, 2)
        Meron.update(u -> write!(u, w, values), unit)
        full = gather_begin(unit)
        @test wait_stream(full) && wait_stream(full, C_NULL; timeout = 1)
        view = full[w]
        @test view == values
        up = Meron.stats(ctx).device_up_bytes
        @test up >= 24
        gather(unit; tier = :host) do host
            @test host[w] == values && memory(host[w]) != memory(view)
        end
        gather(other -> (@test memory(other[w]) == memory(view)), unit)
        @test Meron.stats(ctx).device_up_bytes == up

        reduce!(unit, [w => view])
        @test reduced(unit, w) == vec(values)
        discard!(unit)
        reduce!(unit, [w => Meron.DeviceArray(memory(view), (3, 2), full)]; stream = C_NULL)
        @test reduced(unit, w) == vec(values)
        discard!(unit)
        @test Meron.stats(ctx).device_down_bytes == 48
        @test status_of(() -> reduce!(unit, [w => Meron.DeviceArray(memory(view), (2, 3))])) ==
              "MERON_E_ARGUMENT"

        v = Param(ctx, "v", (3, 2))
        place = gather(Unit(ctx, "of v", [v]))
        into = Meron.DeviceArray(memory(place[v]), (3, 2), place)
        gather(full -> (@test full[w] === into), unit; into = [w => into])
        @test place[v] == values
        flat = only(flats(unit))
        gather(full -> (@test pointer(full[w]) == pointer(into)), unit;
            into = flat => Meron.DeviceArray(memory(place[v]), (32,), place))
        release(place)

        release_on_stream!(full)
        release_on_stream!(full)
        @test !isvalid(view) && Meron.info(unit).leases == 0
        @test status_of(() -> wait_stream(full)) == "MERON_E_STALE"
    end
    for name in ("gpu", "emulated:7")
        @test status_of(() -> alone(ctx -> nothing; device = name)) == "MERON_E_ARGUMENT"
    end
    alone() do ctx
        unit = Unit(ctx, "u", [Param(ctx, "w", (3, 2))])
        gather(unit) do full
            @test status_of(() -> wait_stream(full)) == "MERON_E_ARGUMENT"
            @test status_of(() -> release_on_stream!(full)) == "MERON_E_ARGUMENT"
            @test status_of(() -> wait_stream(full, 7)) == "MERON_E_ARGUMENT"
        end
        @test status_of(() -> gather(unit; tier = :moon)) == "MERON_E_ARGUMENT"
    end
end
