# SPDX-License-Identifier: Apache-2.0
# A language model on bytes: it sees the last `context` bytes of a text and predicts the next one. This
# file and matrix.jl do not depend on Meron. The model is a row of layers. Each layer reads its
# weights and writes its gradients at addresses of the caller; train.jl chooses these addresses.
#
#   layer 0              embedding: a row of `bytes` per byte seen, side by side: `width` values
#   layers 1 to blocks   residual block: h + relu(h w1 + b1) w2 + b2
#   layer blocks + 1     head: softmax(h w + b) over the 256 values of the next byte
#
# Sizes are in Julia's column order: what C calls [rows][columns] is (columns, rows).

const BYTE_VALUES = 256

# The C library's, so that every language gets the same bits.
c_exp(x::Float32) = ccall((:expf, "libm.so.6"), Float32, (Float32,), x)
c_log(x::Float32) = ccall((:logf, "libm.so.6"), Float32, (Float32,), x)

struct Tensor
    name::String
    size::Tuple{Vararg{Int}}
    bound::Float64 # initial values are uniform in [-bound, bound)
end

mutable struct Model
    batch::Int
    context::Int
    width::Int
    blocks::Int
    windows::Matrix{UInt8} # (context + 1, batch): bytes of text, the last one to be predicted
    loss::Float32 # of the last forward pass: mean negative log-likelihood, in nats

    # Activations, kept from forward to backward. One column per example.
    hidden::Vector{Matrix{Float32}} # what flows from layer to layer
    inner::Vector{Matrix{Float32}} # relu(h w1 + b1)
    logits_error::Matrix{Float32} # gradient of the loss by the logits
    hidden_error::Matrix{Float32} # by `hidden`, on its way back
    inner_error::Matrix{Float32} # by `inner`
    bytes_error::Matrix{Float32} # by the embedding
    panel::Vector{Float32} # scratch of the matrix product
end

function Model(batch, context, width, blocks)
    row() = zeros(Float32, width, batch)
    return Model(
        batch, context, width, blocks, zeros(UInt8, context + 1, batch), 0.0f0,
        [row() for _ in 0:blocks], [row() for _ in 1:blocks], zeros(Float32, BYTE_VALUES, batch),
        row(), row(), zeros(Float32, div(width, context), BYTE_VALUES),
        zeros(Float32, TILE_COLUMNS * max(batch, width, BYTE_VALUES)),
    )
end

layer_count(model) = model.blocks + 2

"The tensors of a layer, numbered from 0."
function layer_tensors(model, layer)
    width = model.width
    unit = sqrt(3.0 / width) # keeps the variance of what passes through
    layer == 0 && return [Tensor("bytes", (div(width, model.context), BYTE_VALUES), 1.0)]
    layer <= model.blocks && return [
        Tensor("w1", (width, width), sqrt(2.0) * unit),
        Tensor("b1", (width,), 0.0),
        Tensor("w2", (width, width), unit / model.blocks),
        Tensor("b2", (width,), 0.0),
    ]
    return [Tensor("w", (BYTE_VALUES, width), 0.1 * unit), Tensor("b", (BYTE_VALUES,), 0.0)]
end

# ---- Embedding -----------------------------------------------------------------------------------

function embedding_forward!(model, bytes)
    columns, output = div(model.width, model.context), model.hidden[1]
    for i in 1:model.batch, t in 1:model.context
        byte = model.windows[t, i]
        for x in 1:columns
            output[(t-1)*columns+x, i] = bytes[x, byte+1]
        end
    end
end

function embedding_backward!(model, gradient)
    columns, sums = div(model.width, model.context), model.bytes_error
    fill!(sums, 0.0f0)
    for i in 1:model.batch, t in 1:model.context
        byte = model.windows[t, i]
        for x in 1:columns
            sums[x, byte+1] += model.hidden_error[(t-1)*columns+x, i]
        end
    end
    gradient .+= sums
end

# ---- Residual block ------------------------------------------------------------------------------

function block_forward!(model, weights, input, inner, output)
    batch, width, panel = model.batch, model.width, model.panel
    w1, b1, w2, b2 = weights

    inner .= b1
    add_product!(inner, rows_of(input, width), rows_of(w1, width), batch, width, width, panel)
    inner .= ifelse.(inner .> 0.0f0, inner, 0.0f0)

    output .= b2
    add_product!(output, rows_of(inner, width), rows_of(w2, width), batch, width, width, panel)
    output .+= input
end

function block_backward!(model, weights, gradients, input, inner)
    batch, width, panel = model.batch, model.width, model.panel
    w1, w2 = weights[1], weights[3]
    error, inner_error = model.hidden_error, model.inner_error

    add_product!(
        gradients[3], transpose_of(inner, width), rows_of(error, width), width, width, batch, panel)
    add_row_sums!(gradients[4], error, width, batch, panel)

    fill!(inner_error, 0.0f0)
    add_product!(
        inner_error, rows_of(error, width), transpose_of(w2, width), batch, width, width, panel)
    inner_error .= ifelse.(inner .<= 0.0f0, 0.0f0, inner_error)

    add_product!(
        gradients[1], transpose_of(input, width), rows_of(inner_error, width), width, width, batch,
        panel)
    add_row_sums!(gradients[2], inner_error, width, batch, panel)

    # `error` already contains the values of the residual path.
    add_product!(
        error, rows_of(inner_error, width), transpose_of(w1, width), batch, width, width, panel)
end

# ---- Head ----------------------------------------------------------------------------------------

function head_forward!(model, weights, input)
    logits, batch = model.logits_error, model.batch # turned into their error in place
    logits .= weights[2]
    add_product!(
        logits, rows_of(input, model.width), rows_of(weights[1], BYTE_VALUES), batch, BYTE_VALUES,
        model.width, model.panel)

    loss = 0.0
    for i in 1:batch
        target = model.windows[model.context+1, i] + 1
        greatest = logits[1, i]
        for x in 2:BYTE_VALUES
            greatest = logits[x, i] > greatest ? logits[x, i] : greatest
        end
        distance = greatest - logits[target, i]
        sum = 0.0f0
        for x in 1:BYTE_VALUES
            logits[x, i] = c_exp(logits[x, i] - greatest)
            sum += logits[x, i]
        end
        for x in 1:BYTE_VALUES
            logits[x, i] = (logits[x, i] / sum - (x == target ? 1.0f0 : 0.0f0)) / Float32(batch)
        end
        loss += c_log(sum) + distance
    end
    model.loss = Float32(loss / batch)
end

function head_backward!(model, weights, gradients, input)
    batch, width, panel, error = model.batch, model.width, model.panel, model.logits_error
    add_product!(
        gradients[1], transpose_of(input, width), rows_of(error, BYTE_VALUES), width, BYTE_VALUES,
        batch, panel)
    add_row_sums!(gradients[2], error, BYTE_VALUES, batch, panel)
    fill!(model.hidden_error, 0.0f0)
    add_product!(
        model.hidden_error, rows_of(error, BYTE_VALUES), transpose_of(weights[1], BYTE_VALUES),
        batch, width, BYTE_VALUES, panel)
end

# ---- Any layer -----------------------------------------------------------------------------------

"Runs one layer, from 0. Call it for the layers in order; the head sets `model.loss`."
function forward!(model, layer, weights)
    if layer == 0
        embedding_forward!(model, weights[1])
    elseif layer <= model.blocks
        block_forward!(
            model, weights, model.hidden[layer], model.inner[layer], model.hidden[layer+1])
    else
        head_forward!(model, weights, model.hidden[layer])
    end
end

"""
Runs one layer backwards, in reverse order, and ADDS the batch's gradient to `gradients`. It is summed
apart first and added once: two batches in a row give the same bits as two ranks whose gradients are
summed.
"""
function backward!(model, layer, weights, gradients)
    if layer == 0
        embedding_backward!(model, gradients[1])
    elseif layer <= model.blocks
        block_backward!(model, weights, gradients, model.hidden[layer], model.inner[layer])
    else
        head_backward!(model, weights, gradients, model.hidden[layer])
    end
end

# ---- Random numbers ------------------------------------------------------------------------------

# SplitMix64's output function (Steele, Lea and Flood, 2014).
function mix(x::UInt64)
    x += 0x9E3779B97F4A7C15
    x = xor(x, x >> 30) * 0xBF58476D1CE4E5B9
    x = xor(x, x >> 27) * 0x94D049BB133111EB
    return xor(x, x >> 31)
end

"A random number that depends on nothing but its arguments: the same on every rank."
random_bits(seed, stream, index) =
    mix(mix(mix(UInt64(seed)) + UInt64(stream)) + UInt64(index))

"The initial values of a tensor; `stream` numbers the tensors of the model."
function initial_values(tensor, seed, stream)
    values = zeros(Float32, tensor.size)
    for i in 1:length(values)
        zero_to_two = Float32(random_bits(seed, stream, i - 1) >> 40) * Float32(0x1p-23)
        values[i] = (zero_to_two - 1.0f0) * Float32(tensor.bound)
    end
    return values
end
