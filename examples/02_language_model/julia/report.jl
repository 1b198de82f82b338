# SPDX-License-Identifier: Apache-2.0
# Output for people, and the JSON file. Everything here runs on rank 0 alone.

"Counters of one rank in training, and the predictions of the plan, in bytes."
struct Figures
    mapped::UInt64 # in all steps together, as are the two below
    copied::UInt64
    reduced::UInt64
    planned_mapped::UInt64 # in one step, as are the two below
    planned_copied::UInt64
    planned_reduced::UInt64
    peak::UInt64
    planned_peak::UInt64
    arena_pages::UInt64
    between_nodes::Bool # some of the peers share no memory with this rank
end

struct Summary
    options::Options
    ranks::Int
    transport::String
    plan::String # as JSON
    parameters::Int
    units::Int
    text_bytes::Int
    losses::Vector{Float32} # one per step
    seconds::Float64
    figures::Vector{Figures} # one per rank
end

bytes_as_planned(f, steps) =
    (f.mapped, f.copied, f.reduced) ==
    (steps * f.planned_mapped, steps * f.planned_copied, steps * f.planned_reduced)
memory_difference(f) = f.planned_peak == 0 ? 0.0 : f.peak / f.planned_peak - 1

"""
Counted bytes equal the plan's to the byte, and peak memory is within 5 % of it. Between nodes,
messages in flight are not part of the plan's memory.
"""
function as_planned(f, steps)
    difference = memory_difference(f)
    return bytes_as_planned(f, steps) && difference >= -0.05 &&
           (difference <= 0.05 || f.between_nodes)
end

first_loss(losses) = losses[1]
"The mean over the last twentieth of the steps."
function last_loss(losses)
    count = length(losses) < 20 ? 1 : div(length(losses), 20)
    total = 0.0
    for loss in losses[end-count+1:end]
        total += loss
    end
    return Float32(total / count)
end

# 1234567 as "1,234,567".
grouped(value) = replace(string(value), r"(?<=\d)(?=(\d{3})+$)" => ",")

function report_begin(options, ranks, transport, parameters, units, text_bytes)
    println(
        grouped(parameters), " parameters (", options.dtype, ") in ", units, " units over ", ranks,
        ranks == 1 ? " rank" : " ranks", ", plan ", options.plan, ", transport ", transport, "; ",
        grouped(text_bytes), " bytes of text")
    flush(stdout)
end

"Shows how far the training is; `loss` is the mean over the steps since the last call."
mutable struct Progress
    first::Int # steps that were taken before
    steps::Int
    shown::Int # tenths; a log gets a line for each
end

function report_progress(progress, step, loss, seconds)
    steps, rate = progress.steps, (step - progress.first) / seconds
    percent = div(100 * step, steps)
    text = @sprintf(
        "step %d/%d  loss %.3f  %.1f steps/s  %.0f s left", step, steps, loss, rate,
        (steps - step) / rate)
    if stderr isa Base.TTY
        bar = join(i * steps < 30 * step ? '#' : '.' for i in 0:29)
        print(stderr, "\r$bar $(lpad(percent, 3)) %  $text \e[K", step == steps ? "\n" : "")
    elseif div(percent, 10) > progress.shown || step == steps
        progress.shown = div(percent, 10)
        println(stderr, "$(lpad(percent, 3)) %  $text")
    end
end

function report_summary(summary)
    options, steps = summary.options, length(summary.losses)
    rate = steps / summary.seconds
    first, last = first_loss(summary.losses), last_loss(summary.losses)
    @printf("\nloss    %.3f at first, %.3f at last: %.1f %% of its start\n", first, last,
        100 * last / first)
    @printf("speed   %.1f steps/s, %.0f examples/s, %.1f s in all\n\n", rate,
        rate * options.batch * options.accumulate * summary.ranks, summary.seconds)

    print_row("", "", "gathered", "gathered", "reduced", "peak memory")
    print_row("rank", "", "in place, B/step", "copied, B/step", "B/step", "B")
    for (rank, f) in enumerate(summary.figures)
        counted = (f.mapped, f.copied, f.reduced)
        planned = (f.planned_mapped, f.planned_copied, f.planned_reduced)
        print_row(rank - 1, "counted", map(c -> grouped(div(c, steps)), counted)..., grouped(f.peak))
        print_row("", "plan", map(grouped, planned)..., grouped(f.planned_peak))
        verdicts = map((c, p) -> c == steps * p ? "equal" : "DIFFERS", counted, planned)
        print_row("", "", verdicts..., @sprintf("%+.1f %%", 100 * memory_difference(f)))
    end
    flush(stdout)
end

print_row(rank, what, cells...) =
    println("  ", rpad(rank, 5), rpad(what, 9), map(cell -> lpad(cell, 18), cells)...)

number(x) = @sprintf("%.9g", x)

function write_json(summary, path)
    options, steps = summary.options, length(summary.losses)
    equal = all(f -> bytes_as_planned(f, steps), summary.figures)
    per_rank = map(enumerate(summary.figures)) do (rank, f)
        """
            {"rank": $(rank - 1),
             "gather_mapped_bytes": {"counted": $(f.mapped), "plan_per_step": $(f.planned_mapped)},
             "gather_copied_bytes": {"counted": $(f.copied), "plan_per_step": $(f.planned_copied)},
             "reduce_bytes": {"counted": $(f.reduced), "plan_per_step": $(f.planned_reduced)},
             "peak_bytes": {"counted": $(f.peak), "plan": $(f.planned_peak)},
             "arena_pages_bytes": $(f.arena_pages)}"""
    end
    write(path, """
        {
          "example": "02_language_model",
          "language": "julia",
          "ranks": $(summary.ranks),
          "transport": "$(summary.transport)",
          "plan": $(summary.plan),
          "parameters": $(summary.parameters),
          "units": $(summary.units),
          "dtype": "$(options.dtype)",
          "text_bytes": $(summary.text_bytes),
          "steps": $steps,
          "batch": $(options.batch),
          "accumulate": $(options.accumulate),
          "width": $(options.width),
          "layers": $(options.layers),
          "context": $(options.context),
          "learning_rate": $(@sprintf("%.17g", options.lr)),
          "seed": $(options.seed),
          "seconds": $(@sprintf("%.3f", summary.seconds)),
          "steps_per_second": $(@sprintf("%.3f", steps / summary.seconds)),
          "loss_first": $(number(first_loss(summary.losses))),
          "loss_last": $(number(last_loss(summary.losses))),
          "bytes_equal": $equal,
          "per_rank": [
        $(join(per_rank, ",\n"))
          ],
          "losses": [$(join(map(number, summary.losses), ", "))]
        }
        """)
end
