# SPDX-License-Identifier: Apache-2.0
# Runs the conformance cases through Meron.jl. ../README.md says how it is called.

const ROOT = normpath(joinpath(@__DIR__, "..", "..", ".."))
# The package is that of this tree; what Julia compiles stays out of the home directory.
pushfirst!(LOAD_PATH, joinpath(ROOT, "bindings", "julia"))
pushfirst!(empty!(DEPOT_PATH), joinpath(ROOT, "build", "julia"))

using Meron
using Meron: BFloat16, LibMeron

include("table.jl")
include("values.jl")
include("session.jl")
include("post.jl")
include("counters.jl")
include("operations.jl")
include("tensors.jl")
include("schedules.jl")
include("files.jl")
include("checkpoints.jl")
include("calls.jl")

const writing = Threads.SpinLock()

# Writes a complete line at once: ranks that are processes share the output.
function say(line)
    bytes = join(split(line), ' ') * "\n"
    lock(writing)
    ccall(:write, Cssize_t, (Cint, Ptr{UInt8}, Csize_t), 1, bytes, sizeof(bytes))
    unlock(writing)
    return
end

# Executes an operation and holds its failure against what the statement expects.
function execute(session, statement)
    has(statement, "on") && !(string(session.setup.rank) in parts(statement, "on")) && return
    haskey(OPERATIONS, statement.operation) ||
        throw(Malformed("unknown operation $(statement.operation)"))
    try
        OPERATIONS[statement.operation](session, statement)
    catch error
        error isa MeronError || rethrow()
        return check_failure(statement, error)
    end
    check(!has(statement, "fails"), "it did not fail with $(get(statement, "fails", ""))")
end

function check_failure(statement, error)
    expected = get(statement, "fails", "")
    check(error.name in split(expected, '|'),
        "$(error.name) instead of $(isempty(expected) ? "success" : expected): $(error.message)")
    says = get(statement, "says", "")
    check(holds(error.message, says), "the message lacks $says: $(error.message)")
    has(statement, "peer") && check_equal("the peer", error.peer, whole(statement, "peer", 0))
    # The full message contains each part of the error.
    isempty(error.operation) && return
    for part in (error.operation, error.subject, chop(error.advice; head = 1, tail = 0))
        check(holds(error.message, part), "the message lacks $(repr(part)): $(error.message)")
    end
end

# Returns the error, or "".
function run_case(setup, case, plan)
    session = Session(setup, case.name, plan)
    try
        for statement in case.statements
            try
                execute(session, statement)
            catch error
                where_ = "rank $(setup.rank): line $(statement.line): $(statement.operation)"
                return "$where_: $(typeof(error)): $(sprint(showerror, error))"
            end
        end
        return ""
    finally
        end_session(session)
    end
end

# Returns true if all cases succeeded.
function run_rank(setup, cases)
    good = true
    for case in cases, plan in case.plans
        runs_on(case, setup.transport, setup.world) || continue
        title = "$(case.name) $plan"
        setup.rank == 0 && say("# $title")
        wrong = run_case(setup, case, plan)
        if !isempty(wrong)
            good = false
            say("not ok $title: $wrong")
        elseif setup.rank == 0
            say("ok $title")
        end
    end
    return good
end

function usage(what)
    println(stderr, "runner.jl: $what; usage: runner.jl cases.txt --transport NAME [--ranks N] | " *
                    "--cells NAME:N,... [--job TEXT] [--only NAME]")
    return 2
end

const TRANSPORTS = ("self", "local", "shm", "custom")

# Runs the cases on one transport with so many ranks: whether all went well on those of this process.
function run_cell(transport, ranks, job, cases)
    if transport == "shm"
        rank = parse(Int, ENV["MERON_RANK"])
        return rank >= ranks || run_rank(Setup(rank, ranks, transport, job), cases)
    end
    good = fill(false, ranks)
    Threads.@threads for i in 1:Threads.nthreads()
        i <= ranks || continue
        good[i] = run_rank(Setup(i - 1, ranks, transport, job), cases)
    end
    return all(good)
end

# (transport, ranks) of each cell, or what is wrong with the words.
function cells_of(options)
    haskey(options, "--cells") || haskey(options, "--transport") || return "there is no transport"
    single = get(options, "--transport", "")
    world = single == "shm" ? ENV["MERON_WORLD_SIZE"] : options["--ranks"]
    cells = Tuple{String,Int}[]
    for cell in split(get(options, "--cells", "$single:$world"), ',')
        transport, ranks = split(cell, ':')
        transport in TRANSPORTS || return "no transport $(repr(transport))"
        push!(cells, (transport, parse(Int, ranks)))
        transport == "shm" || last(last(cells)) <= Threads.nthreads() ||
            return "$ranks ranks take $ranks threads: start julia with -t $ranks"
    end
    return cells
end

function main(words)
    options, files = Dict("--ranks" => "1", "--job" => "conformance"), String[]
    while !isempty(words)
        word = popfirst!(words)
        if startswith(word, "--")
            isempty(words) && return usage("$word needs a value")
            options[word] = popfirst!(words)
        else
            push!(files, word)
        end
    end
    length(files) == 1 || return usage("one file of cases is needed")
    cells = cells_of(options)
    cells isa String && return usage(cells)
    cases = try
        read_cases(files[1])
    catch error
        return usage(sprint(showerror, error))
    end
    haskey(options, "--only") && filter!(case -> case.name == options["--only"], cases)

    good = true
    for (transport, ranks) in cells
        first = get(ENV, "MERON_RANK", "0") == "0"
        length(cells) > 1 && first && say("@ $transport $ranks")
        good &= run_cell(transport, ranks, "$(options["--job"])-$transport$ranks", cases)
    end
    return good ? 0 : 1
end

exit(main(copy(ARGS)))
