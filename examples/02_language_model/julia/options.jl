# SPDX-License-Identifier: Apache-2.0
# The command line.

"An error in the user's input: the problem and the remedy."
struct BadInput <: Exception
    message::String
end

const HELP = """
Trains a language model on the bytes of a text, partitioned over the ranks.

usage: meron run -n RANKS -- julia main.jl [options]

  --data FILE...    text to train on (default: the licences in $DEFAULT_FOLDER)
  --plan PLAN       zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file (default: zero3)
  --steps N         optimizer steps (default: 400)
  --batch N         examples per micro-batch and rank (default: 64)
  --accumulate N    micro-batches per step and rank (default: 1)
  --width N         values that flow from layer to layer (default: 512)
  --layers N        residual blocks of two matrices each (default: 4)
  --context N       bytes that the model sees; must divide the width (default: 16)
  --lr RATE         peak learning rate (default: 0.002)
  --dtype DTYPE     of the parameters: f32, bf16 or f16 (default: f32)
  --seed N          of the initial values and the choice of examples (default: 1)
  --save DIR        save checkpoints there, in the background, and keep the newest two
  --save-every N    after every N steps too (default: at the end)
  --resume DIR      resume the newest checkpoint there, by any number of ranks and plan
  --from DIR        start from the weights of a model there, in Hugging Face's layout
  --export DIR      publish the model there at the end, in that layout; replaces another
  --json FILE       write all figures and the loss curve there
  --quiet           print nothing but errors
  --help            this text
"""

const DTYPES = Dict("f32" => Float32, "bf16" => BFloat16, "f16" => Float16)

Base.@kwdef mutable struct Options
    data::Vector{String} = String[]
    plan::String = "zero3"
    steps::Int = 400
    batch::Int = 64
    accumulate::Int = 1
    width::Int = 512
    layers::Int = 4
    context::Int = 16
    lr::Float64 = 2e-3
    dtype::String = "f32"
    seed::Int = 1
    save::String = "" # folder of checkpoints; empty: none
    save_every::Int = 0 # steps; 0: at the end
    resume::String = "" # folder of checkpoints, or one of them; empty: none
    from::String = "" # directory of published weights; empty: none
    var"export"::String = "" # directory to publish in; empty: none
    json::String = ""
    quiet::Bool = false
    help::Bool = false
end

# Bounds of integers.
const BOUNDS = Dict(
    :steps => (1, 100000000),
    :save_every => (1, 100000000),
    :batch => (1, 65536),
    :accumulate => (1, 65536),
    :width => (1, 65536),
    :layers => (0, 1000),
    :context => (1, 65536),
    :seed => (0, 1000000000),
)

function parse_options(words)
    options, next = Options(), 1
    while next <= length(words)
        word = words[next]
        next += 1
        name = startswith(word, "--") && !('_' in word) ? Symbol(replace(word[3:end], '-' => '_')) : :none
        name in fieldnames(Options) ||
            throw(BadInput("$word is no option: --help lists them"))
        if fieldtype(Options, name) == Bool
            setfield!(options, name, true)
            continue
        end
        next <= length(words) && !startswith(words[next], "--") ||
            throw(BadInput("$word needs a value: --help says which"))
        if name == :data
            while next <= length(words) && !startswith(words[next], "--")
                push!(options.data, words[next])
                next += 1
            end
            continue
        end
        setfield!(options, name, read_value(name, word, words[next]))
        next += 1
    end
    options.save_every == 0 || !isempty(options.save) ||
        throw(BadInput("--save-every needs --save DIR: where to"))
    isempty(options.from) || isempty(options.resume) || throw(BadInput(
        "--from and --resume exclude each other: start from published weights, or resume a " *
        "checkpoint"))
    width, context = options.width, options.context
    width % context == 0 || throw(BadInput(
        "--width $width is no multiple of --context $context: take " *
        "$((div(width, context) + 1) * context), for example"))
    return options
end

function read_value(name, word, text)
    if haskey(BOUNDS, name)
        least, most = BOUNDS[name]
        value = tryparse(Int, text)
        value !== nothing && least <= value <= most && return value
        throw(BadInput("$word $text: must be a whole number from $least to $most"))
    elseif name == :lr
        value = tryparse(Float64, text)
        value !== nothing && 0 < value < Inf && return value
        throw(BadInput("$word $text: must be a number above 0"))
    elseif name == :dtype && !haskey(DTYPES, text)
        throw(BadInput("$word $text: must be f32, bf16 or f16"))
    end
    return text
end
