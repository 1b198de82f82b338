# SPDX-License-Identifier: Apache-2.0
# Ranks as processes over shared memory, and Ctrl-C.

const COMMAND = get(ENV, "MERON_COMMAND", "")
const INTERRUPTS = parse(Int, get(ENV, "MERON_TEST_INTERRUPTS", "30"))

const TRAIN = """
using Meron
using Meron: BFloat16
Meron.open(timeout = 30) do ctx
    w, b = Param(ctx, "w", (7, 33)), Param(ctx, "b", 5; dtype = BFloat16)
    unit = Unit(ctx, "u", [w, b])
    Meron.update(unit) do u
        write!(u, w, reshape(range(-1, 1; length = 231), 7, 33))
        write!(u, b, ones(5))
    end
    optimizer = adamw(unit; learning_rate = 0.01, max_norm = 1.0)
    for step in 1:5
        gradient = gather(full -> sin.(full[w] .* step), unit)
        gradient_view(unit, w) .+= gradient
        reduce!(unit)
        GC.gc(step == 3)
        step!(optimizer)
    end
    sum = allreduce!(Float32[ctx.rank], ctx.world)[1]
    @assert sum == div(ctx.world_size * (ctx.world_size - 1), 2)
    bits = gather(full -> hash(collect(full[w])), unit)
    print(bits, "\\n")
    barrier(ctx.world)
end
"""

# The lines that ranks print, by rank, each started by hand.
function ranks_of(count, source)
    token = bytes2hex(rand(RandomDevice(), UInt8, 32))
    outputs = [IOBuffer() for _ in 1:count]
    processes = map(1:count) do i
        command = julia_command("-e", source;
            MERON_RANK = i - 1, MERON_WORLD_SIZE = count, MERON_TOKEN = token)
        run(pipeline(command; stdout = outputs[i], stderr = stderr), wait = false)
    end
    foreach(wait, processes)
    @test all(success, processes)
    return map(output -> String(take!(output)), outputs)
end

@testset "training gives equal bits" begin
    alone_ = ranks_of(1, TRAIN)
    together = ranks_of(2, TRAIN)
    @test !isempty(strip(alone_[1]))
    @test together == [alone_[1], alone_[1]]
end

isempty(COMMAND) || @testset "under meron run" begin
    mktempdir() do folder
        script = joinpath(folder, "train.jl")
        write(script, TRAIN)
        julia = julia_command(script)
        lines = readlines(setenv(`$COMMAND run -n 2 --tag -- $(julia.exec)`, julia.env))
        @test length(lines) == 2
        @test split(lines[1])[end] == split(lines[2])[end]
    end
end

@testset "a killed rank is named" begin
    output = ranks_of_pair = """
        using Meron
        Meron.open(timeout = 30) do ctx
            barrier(ctx.world)
            ctx.rank == 1 && ccall(:_exit, Cvoid, (Cint,), 0)
            try
                barrier(ctx.world)
            catch error
                print(error.name, " ", error.peer)
            end
        end
        """
    @test ranks_of(2, output)[1] == "MERON_E_PEER_DEAD 1"
end

# Rank 0 is interrupted again and again in one process: every InterruptException ends a wait within
# seconds, and the operation can be waited for again.
@testset "$INTERRUPTS times Ctrl-C in a wait" begin
    source = """
        using Meron
        Base.exit_on_sigint(false)
        Meron.open(timeout = 600) do ctx
            barrier(ctx.world)
            if ctx.rank == 1
                while true
                    sleep(1)
                end
            end
            future = barrier_begin(ctx.world)
            caught, longest = 0, 0.0
            while caught < $INTERRUPTS
                asked = Ref(0.0)
                ccall(:usleep, Cint, (Cuint,), rand(1:3000))
                try
                    # From within, after a random while: from another process of this one's own.
                    run(`sh -c "sleep 0.0\$(rand(0:9)); kill -INT \$(getpid())"`; wait = false)
                    asked[] = time()
                    wait(future; timeout = 30)
                    println("a wait was not interrupted")
                    exit(3)
                catch error
                    error isa InterruptException || rethrow()
                    caught += 1
                    longest = max(longest, time() - asked[])
                end
            end
            @assert !isready(future)
            println(caught, " ", longest < 10)
            flush(stdout)
            exit(0)
        end
        """
    token = bytes2hex(rand(RandomDevice(), UInt8, 32))
    start(rank, output) = run(
        pipeline(
            julia_command("-e", source; MERON_RANK = rank, MERON_WORLD_SIZE = 2, MERON_TOKEN = token);
            stdout = output, stderr = devnull),
        wait = false)
    output = IOBuffer()
    ranks = [start(0, output), start(1, devnull)]
    wait(ranks[1])
    kill(ranks[2], 9)
    wait(ranks[2])
    @test String(take!(output)) == "$INTERRUPTS true\n"
    @test ranks[1].exitcode == 0
end

# An ordinary script ends at Ctrl-C; so does an open that waits for others. Everything is compiled
# before the test interrupts them: Julia's own exit at SIGINT does not return if it arrives during
# an allocation. In the second, `try` contains all code that may be interrupted: at any point, the
# exception is the expected one.
@testset "Ctrl-C ends a script" begin
    wait_in_open = "Meron.open(timeout = 100)"
    for (what, source) in (
        "open" => """
            using Meron
            try Meron.open(timeout = 0.01) catch error; error isa MeronError || rethrow() end
            print(1)
            flush(stdout)
            $wait_in_open
            """,
        "open in -i" => """
            using Meron
            Base.exit_on_sigint(false)
            function interrupted()
                try Meron.open(timeout = 0.01) catch error; error isa MeronError || rethrow() end
                try
                    print(1)
                    flush(stdout)
                    $wait_in_open
                    return false
                catch error
                    error isa InterruptException || showerror(stderr, error)
                    return error isa InterruptException
                end
            end
            exit(interrupted() ? 130 : 4)
            """,
    )
        token = bytes2hex(rand(RandomDevice(), UInt8, 32))
        mktempdir() do folder
            script = joinpath(folder, "script.jl")
            write(script, source)
            output = Pipe()
            process = run(
                pipeline(
                    julia_command(script; MERON_RANK = 0, MERON_WORLD_SIZE = 2, MERON_TOKEN = token);
                    stdout = output, stderr = joinpath(folder, "stderr")),
                wait = false)
            close(output.in)
            read(output, UInt8)
            sleep(0.5)
            begun = time()
            kill(process, 2)
            wait(process)
            @test time() - begun < 10
            if !(process.exitcode == 130 || process.termsignal == 2)
                @error "$what: exit code $(process.exitcode), signal $(process.termsignal)" stderr =
                    read(joinpath(folder, "stderr"), String)
            end
            @test process.exitcode == 130 || process.termsignal == 2
        end
    end
end
