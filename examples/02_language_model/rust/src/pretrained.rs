// SPDX-License-Identifier: Apache-2.0
//! Starting from published weights, and publishing the result, in Hugging Face's layout.

use meron::{Context, ExportOptions, LoadOptions, Result};

/// Published files name tensors as transformers names those of GPT-2, and this program by its layers.
/// GPT-2's matrices are inputs x outputs too.
const BLOCK_NAMES: [(&str, &str); 4] = [
    ("w1", "mlp.c_fc.weight"),
    ("b1", "mlp.c_fc.bias"),
    ("w2", "mlp.c_proj.weight"),
    ("b2", "mlp.c_proj.bias"),
];

/// The published name of each param of a model of so many blocks: JSON, `"PARAM": "TENSOR"`.
fn names(blocks: usize) -> String {
    let head = blocks + 1;
    let mut pairs = vec![r#""layers.0.bytes": "transformer.wte.weight""#.to_string()];
    for l in 1..head {
        for (here, published) in BLOCK_NAMES {
            let block = l - 1;
            pairs.push(format!(r#""layers.{l}.{here}": "transformer.h.{block}.{published}""#));
        }
    }
    pairs.push(format!(r#""layers.{head}.w": "lm_head.weight""#));
    pairs.push(format!(r#""layers.{head}.b": "lm_head.bias""#));
    format!("{{{}}}", pairs.join(", "))
}

/// Loads the weights of `folder`, at any number of ranks and under any plan. The optimizer starts anew.
/// Returns a description of the weights, or the error, the same on all ranks. Collective.
pub fn start_from(
    context: &Context,
    blocks: usize,
    folder: &str,
) -> std::result::Result<String, String> {
    // A published model has no states of an optimizer.
    let options = LoadOptions::new().values_only().mapping(&names(blocks));
    match context.load(folder, None, &mut [], &options) {
        Ok(_) => Ok(format!("started from the weights of {folder}")),
        Err(error) => Err(format!("--from {folder}: {error}")),
    }
}

/// Publishes the weights in `folder`. Collective.
pub fn publish(context: &Context, blocks: usize, folder: &str) -> Result<()> {
    let options = ExportOptions::new().mapping(&names(blocks)).overwrite(); // of an earlier run
    context.export(folder, &options)
}
