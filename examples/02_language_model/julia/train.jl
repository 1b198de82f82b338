# SPDX-License-Identifier: Apache-2.0
# All that training with Meron takes: units, initial values, gather, reduce, step.

struct Layer
    unit::Unit
    params::Vector{Param}
    tensors::Vector{Tensor}
end

mutable struct Trainer
    context::Context
    options::Options
    text::Vector{UInt8}
    model::Model
    layers::Vector{Layer}
    optimizer::Optimizer
    first::Int # steps that were taken before this run
    position::Int # micro-batches that all ranks took in them
end

# ---- Setting up ----------------------------------------------------------------------------------

function Trainer(context, options, text)
    model = Model(options.batch, options.context, options.width, options.layers)
    layers = [make_layer(context, model, l, DTYPES[options.dtype]) for l in 0:layer_count(model)-1]
    for (l, layer) in enumerate(layers)
        write_initial_values(layer, options.seed, 4 * (l - 1)) # four numbers for a layer's tensors
    end
    units = [layer.unit for layer in layers]
    # More momentum would carry the first steps past what they aim at.
    optimizer = adamw(units; learning_rate = options.lr, beta1 = 0.6, max_norm = 1.0)
    return Trainer(context, options, text, model, layers, optimizer, 0, 0)
end

# Registers the tensors of a layer and makes them a unit.
function make_layer(context, model, l, dtype)
    tensors = layer_tensors(model, l)
    params = [Param(context, "layers.$l.$(t.name)", t.size; dtype = dtype) for t in tensors]
    return Layer(Unit(context, "layers.$l", params), params, tensors)
end

# Every rank computes the same initial values; Meron keeps this rank's part of them.
function write_initial_values(layer, seed, stream)
    Meron.update(layer.unit) do writing
        for (i, (param, tensor)) in enumerate(zip(layer.params, layer.tensors))
            write!(writing, param, initial_values(tensor, seed, stream + i - 1))
        end
    end
end

# Number of micro-batches of all ranks after `step` steps.
micro_batches(trainer, step) = trainer.position +
    (step - trainer.first) * trainer.options.accumulate * trainer.context.world_size

parameter_count(trainer) = sum(length(param) for layer in trainer.layers for param in layer.params)

# ---- Training ------------------------------------------------------------------------------------

# The weights of a full layer in Float32: views in place if they are in Float32 already. They are used
# inside of the gather alone.
weights_of(full, layer) = [widened(full[param]) for param in layer.params]
widened(view::AbstractArray{Float32}) = view
widened(view) = Float32.(view)

function forward(trainer, l, layer)
    gather(layer.unit) do full
        forward!(trainer.model, l, weights_of(full, layer))
    end
end

# Begins the reduction of the layer's gradients, and does not wait for it.
function backward(trainer, l, layer, boundary)
    places = [gradient_view(layer.unit, param) for param in layer.params]
    gradients = map(place -> eltype(place) == Float32 ? place : zeros(Float32, size(place)), places)
    gather(layer.unit) do full
        backward!(trainer.model, l, weights_of(full, layer), gradients)
    end
    for (place, gradient) in zip(places, gradients)
        eltype(place) == Float32 || add_rounded!(place, gradient)
    end
    return reduce_begin!(layer.unit; boundary = boundary, divisor = trainer.options.accumulate)
end

function add_rounded!(place::AbstractArray{T}, gradient) where {T}
    place .= T.(Float32.(place) .+ gradient)
end

# Micro-batches are numbered over all ranks: one process that takes N times as many sees the same
# examples as N ranks.
function choose_examples!(trainer, round)
    model, options = trainer.model, trainer.options
    micro_batch = trainer.position + round * trainer.context.world_size + trainer.context.rank
    stream = (1 << 32) + micro_batch # initial values use those below
    places = UInt64(length(trainer.text) - options.context)
    for i in 1:options.batch
        place = Int(random_bits(options.seed, stream, i - 1) % places)
        model.windows[:, i] = view(trainer.text, place+1:place+options.context+1)
    end
end

# Up to the peak over the first 100 steps, and down to a tenth of it over all steps.
learning_rate(options, step) =
    options.lr * min((step + 1) / 100.0, 1.0 - 0.9 * step / options.steps)

# One step of the optimizer; the sum of the losses of this rank's micro-batches.
function train_step(trainer, step)
    options, layers = trainer.options, trainer.layers
    loss = 0.0f0
    for a in 0:options.accumulate-1
        choose_examples!(trainer, (step - trainer.first) * options.accumulate + a)
        for (l, layer) in enumerate(layers)
            forward(trainer, l - 1, layer)
        end
        boundary = a + 1 == options.accumulate
        reductions = [backward(trainer, l - 1, layers[l], boundary) for l in length(layers):-1:1]
        for reduction in reductions
            wait(reduction)
            release(reduction)
        end
        loss += trainer.model.loss
    end
    set_learning_rate!(trainer.optimizer, learning_rate(options, step))
    step!(trainer.optimizer)
    return loss
end

"The losses of the steps from `first` on, with means over all ranks, and the seconds that they took."
function train(trainer, speaks)
    first, steps = trainer.first, trainer.options.steps
    every = steps < 50 ? 1 : div(steps, 50)
    share = Float32(trainer.options.accumulate * trainer.context.world_size)
    progress, saver = Progress(first, steps, 0), Saver(nothing)
    losses, known = zeros(Float32, steps - first), 0
    begun = time_ns()
    for step in first+1:steps
        done = step - first
        losses[done] = train_step(trainer, step - 1)
        after_step(saver, trainer, step, losses[done] / trainer.options.accumulate)
        step % every == 0 || step == steps || continue

        # The losses since the last report, of all ranks.
        recent = losses[known+1:done]
        allreduce!(recent, trainer.context.world)
        recent ./= share
        losses[known+1:done] = recent
        mean = sum(recent) / length(recent)
        known = done
        speaks && report_progress(progress, step, mean, (time_ns() - begun) / 1e9)
    end
    finish(saver)
    return losses, (time_ns() - begun) / 1e9
end
