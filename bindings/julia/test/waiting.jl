# SPDX-License-Identifier: Apache-2.0
# Waits: their ends, and what runs meanwhile. The peer is a context in a world of two whose other rank
# is a process that does nothing.

# A process that opens rank 1 of a local world cannot be: "local" ranks are threads. Rank 1 is another
# Julia here, over shared memory, that opens, says so, and waits for a line.
function with_a_silent_peer(body; options...)
    token = bytes2hex(rand(RandomDevice(), UInt8, 32))
    source = """
        using Meron
        ctx = Meron.open(rank = 1, world_size = 2, transport = "shm", token = "$token", timeout = 60)
        readline()
        ccall(:_exit, Cvoid, (Cint,), 0)
        """
    input = Pipe()
    peer = run(pipeline(julia_command("-e", source); stdin = input), wait = false)
    try
        Meron.open(body; rank = 0, world_size = 2, transport = "shm", token = token, timeout = 60,
            options...)
    finally
        println(input, "end")
        close(input)
        wait(peer)
    end
end

struct Enough2 <: Exception end
answer = Ref{Any}(false)
asked = Ref(0)
barrier_of_stop = Ref{Any}(nothing) # a function
function stop()
    asked[] += 1
    answer[] === :throw && throw(Enough2())
    answer[] === :begin && barrier_of_stop[]()
    return answer[] === true
end

with_a_silent_peer(; should_stop = stop) do ctx
    future = barrier_begin(ctx.world)
    @test !isready(future)
    begun = time()
    @test wait(future; timeout = 0.2) == false
    @test 0.2 <= time() - begun < 10

    # Other tasks run, and timers are served.
    counted = Ref(0)
    task = @async for _ in 1:20
        sleep(0.01)
        counted[] += 1
    end
    @test wait(future; timeout = 2) == false
    @test counted[] == 20
    wait(task)

    # should_stop ends the wait, not the operation.
    answer[] = true
    @test status_of(() -> wait(future)) == "MERON_E_CANCELLED"
    answer[] = :throw
    @test_throws Enough2 wait(future)
    # It may only look, and release: a collective that it began would be another rank's next one.
    barrier_of_stop[] = () -> barrier_begin(ctx.world)
    answer[] = :begin
    @test status_of(() -> wait(future)) == "MERON_E_STATE"
    answer[] = false
    # Also while another task keeps the thread busy, and wait only asks the library.
    asked[] = 0
    busy = @async for _ in 1:50
        until = time_ns() + 10_000_000
        while time_ns() < until end
        yield()
    end
    @test wait(future; timeout = 0.6) == false
    wait(busy)
    @test asked[] >= 3
    @test wait(future; timeout = 0.01) == false

    # An InterruptException reaches a task that waits; the memory of what is under way stays.
    array = zeros(Float32, 1000)
    waiting = @async allreduce!(array, ctx.world)
    sleep(0.05)
    schedule(waiting, InterruptException(); error = true)
    @test_throws Union{InterruptException,TaskFailedException} fetch(waiting)
    @test any(entry -> entry[2] === array, values(Meron.in_flight))
    array = nothing
    for _ in 1:5
        GC.gc()
        Meron.progress(ctx)
    end
    @test length(Meron.in_flight) == 1 # it has not ended, so its memory is kept

    # A wait for units ends as one for a future does.
    unit = Unit(ctx, "u", [Param(ctx, "w", 10)])
    release(reduce_begin!(unit))
    @test wait_reductions([unit]; timeout = 0) == false
    @test wait_reductions([unit]; timeout = 0.05) == false
    answer[] = true
    @test status_of(() -> wait_reductions([unit])) == "MERON_E_CANCELLED"
    answer[] = false

    # Several tasks wait for one future.
    tasks = [@async(wait(future; timeout = 0.3)) for _ in 1:3]
    @test map(fetch, tasks) == [false, false, false]
end
@test isempty(Meron.in_flight)
@test isempty(Meron.open_contexts)
