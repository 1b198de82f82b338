# SPDX-License-Identifier: Apache-2.0
using Meron, Random, Test
using Base.CoreLogging: with_logger

include("ranks.jl")
include("mailbox.jl")

function train(ctx)
    w = Param(ctx, "w", (7, 5))
    unit = Unit(ctx, "u", [w])
    Meron.update(u -> write!(u, w, reshape(0:34, 7, 5)), unit)
    optimizer = adamw(unit; learning_rate = 0.1)
    for step in 1:3
        reduce!(unit, w => fill(Float32(ctx.rank + step), 7, 5))
        step!(optimizer)
        GC.gc(false)
    end
    values = gather(full -> reinterpret(UInt32, collect(full[w])), unit)
    total = allreduce!(ones(Float32, 1000), ctx.world)
    return ctx.transport, values, sum(total)
end

# One transport per rank of a world.
function mailboxes(count; options...)
    mailbox = Mailbox()
    return [MailboxTransport(rank, mailbox; options...) for rank in 0:count-1]
end

@testset "it trains as the library's own do: $plan" for plan in ("zero0", "zero1", "zero2", "zero3")
    transports = mailboxes(2)
    own = run_ranks(train, 2; plan = plan, transport = rank -> transports[rank+1])
    expected = run_ranks(train, 2; plan = plan)
    @test own == [("mailbox", values, 2000.0f0) for (_, values, _) in expected]
    @test all(transport -> transport.closed, transports)
end

@testset "an exception of $name ends the use of the peer" for name in
                                                              (:start_send, :start_receive, :test)
    transports = mailboxes(2)
    logger = Test.TestLogger()
    results = with_logger(logger) do
        run_ranks(2; transport = rank -> transports[rank+1], timeout = 2) do ctx
            barrier(ctx.world)
            ctx.rank == 1 && (transports[2].fails = name)
            foreach(_ -> barrier(ctx.world), 1:10)
        end
    end
    @test results[2] isa MeronError
    @test (results[2].name, results[2].peer) == ("MERON_E_PEER_DEAD", 0)
    @test results[1] isa MeronError
    @test any(logger.logs) do record
        occursin("function of a context failed", record.message) &&
            record.kwargs[:exception][1] == ErrorException("out of order")
    end
end

@testset "a world of one needs nobody" begin
    transports = mailboxes(1)
    @test run_ranks(train, 1; transport = rank -> transports[1])[1][1] == "mailbox"
    @test transports[1].closed
end

@testset "messages that are too small are refused before anything moves" begin
    transports = mailboxes(1; max_message = 100)
    error = run_ranks(train, 1; transport = rank -> transports[1])[1]
    @test error isa MeronError && error.name == "MERON_E_ARGUMENT"
    @test occursin("max_message is 100", error.message)
end

# Nothing of a context that was closed is kept.
@test isempty(Meron.in_flight) && isempty(Meron.open_contexts)
