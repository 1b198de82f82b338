// SPDX-License-Identifier: Apache-2.0
//! Ranks that share no memory train one tensor; their bytes move over sockets of this program's own.
//!
//! ```text
//! meron run -n 3 -- custom_transport FOLDER
//! ```
//!
//! The ranks meet in FOLDER. Exit code 0 when every rank saw what it should.

mod sockets;

use std::path::Path;
use std::process::exit;
use std::time::Duration;

use meron::{AdamW, Context};

use sockets::Sockets;

type Failure = Box<dyn std::error::Error>;

/// Of the environment that `meron run` makes.
fn number(name: &str) -> Result<i32, Failure> {
    let text = std::env::var(name).map_err(|_| format!("{name} is not set: start by meron run"))?;
    Ok(text.parse().map_err(|_| format!("{name} is no number: {text}"))?)
}

fn run() -> Result<(), Failure> {
    let folder =
        std::env::args().nth(1).ok_or("usage: meron run -n RANKS -- custom_transport FOLDER")?;
    let (rank, ranks) = (number("MERON_RANK")?, number("MERON_WORLD_SIZE")?);
    let sockets = Sockets::meet(Path::new(&folder), rank, ranks, Duration::from_secs(30))
        .map_err(|error| format!("cannot meet the other ranks in {folder}: {error}"))?;
    let context = Context::options()
        .rank(rank)
        .world_size(ranks)
        .timeout(Duration::from_secs(60))
        .custom("sockets", 1 << 20, sockets)?
        .open()?;

    // From here on nothing depends on the transport. Every value is to become its rank's mean.
    let weight = context.param("weight", &[100, 1000])?;
    let unit = context.unit("layer", &[&weight])?;
    let options = AdamW::default().learning_rate(0.05).weight_decay(0.0);
    let mut optimizer = context.adamw(&[&unit], &options)?;
    for _step in 0..100 {
        let layer = unit.gather()?;
        let values = layer.view(&weight)?.as_slice::<f32>()?;
        let mut gradients = unit.gradients()?;
        let mut place = gradients.view(&weight)?;
        for (gradient, value) in place.as_mut_slice::<f32>()?.iter_mut().zip(values) {
            *gradient += value - rank as f32;
        }
        drop(layer);
        gradients.reduce(&Default::default())?;
        optimizer.step()?;
    }

    let layer = unit.gather()?;
    let values = layer.view(&weight)?.as_slice::<f32>()?;
    let mean = (ranks - 1) as f32 / 2.0;
    let wrong = values.iter().filter(|&&value| (value - mean).abs() > 0.1).count();
    let transport = context.transport();
    println!("rank {rank} of {ranks} over {transport}: {:.3}, to be {mean:.3}", values[0]);
    context.world()?.barrier()?; // keep this rank until the others no longer need it
    if wrong > 0 {
        return Err(format!("rank {rank}: {wrong} values are wrong").into());
    }
    Ok(())
}

fn main() {
    if let Err(error) = run() {
        eprintln!("custom_transport: {error}");
        exit(1);
    }
}
