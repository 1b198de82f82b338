// SPDX-License-Identifier: Apache-2.0
//! Training with parameters, gradients and optimizer states partitioned over the ranks.
//!
//! Every layer is a unit. It is gathered before its forward pass and released after it, gathered again for
//! its backward pass, which adds the gradients to the unit's bucket; their reduction runs while the layers
//! below compute. The plan decides which states are sharded: no line of this file depends on it.

use std::time::Instant;

use meron::{
    AdamW, Bf16, Context, Dtype, Element, Gather, Group, Operation, Optimizer, Param, ParamDesc,
    ReduceOp, ReduceOptions, Result, Unit, View, ViewMut, F16,
};

use crate::model::{random_bits, Model, MAX_TENSORS};
use crate::options::Options;
use crate::report;

struct Layer {
    unit: Unit,
    params: Vec<Param>,
}

pub struct Trainer<'a> {
    options: &'a Options,
    text: &'a [u8],
    model: Model,
    layers: Vec<Layer>,
    pub optimizer: Optimizer,
    /// Steps that were taken before this run.
    pub first: usize,
    /// Micro-batches that all ranks took in them.
    pub position: u64,
    world: Group,
    rank: usize,
    ranks: usize,
    /// The model computes in f32: these stand in for weights and gradients of 16 bits.
    wide_weights: Vec<Vec<f32>>,
    wide_gradients: Vec<Vec<f32>>,
}

// ---- Setting up ----------------------------------------------------------------------------------

/// Registers the tensors of a layer and makes them a unit.
fn create_layer(context: &Context, model: &Model, l: usize, dtype: Dtype) -> Result<Layer> {
    let mut params = Vec::new();
    for tensor in model.layer_tensors(l) {
        let name = format!("layers.{l}.{}", tensor.name);
        params.push(context.register(&ParamDesc::new(&name, &tensor.shape).dtype(dtype))?);
    }
    let unit = context.unit(&format!("layers.{l}"), &params.iter().collect::<Vec<_>>())?;
    Ok(Layer { unit, params })
}

/// Every rank computes the same initial values; Meron keeps this rank's part of them.
fn write_initial_values(
    context: &Context,
    model: &Model,
    l: usize,
    layer: &Layer,
    seed: u64,
) -> Result<()> {
    let mut update = context.update(&[&layer.unit])?;
    for (i, (tensor, param)) in model.layer_tensors(l).iter().zip(&layer.params).enumerate() {
        let mut values = vec![0.0f32; tensor.count()];
        tensor.initial_values(seed, (l * MAX_TENSORS + i) as u64, &mut values);
        update.write(param, &values)?;
    }
    update.publish()
}

impl<'a> Trainer<'a> {
    /// Makes the model's layers, with their initial values, and the optimizer. Collective.
    pub fn new(context: &Context, options: &'a Options, text: &'a [u8]) -> Result<Trainer<'a>> {
        let model = Model::new(options.batch, options.context, options.width, options.layers);
        let layers: Vec<Layer> = (0..model.layer_count())
            .map(|l| create_layer(context, &model, l, options.dtype))
            .collect::<Result<_>>()?;
        for (l, layer) in layers.iter().enumerate() {
            write_initial_values(context, &model, l, layer, options.seed)?;
        }
        // More momentum would carry the first steps past what they aim at.
        let adamw = AdamW::default().learning_rate(options.learning_rate).beta1(0.6).max_norm(1.0);
        let units: Vec<&Unit> = layers.iter().map(|layer| &layer.unit).collect();
        let optimizer = context.adamw(&units, &adamw)?;

        let mut largest = [0; MAX_TENSORS];
        for layer in &layers {
            for (size, param) in largest.iter_mut().zip(&layer.params) {
                *size = param.count().max(*size as u64) as usize;
            }
        }
        let wide = || largest.iter().map(|&size| vec![0.0f32; size]).collect();
        Ok(Trainer {
            wide_weights: wide(),
            wide_gradients: wide(),
            options,
            text,
            model,
            layers,
            optimizer,
            first: 0,
            position: 0,
            world: context.world()?,
            rank: context.rank() as usize,
            ranks: context.world_size() as usize,
        })
    }

    pub fn parameters(&self) -> u64 {
        self.layers.iter().flat_map(|layer| &layer.params).map(Param::count).sum()
    }

    /// Number of micro-batches of all ranks after `step` steps.
    pub fn micro_batches(&self, step: usize) -> u64 {
        self.position + ((step - self.first) * self.options.accumulate * self.ranks) as u64
    }

    pub fn units(&self) -> usize {
        self.layers.len()
    }
}

// ---- 16 bits -------------------------------------------------------------------------------------

fn widen<T: Element + Into<f32>>(wide: &mut [f32], view: &View<'_>) -> Result<()> {
    for (to, &from) in wide.iter_mut().zip(view.as_slice::<T>()?) {
        *to = from.into();
    }
    Ok(())
}

/// Adds in f32, and rounds once.
fn add_rounded<T: Element + Into<f32>>(
    to: &mut ViewMut<'_>,
    values: &[f32],
    round: fn(f32) -> T,
) -> Result<()> {
    for (half, value) in to.as_mut_slice::<T>()?.iter_mut().zip(values) {
        *half = round((*half).into() + value);
    }
    Ok(())
}

// ---- Training ------------------------------------------------------------------------------------

/// The weights of a full layer, in f32.
fn weights_of<'w>(
    full: &'w Gather,
    layer: &Layer,
    wide: &'w mut [Vec<f32>],
) -> Result<Vec<&'w [f32]>> {
    let mut weights = Vec::with_capacity(layer.params.len());
    for (param, wide) in layer.params.iter().zip(wide) {
        let view = full.view(param)?;
        weights.push(match view.dtype() {
            Dtype::F32 => view.as_slice()?,
            dtype => {
                let wide = &mut wide[..view.len()];
                match dtype {
                    Dtype::Bf16 => widen::<Bf16>(wide, &view)?,
                    _ => widen::<F16>(wide, &view)?,
                }
                wide
            }
        });
    }
    Ok(weights)
}

impl Trainer<'_> {
    fn forward(&mut self, l: usize) -> Result<()> {
        let layer = &self.layers[l];
        let full = layer.unit.gather()?; // until the end of this function
        let weights = weights_of(&full, layer, &mut self.wide_weights)?;
        self.model.forward(self.text, l, &weights);
        Ok(())
    }

    /// Begins the reduction of the layer's gradients, and does not wait for it.
    fn backward(&mut self, l: usize, boundary: bool) -> Result<Operation> {
        let layer = &self.layers[l];
        let params: Vec<&Param> = layer.params.iter().collect();
        let mut gradients = layer.unit.gradients()?;
        let mut views = gradients.views(&params)?;

        let mut places: Vec<&mut [f32]> = Vec::with_capacity(views.len());
        for (view, wide) in views.iter_mut().zip(&mut self.wide_gradients) {
            places.push(match view.dtype() {
                Dtype::F32 => view.as_mut_slice()?,
                _ => {
                    let wide = &mut wide[..view.len()];
                    wide.fill(0.0);
                    wide
                }
            });
        }

        let full = layer.unit.gather()?;
        let weights = weights_of(&full, layer, &mut self.wide_weights)?;
        self.model.backward(self.text, l, &weights, &mut places);
        drop(full);

        for (view, wide) in views.iter_mut().zip(&self.wide_gradients) {
            match view.dtype() {
                Dtype::Bf16 => add_rounded(view, wide, Bf16::from_f32)?,
                Dtype::F16 => add_rounded(view, wide, F16::from_f32)?,
                _ => {}
            }
        }
        let divisor = self.options.accumulate as f64;
        gradients.reduce_begin(&ReduceOptions::default().boundary(boundary).divisor(divisor))
    }

    /// Micro-batches are numbered over all ranks: one process that takes N times as many sees the same
    /// examples as N ranks.
    fn choose_examples(&mut self, round: usize) {
        let micro_batch = self.position + (round * self.ranks + self.rank) as u64;
        let stream = (1 << 32) + micro_batch; // initial values use those below
        let places = (self.text.len() - self.options.context) as u64;
        for (i, window) in self.model.windows.iter_mut().enumerate() {
            *window = (random_bits(self.options.seed, stream, i as u64) % places) as usize;
        }
    }

    /// One step of the optimizer; the sum of the losses of this rank's micro-batches.
    fn train_step(&mut self, step: usize) -> Result<f32> {
        let accumulate = self.options.accumulate;
        let mut loss = 0.0f32;
        for a in 0..accumulate {
            self.choose_examples((step - self.first) * accumulate + a);
            for l in 0..self.layers.len() {
                self.forward(l)?;
            }
            let mut reductions = Vec::with_capacity(self.layers.len());
            for l in (0..self.layers.len()).rev() {
                reductions.push(self.backward(l, a + 1 == accumulate)?);
            }
            for reduction in reductions {
                reduction.wait()?;
            }
            loss += self.model.loss;
        }
        self.optimizer.set_learning_rate(learning_rate(self.options, step))?;
        self.optimizer.step()?;
        Ok(loss)
    }

    /// Takes the steps from `first` on, and shows progress on rank 0. After each it calls `after_step` with
    /// the step's number and this rank's loss. The losses, one per step, are means over all ranks.
    pub fn train(
        &mut self,
        mut after_step: impl FnMut(&Self, usize, f32) -> Result<()>,
    ) -> Result<Vec<f32>> {
        let (first, steps) = (self.first, self.options.steps);
        let every = report::steps_per_report(steps);
        let micro_batches = (self.options.accumulate * self.ranks) as f32;
        let mut progress = report::Progress::new(first, steps);
        let mut losses = Vec::with_capacity(steps - first);
        let mut known = 0;
        let begin = Instant::now();
        for step in first + 1..=steps {
            let loss = self.train_step(step - 1)?;
            losses.push(loss);
            after_step(self, step, loss / self.options.accumulate as f32)?;
            if step % every != 0 && step != steps {
                continue;
            }
            // The losses since the last report, of all ranks.
            let fresh = &mut losses[known..];
            self.world.all_reduce(fresh, ReduceOp::Sum)?;
            let count = fresh.len() as f32;
            let mut mean = 0.0f32;
            for loss in fresh {
                *loss /= micro_batches;
                mean += *loss / count;
            }
            known = step - first;
            if self.rank == 0 && !self.options.quiet {
                progress.show(step, mean, begin.elapsed().as_secs_f64());
            }
        }
        Ok(losses)
    }
}

/// Up to the peak over the first 100 steps, and down to a tenth of it over all steps.
fn learning_rate(options: &Options, step: usize) -> f64 {
    let rise = (step + 1) as f64 / 100.0;
    let fall = 1.0 - 0.9 * step as f64 / options.steps as f64;
    options.learning_rate * if rise < fall { rise } else { fall }
}
