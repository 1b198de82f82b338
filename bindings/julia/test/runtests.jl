# SPDX-License-Identifier: Apache-2.0
# All tests, or those of the files that are named: `runtests.jl layout lifetime`.
#
# MERON_COMMAND is the `meron` command, for ranks as processes (else they are started by hand);
# MERON_TEST_INTERRUPTS how often Ctrl-C is tried (default 30).
using LinearAlgebra, Meron, Random, Test
using Meron: BFloat16, LibMeron

const DEADLINE = 20.0 # of every operation, in seconds: what hangs fails soon

# The context of a world of one rank.
alone(body; options...) =
    Meron.open(body; rank = 0, world_size = 1, transport = "self", timeout = DEADLINE, options...)

# The MeronError that a function throws, or nothing.
function error_of(body)
    try
        body()
    catch error
        error isa MeronError || rethrow()
        return error
    end
    return nothing
end
status_of(body) = (error = error_of(body); error === nothing ? nothing : error.name)

# Julia in a process of its own, on the package that is tested.
julia_command(words...; threads = 1, variables...) = addenv_(
    `$(Base.julia_cmd()) --startup-file=no --project=$(Base.active_project()) $words`,
    "JULIA_NUM_THREADS" => string(threads), (string(k) => string(v) for (k, v) in variables)...)
function addenv_(command, pairs...) # addenv is there since Julia 1.6
    environment = Dict{String,String}(ENV)
    foreach(pair -> environment[pair.first] = pair.second, pairs)
    return setenv(command, environment)
end

const FILES = ("layout", "library", "errors", "arrays", "views", "names", "training", "tree", "waiting", "lifetime",
    "processes", "threads", "transports", "files", "checkpoints")
chosen = isempty(ARGS) ? FILES : ARGS
@testset "Meron" begin
    @testset "$file" for file in chosen
        include("$file.jl")
    end
end
