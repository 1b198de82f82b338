# SPDX-License-Identifier: Apache-2.0
# From the command line to the exit code: 0, 1 (something was not as planned), 2 (bad input).
#
#     meron run -n 2 -- julia --project=bindings/julia main.jl [options]

using Meron
using Meron: BFloat16
using Printf

include("text.jl")
include("options.jl")
include("matrix.jl")
include("model.jl")
include("report.jl")
include("checkpoint.jl")
include("pretrained.jl")
include("train.jl")

# The next three look at what the user gave; they throw a BadInput.

# A preset's name, or a file of JSON.
function load_plan(name)
    json = nothing
    if occursin(r"[./]", name)
        json = try
            String(read_file(name))
        catch error
            error isa BadInput || rethrow()
            throw(BadInput(
                "--plan: $(error.message); name zero0 to zero3, mics(N), hpz(N), zeropp(N) or a " *
                "JSON file"))
        end
    end
    try
        return json === nothing ? Plan(name) : Meron.parse_plan(json)
    catch error
        error isa MeronError || rethrow()
        throw(BadInput("--plan $name: $(error.message)"))
    end
end

function load_data(options)
    text = try
        load_text(options.data)
    catch error
        error isa BadInput || rethrow()
        throw(BadInput(
            "--data: $(error.message); name files that have text in them, or leave --data out to " *
            "train on the licences in $DEFAULT_FOLDER"))
    end
    length(text) > options.context || throw(BadInput(
        "--data: the text has $(length(text)) bytes, and one example takes " *
        "$(options.context + 1); name more text, or lower --context"))
    return text
end

function try_output(path)
    isempty(path) && return
    try
        close(open(path, "a"))
    catch error
        error isa SystemError || rethrow()
        throw(BadInput("--json: cannot write $path: $(reason_of(error))"))
    end
end

# Exchanges the counters of all ranks since `before`, and the predictions of their plans.
function collect_figures(context, before, accumulate)
    after = Meron.stats(context)
    plan = Meron.predict(context; micro_batches = accumulate, gathers_per_micro_batch = 2)
    mine = UInt64[
        after.gather_mapped_bytes - before.gather_mapped_bytes,
        after.gather_copied_bytes - before.gather_copied_bytes,
        after.reduce_bytes - before.reduce_bytes,
        plan.gather_mapped_bytes,
        plan.gather_copied_bytes,
        plan.reduce_bytes,
        after.peak_bytes,
        plan.peak_bytes,
        after.arena_pages_bytes,
        plan.inter_node_gather_bytes + plan.inter_node_reduce_bytes > 0,
    ]
    return [Figures(bcast!(copy(mine), context.world; root = r)...) for r in 0:context.world_size-1]
end

# Trains; rank 0 reports. Returns the exit code. Throws a BadInput on all ranks if there is nothing to
# resume or to start from.
function run_training(context, plan, options, text)
    trainer = Trainer(context, options, text)
    speaks = context.rank == 0 && !options.quiet
    if !isempty(options.resume) || !isempty(options.from)
        loaded = isempty(options.from) ? resume(trainer) : start_from(trainer)
        speaks && println(loaded)
    end
    ranks, transport, json = context.world_size, context.transport, Meron.json(plan)
    parameters, units = parameter_count(trainer), length(trainer.layers)
    speaks &&
        report_begin(options, ranks, transport, parameters, units, length(text))

    before = Meron.stats(context)
    losses, seconds = train(trainer, speaks)
    figures = collect_figures(context, before, options.accumulate)
    isempty(options.var"export") || publish(trainer)
    summary = Summary(
        options, ranks, transport, json, parameters, units, length(text), losses, seconds, figures)

    speaks && report_summary(summary)
    good = all(f -> as_planned(f, length(losses)), figures)
    if context.rank == 0
        good || println(stderr, "language_model: counters and plan differ")
        isempty(options.json) || write_json(summary, options.json)
    end
    return good ? 0 : 1
end

function main(words)
    # The user's input is checked before the ranks meet, and reported after: every rank finds the
    # same error, and one rank reports it.
    problem, options, plan, text = "", Options(), nothing, UInt8[]
    try
        options = parse_options(words)
        if !options.help
            plan, text = load_plan(options.plan), load_data(options)
            try_output(options.json)
        end
    catch error
        error isa BadInput || rethrow()
        problem = error.message
    end

    return Meron.open(plan = something(plan, "zero3")) do context
        code = 0
        if !isempty(problem)
            context.rank == 0 && println(stderr, "language_model: ", problem)
            code = 2
        elseif options.help
            context.rank == 0 && print(HELP)
        else
            try
                code = run_training(context, plan, options, text)
            catch error
                error isa BadInput || rethrow()
                context.rank == 0 && println(stderr, "language_model: ", error.message)
                code = 2
            end
        end
        flush(stdout)
        # `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first.
        barrier(context.world)
        code
    end
end

function start(words)
    try
        return main(words)
    catch error
        error isa MeronError || rethrow()
        println(stderr, "language_model: ", error.message)
        return 1
    end
end

exit(start(ARGS))
