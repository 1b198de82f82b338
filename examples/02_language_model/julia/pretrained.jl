# SPDX-License-Identifier: Apache-2.0
# Starting from published weights, and publishing the result, in Hugging Face's layout.

# Published files name tensors as transformers names those of GPT-2, and this program by its layers.
# GPT-2's matrices are inputs x outputs too.
const BLOCK_NAMES = (
    "w1" => "mlp.c_fc.weight",
    "b1" => "mlp.c_fc.bias",
    "w2" => "mlp.c_proj.weight",
    "b2" => "mlp.c_proj.bias",
)

"The published name of each param of a model of so many blocks: JSON, \"PARAM\": \"TENSOR\"."
function published_names(blocks)
    head = blocks + 1
    pairs = ["layers.0.bytes" => "transformer.wte.weight"]
    for l in 1:blocks, (here, published) in BLOCK_NAMES
        push!(pairs, "layers.$l.$here" => "transformer.h.$(l - 1).$published")
    end
    push!(pairs, "layers.$head.w" => "lm_head.weight", "layers.$head.b" => "lm_head.bias")
    return "{" * join(("\"$here\": \"$published\"" for (here, published) in pairs), ", ") * "}"
end

# Loads the weights of --from, at any number of ranks and under any plan, and returns what was loaded.
# The optimizer starts anew. Collective. Throws a BadInput on all ranks if there is nothing to start from.
function start_from(trainer)
    folder = trainer.options.from
    try
        release(load_checkpoint!(trainer.context, folder;
            values_only = true, # a published model has no states of an optimizer
            mapping = published_names(trainer.options.layers)))
    catch error
        error isa MeronError || rethrow()
        throw(BadInput("--from $folder: $(error.message)"))
    end
    return "started from the weights of $folder"
end

# Publishes the weights in the directory of --export. Collective.
publish(trainer) = export_model(
    trainer.context, trainer.options.var"export";
    mapping = published_names(trainer.options.layers), overwrite = true) # of an earlier run
