// SPDX-License-Identifier: Apache-2.0
//! Saves checkpoints while training continues, and resumes from them.

use meron::{Context, LoadOptions, Operation, Result, SaveOptions};

use crate::options::Options;
use crate::train::Trainer;

/// Saves checkpoints as --save and --save-every say, in the background.
pub struct Saver<'a> {
    context: &'a Context,
    options: &'a Options,
    saving: Option<Operation>,
}

impl<'a> Saver<'a> {
    pub fn new(context: &'a Context, options: &'a Options) -> Saver<'a> {
        Saver { context, options, saving: None }
    }

    /// After a step: begins to save if it is due, once the save before has ended. The next step waits only
    /// until its states are copied.
    ///
    /// The save also keeps the state of the run that Meron does not have: the choice of examples
    /// depends on the seed and on the number of micro-batches of all ranks.
    pub fn after_step(&mut self, trainer: &Trainer<'_>, step: usize, loss: f32) -> Result<()> {
        let (every, steps) = (self.options.save_every, self.options.steps);
        let folder = match &self.options.save {
            Some(folder) if step == steps || (every > 0 && step % every == 0) => folder,
            _ => return Ok(()),
        };
        self.finish()?;
        let loss = if loss.is_finite() { loss.to_string() } else { "null".to_string() }; // no NaN in JSON
        let (taken, seed) = (trainer.micro_batches(step), self.options.seed);
        let extra = format!("{{\"micro_batches\": {taken}, \"seed\": {seed}, \"loss\": {loss}}}");
        let options = SaveOptions::new()
            .step(step as u64)
            .keep(2)
            .overwrite() // of a run that went on from an earlier step
            .extra(&extra);
        let name = format!("step-{step:06}");
        let optimizers = [&trainer.optimizer];
        self.saving = Some(self.context.save_begin(folder, &name, &optimizers, &options)?);
        Ok(())
    }

    /// Waits until the last save has ended.
    pub fn finish(&mut self) -> Result<()> {
        self.saving.take().map_or(Ok(()), |saving| saving.wait())
    }
}

/// Loads the newest complete checkpoint of `folder`, saved by any number of ranks and any plan, and
/// sets the state from which training continues. Returns a description of the checkpoint, or the
/// error, the same on all ranks. Collective.
pub fn resume(
    context: &Context,
    trainer: &mut Trainer<'_>,
    folder: &str,
    steps: usize,
) -> std::result::Result<String, String> {
    let problem = |error: meron::Error| format!("--resume {folder}: {error}");
    let loaded = context
        .load(folder, None, &mut [&mut trainer.optimizer], &LoadOptions::new())
        .map_err(problem)?;
    let info = loaded.info().map_err(problem)?;
    let path = loaded.path().map_err(problem)?;
    let extra = loaded.extra().map_err(problem)?;
    let path = path.display();
    trainer.position = number(&extra, "micro_batches")
        .ok_or_else(|| format!("--resume {folder}: {path} was not saved by this program"))?;
    trainer.first = info.step as usize;
    if trainer.first >= steps {
        let first = trainer.first;
        return Err(format!(
            "--resume {folder}: step {first} was saved, and --steps {steps} is no more; raise it"
        ));
    }
    let (step, world, many) = (info.step, info.world, if info.world == 1 { "" } else { "s" });
    Ok(format!("resumed step {step} of {path}, saved by {world} rank{many}"))
}

/// A whole number of a flat JSON object.
fn number(json: &str, key: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{key}\":"))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}
