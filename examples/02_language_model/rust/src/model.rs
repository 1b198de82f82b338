// SPDX-License-Identifier: Apache-2.0
//! A language model on bytes: it sees the last `context` bytes of a text and predicts the next one. This
//! file and matrix.rs do not depend on Meron. The model is a row of layers. Each layer reads its
//! weights and writes its gradients at addresses of the caller; train.rs chooses these addresses.
//!
//! ```text
//! layer 0               embedding: a row of `bytes` per byte seen, side by side: `width` values
//! layers 1 .. blocks    residual block: h + relu(h w1 + b1) w2 + b2
//! layer blocks + 1      head: softmax(h w + b) over the 256 values of the next byte
//! ```

use crate::matrix::{add_product, add_row_sums, rows_of, transpose_of, TILE_COLUMNS};

pub const BYTE_VALUES: usize = 256;
pub const MAX_TENSORS: usize = 4;

/// Description of a layer's tensor.
pub struct Tensor {
    pub name: &'static str,
    /// Row-major: inputs x outputs, or a vector.
    pub shape: Vec<i64>,
    /// Initial values are uniform in [-bound, bound).
    bound: f64,
}

pub struct Model {
    batch: usize,
    context: usize,
    width: usize,
    blocks: usize,
    /// Where each example begins in the text: `context` bytes, then the one to predict.
    pub windows: Vec<usize>,
    /// Of the last forward pass: mean negative log-likelihood, in nats.
    pub loss: f32,

    // Activations, kept from forward to backward. One row per example.
    hidden: Vec<f32>, // [blocks + 1][batch][width] what flows from layer to layer
    inner: Vec<f32>,  // [blocks][batch][width]     relu(h w1 + b1)
    logits_error: Vec<f32>, // [batch][256]               gradient of the loss by the logits
    hidden_error: Vec<f32>, // [batch][width]             by `hidden`, on its way back
    inner_error: Vec<f32>, // [batch][width]             by `inner`
    bytes_error: Vec<f32>, // [256][width / context]     by the embedding
    panel: Vec<f32>,  // scratch of the matrix product
}

impl Model {
    pub fn new(batch: usize, context: usize, width: usize, blocks: usize) -> Model {
        let longest = batch.max(width).max(BYTE_VALUES);
        Model {
            batch,
            context,
            width,
            blocks,
            windows: vec![0; batch],
            loss: 0.0,
            hidden: vec![0.0; (blocks + 1) * batch * width],
            inner: vec![0.0; blocks * batch * width],
            logits_error: vec![0.0; batch * BYTE_VALUES],
            hidden_error: vec![0.0; batch * width],
            inner_error: vec![0.0; batch * width],
            bytes_error: vec![0.0; BYTE_VALUES * (width / context)],
            panel: vec![0.0; TILE_COLUMNS * longest],
        }
    }

    pub fn layer_count(&self) -> usize {
        self.blocks + 2
    }

    pub fn layer_tensors(&self, layer: usize) -> Vec<Tensor> {
        let width = self.width as i64;
        let values = BYTE_VALUES as i64;
        let unit = (3.0 / self.width as f64).sqrt(); // keeps the variance of what passes through
        let tensor = |name, shape: &[i64], bound| Tensor { name, shape: shape.to_vec(), bound };
        if layer == 0 {
            vec![tensor("bytes", &[values, width / self.context as i64], 1.0)]
        } else if layer <= self.blocks {
            vec![
                tensor("w1", &[width, width], 2.0f64.sqrt() * unit),
                tensor("b1", &[width], 0.0),
                tensor("w2", &[width, width], unit / self.blocks as f64),
                tensor("b2", &[width], 0.0),
            ]
        } else {
            vec![tensor("w", &[width, values], 0.1 * unit), tensor("b", &[values], 0.0)]
        }
    }

    /// Runs one layer. Call it for the layers in order; the head sets `loss`.
    pub fn forward(&mut self, text: &[u8], layer: usize, weights: &[&[f32]]) {
        let size = self.batch * self.width;
        if layer == 0 {
            self.embedding_forward(text, weights[0]);
        } else if layer <= self.blocks {
            let (input, output) = self.hidden.split_at_mut(layer * size);
            let (input, output) = (&input[(layer - 1) * size..], &mut output[..size]);
            let inner = &mut self.inner[(layer - 1) * size..layer * size];
            let shape = (self.batch, self.width, self.width);

            set_rows(inner, weights[1]);
            let (h, w1) = (rows_of(input, self.width), rows_of(weights[0], self.width));
            add_product(inner, h, w1, shape, &mut self.panel);
            for value in inner.iter_mut() {
                *value = if *value > 0.0 { *value } else { 0.0 };
            }

            set_rows(output, weights[3]);
            let (r, w2) = (rows_of(inner, self.width), rows_of(weights[2], self.width));
            add_product(output, r, w2, shape, &mut self.panel);
            for (value, residual) in output.iter_mut().zip(input) {
                *value += residual;
            }
        } else {
            self.head_forward(text, weights);
        }
    }

    /// Runs one layer backwards, in reverse order, and ADDS the batch's gradient to `gradients`. It is
    /// summed apart first and added once: two batches in a row give the same bits as two ranks whose
    /// gradients are summed.
    pub fn backward(
        &mut self,
        text: &[u8],
        layer: usize,
        weights: &[&[f32]],
        gradients: &mut [&mut [f32]],
    ) {
        if layer == 0 {
            self.embedding_backward(text, gradients[0]);
        } else if layer <= self.blocks {
            self.block_backward(layer, weights, gradients);
        } else {
            self.head_backward(weights, gradients);
        }
    }

    // ---- Embedding -----------------------------------------------------------------------------

    fn embedding_forward(&mut self, text: &[u8], bytes: &[f32]) {
        let columns = self.width / self.context;
        for (i, &window) in self.windows.iter().enumerate() {
            for t in 0..self.context {
                let from = text[window + t] as usize * columns;
                let to = i * self.width + t * columns;
                self.hidden[to..to + columns].copy_from_slice(&bytes[from..from + columns]);
            }
        }
    }

    fn embedding_backward(&mut self, text: &[u8], gradient: &mut [f32]) {
        let columns = self.width / self.context;
        self.bytes_error.fill(0.0);
        for (i, &window) in self.windows.iter().enumerate() {
            for t in 0..self.context {
                let from = i * self.width + t * columns;
                let to = text[window + t] as usize * columns;
                let errors = &self.hidden_error[from..from + columns];
                for (sum, error) in self.bytes_error[to..to + columns].iter_mut().zip(errors) {
                    *sum += error;
                }
            }
        }
        for (value, sum) in gradient.iter_mut().zip(&self.bytes_error) {
            *value += sum;
        }
    }

    // ---- Residual block ------------------------------------------------------------------------

    fn block_backward(&mut self, layer: usize, weights: &[&[f32]], gradients: &mut [&mut [f32]]) {
        let (batch, width) = (self.batch, self.width);
        let size = batch * width;
        let input = &self.hidden[(layer - 1) * size..layer * size];
        let inner = &self.inner[(layer - 1) * size..layer * size];
        let (by_weight, by_row) = ((width, width, batch), (batch, width, width));

        let error = rows_of(&self.hidden_error, width);
        add_product(gradients[2], transpose_of(inner, width), error, by_weight, &mut self.panel);
        add_row_sums(gradients[3], &self.hidden_error, width, batch, &mut self.panel);

        self.inner_error.fill(0.0);
        let w2 = transpose_of(weights[2], width);
        add_product(&mut self.inner_error, error, w2, by_row, &mut self.panel);
        for (error, value) in self.inner_error.iter_mut().zip(inner) {
            if *value <= 0.0 {
                *error = 0.0;
            }
        }

        let error = rows_of(&self.inner_error, width);
        add_product(gradients[0], transpose_of(input, width), error, by_weight, &mut self.panel);
        add_row_sums(gradients[1], &self.inner_error, width, batch, &mut self.panel);

        // `hidden_error` already contains the values of the residual path.
        let w1 = transpose_of(weights[0], width);
        add_product(&mut self.hidden_error, error, w1, by_row, &mut self.panel);
    }

    // ---- Head ----------------------------------------------------------------------------------

    fn head_forward(&mut self, text: &[u8], weights: &[&[f32]]) {
        let (batch, width) = (self.batch, self.width);
        let input = rows_of(&self.hidden[self.blocks * batch * width..], width);
        let logits = &mut self.logits_error; // turned into their error in place
        set_rows(logits, weights[1]);
        let w = rows_of(weights[0], BYTE_VALUES);
        add_product(logits, input, w, (batch, BYTE_VALUES, width), &mut self.panel);

        let mut loss = 0.0f64;
        for (row, &window) in logits.chunks_exact_mut(BYTE_VALUES).zip(&self.windows) {
            let target = text[window + self.context] as usize;
            let greatest = row.iter().fold(row[0], |most, &x| if x > most { x } else { most });
            let distance = greatest - row[target];
            let mut sum = 0.0f32;
            for value in row.iter_mut() {
                *value = (*value - greatest).exp();
                sum += *value;
            }
            for (x, value) in row.iter_mut().enumerate() {
                let wanted = if x == target { 1.0 } else { 0.0 };
                *value = (*value / sum - wanted) / batch as f32;
            }
            loss += f64::from(sum.ln() + distance);
        }
        self.loss = (loss / batch as f64) as f32;
    }

    fn head_backward(&mut self, weights: &[&[f32]], gradients: &mut [&mut [f32]]) {
        let (batch, width) = (self.batch, self.width);
        let input = transpose_of(&self.hidden[self.blocks * batch * width..], width);
        let error = rows_of(&self.logits_error, BYTE_VALUES);
        let shape = (width, BYTE_VALUES, batch);
        add_product(gradients[0], input, error, shape, &mut self.panel);
        add_row_sums(gradients[1], &self.logits_error, BYTE_VALUES, batch, &mut self.panel);
        self.hidden_error.fill(0.0);
        let w = transpose_of(weights[0], BYTE_VALUES);
        let shape = (batch, width, BYTE_VALUES);
        add_product(&mut self.hidden_error, error, w, shape, &mut self.panel);
    }
}

/// Every row of `c` becomes `row`.
fn set_rows(c: &mut [f32], row: &[f32]) {
    for line in c.chunks_exact_mut(row.len()) {
        line.copy_from_slice(row);
    }
}

// ---- Random numbers ------------------------------------------------------------------------------

/// SplitMix64's output function (Steele, Lea and Flood, 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A random number that depends on nothing but its arguments: the same on every rank.
pub fn random_bits(seed: u64, stream: u64, index: u64) -> u64 {
    mix(mix(mix(seed).wrapping_add(stream)).wrapping_add(index))
}

impl Tensor {
    pub fn count(&self) -> usize {
        self.shape.iter().product::<i64>() as usize
    }

    /// Its initial values; `stream` numbers the tensors of the model.
    pub fn initial_values(&self, seed: u64, stream: u64, values: &mut [f32]) {
        const STEP: f32 = 1.0 / (1 << 23) as f32;
        for (i, value) in values.iter_mut().enumerate() {
            let zero_to_two = (random_bits(seed, stream, i as u64) >> 40) as f32 * STEP;
            *value = (zero_to_two - 1.0) * self.bound as f32;
        }
    }
}
