# SPDX-License-Identifier: Apache-2.0
# Files: what is written is read, memory lives as long as its request, and errors name the file.

function with_file(body)
    path = tempname()
    try
        body(path)
    finally
        rm(path; force = true)
    end
end

@testset "files: $backend" for backend in (:io_uring, :threads)
    opened = try
        Io(; backend = backend, block_bytes = 65536, depth = 4, threads = 2)
    catch error
        error isa MeronError && error.name == "MERON_E_UNSUPPORTED" || rethrow()
        nothing
    end
    opened === nothing && continue
    with_file() do path
        io = opened
        values = collect(Float32, 1:50_001)
        @test write(io, path, values) == 200_004
        @test write(io, path, codeunits("abc") |> collect; offset = 4001) == 3
        @test read!(io, path, zeros(UInt8, 5); offset = 4000)[2:4] == UInt8['a', 'b', 'c']
        @test read!(io, path, zeros(Float32, 3); offset = 8000) == Float32[2001, 2002, 2003]

        # Tasks run while one waits, and pending requests need no references.
        for round in 1:20
            write_begin(io, path, fill(UInt8(round), 1 << 20))
            round % 5 == 0 && GC.gc()
            @test wait(io)
        end
        @test all(==(0x14), read!(io, path, zeros(UInt8, 1 << 20)))
        buffer = Meron.pinned(io, 40_000)
        memory = Meron.bytes(buffer)
        @test iszero(memory)
        fill!(memory, 0x07)
        request = write_begin(io, path, memory; offset = 10_001)
        @test wait(request) && isready(request)
        @test Meron.info(io).pending == 0 && Meron.info(io).buffer_bytes == 40_000
        release(request)
        @test status_of(() -> wait(request)) == "MERON_E_STALE"

        missing_ = error_of(() -> read!(io, path * "x", zeros(UInt8, 1)))
        @test missing_.name == "MERON_E_NOT_FOUND" && missing_.subject == path * "x"
        short = error_of(() -> read_begin!(io, path, zeros(UInt8, 30); offset = (1 << 20) - 20))
        @test short.name == "MERON_E_IO" && occursin("20 are there", short.message)
        @test status_of(() -> write(io, path, ["text"])) == "MERON_E_ARGUMENT"
        @test status_of(() -> read!(io, "a\0b", zeros(UInt8, 1))) == "MERON_E_ARGUMENT"
        @test status_of(() -> read!(io, path, zeros(UInt8, 1); offset = -1)) == "MERON_E_ARGUMENT"

        last = write_begin(io, path, fill(0x09, 3 << 20))
        close(io)
        close(io)
        @test wait(last)
        @test read(path) == fill(0x09, 3 << 20)
        @test status_of(() -> wait(io)) == "MERON_E_STALE"
        release(buffer)
        @test status_of(() -> Meron.bytes(buffer)) == "MERON_E_STALE"
        @test memory[40_000] == 0x07 # it outlives its io and its buffer
    end
end

@testset "options of Io" begin
    @test status_of(() -> Io(; backend = :aio)) == "MERON_E_ARGUMENT"
    @test status_of(() -> Io(; block_bytes = 1)) == "MERON_E_ARGUMENT"
    @test status_of(() -> Io(; blocks = 1)) == "MERON_E_ARGUMENT"
    @test Io(io -> occursin("blocks of 1.0 MiB", Meron.describe(io)))
end
