// SPDX-License-Identifier: Apache-2.0
//! The part of a context that saves, loads and exports: all ranks together.

use std::path::Path;
use std::time::Duration;

use meron_sys as sys;

use crate::borrow::{InUse, StateUse, StatesInUse, Use};
use crate::call::{c_string, check, nanoseconds, receive, sized, NO_TIMEOUT};
use crate::checkpoint::{optional, pointer, Checkpoint};
use crate::checkpoint_options::{ExportOptions, LoadOptions, SaveOptions};
use crate::context::Context;
use crate::copied::wait_copied;
use crate::error::{Error, Result};
use crate::group::table;
use crate::io::c_path;
use crate::operation::Operation;
use crate::optimizer::Optimizer;
use crate::saved_tensor::{owners, RawTensors};
use crate::values::SaveProgress;

/// The units of an option; none of them stands for all.
fn chosen(units: &Option<Vec<sys::meron_unit>>) -> Result<&[sys::meron_unit]> {
    match units {
        Some(units) if units.is_empty() => {
            Err(Error::argument("units", "no units are given", "give some, or leave them out"))
        }
        Some(units) => Ok(units),
        None => Ok(&[]),
    }
}

/// Checkpoints: the states of all units, saved and loaded by all ranks together.
///
/// ```
/// use meron::{AdamW, Context, LoadOptions, SaveOptions};
///
/// # let folder = std::env::temp_dir().join(format!("meron-doc-save-{}", std::process::id()));
/// let context = Context::open()?;
/// let table = context.param("table", &[8, 1000])?;
/// let unit = context.unit("table", &[&table])?;
/// let mut optimizer = context.adamw(&[&unit], &AdamW::default())?;
///
/// let options = SaveOptions::new().step(100).keep(2).extra(r#"{"epoch": 3}"#);
/// let saving = context.save_begin(&folder, "step-100", &[&optimizer], &options)?;
/// // ... forward and backward continue ... saving.wait()?;
///
/// let loaded = context.load(&folder, None, &mut [&mut optimizer], &LoadOptions::new())?;
/// assert_eq!(loaded.info()?.step, 100);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), meron::Error>(())
/// ```
impl Context {
    /// Saves as [`save_begin`](Context::save_begin) does, and waits for the end.
    pub fn save(
        &self,
        folder: impl AsRef<Path>,
        name: &str,
        optimizers: &[&Optimizer],
        options: &SaveOptions,
    ) -> Result<()> {
        self.save_begin(folder, name, optimizers, options)?.wait()
    }

    /// Begins to save the current states of all units as `name` in `folder`. All ranks see the
    /// folder, and the save creates it if it does not exist. Collective over the world.
    ///
    /// The checkpoint is complete or does not exist, and any number of ranks can load it. A thread
    /// of the library copies and writes while gathers, forward and backward continue; a step or an
    /// update waits until its units are copied. The operation returns a failure of any rank on all
    /// ranks, and so does the next save if no call has waited for the operation. Existing
    /// checkpoints stay, and training can continue.
    ///
    /// A save within an accumulation has what the last update left, and gradients stay as they are.
    /// Blocks until the save before has ended.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a name that will not do, `extra` is no JSON object),
    /// [`Duplicate`](crate::ErrorKind::Duplicate) (the name is taken),
    /// [`State`](crate::ErrorKind::State) (a step is under way, a unit is updated or in use,
    /// [`Optimizer::states_owned`] are alive),
    /// [`Unsupported`](crate::ErrorKind::Unsupported) (a unit of some ranks only), [`NoSpace`](crate::ErrorKind::NoSpace), [`Io`](crate::ErrorKind::Io); those of
    /// [`Operation::wait`].
    pub fn save_begin(
        &self,
        folder: impl AsRef<Path>,
        name: &str,
        optimizers: &[&Optimizer],
        options: &SaveOptions,
    ) -> Result<Operation> {
        self.shared().require_open()?;
        for optimizer in optimizers {
            optimizer.require_hidden()?;
        }
        let folder = c_path(folder.as_ref())?;
        let name = c_string(name, "the name of a checkpoint")?;
        let extra = optional(options.extra.as_deref(), "extra")?;
        let mapping = optional(options.mapping.as_deref(), "mapping")?;
        let tensors = RawTensors::new(&options.tensors)?;
        let units = chosen(&options.units)?;
        let handles: Vec<_> = optimizers.iter().map(|optimizer| optimizer.as_raw()).collect();
        let raw = sys::meron_checkpoint_save_options {
            values_only: options.values_only.into(),
            skip_frozen: options.skip_frozen.into(),
            per_node: options.per_node.into(),
            overwrite: options.overwrite.into(),
            step: options.step,
            keep: options.keep,
            extra: pointer(&extra),
            mapping: pointer(&mapping),
            optimizers: table(&handles),
            optimizer_count: handles.len() as u64,
            tensors: tensors.first(),
            tensor_count: tensors.count(),
            units: table(units),
            unit_count: units.len() as u64,
            ..sys::MERON_CHECKPOINT_SAVE_OPTIONS_INIT
        };
        // SAFETY: texts and tables are copied during the call; the elements of tensors are kept below.
        // States that are read in the background are not written meanwhile: updates wait, and
        // Optimizer::states refuses.
        let handle = receive(sys::meron_future::default(), |out, err| unsafe {
            let (folder, name) = (folder.as_ptr(), name.as_ptr());
            sys::meron_checkpoint_save_begin(out, self.as_raw(), folder, name, &raw, err)
        })?;
        let save = Operation::new(handle, self.shared());
        let owners = owners(&options.tensors);
        if !owners.is_empty() {
            self.shared().abandon(save.future().clone(), Box::new(owners));
        }
        Ok(save)
    }

    /// Waits until the save under way has copied what it saves: the next step then waits for nothing.
    /// Returns at once if no save is under way, also if it has failed. Blocks on the drive.
    pub fn wait_copied(&self) -> Result<()> {
        self.wait_copied_ns(NO_TIMEOUT).map(drop)
    }

    /// Waits at most so long. `false` when that has passed first.
    pub fn wait_copied_timeout(&self, timeout: Duration) -> Result<bool> {
        self.wait_copied_ns(nanoseconds(timeout))
    }

    fn wait_copied_ns(&self, timeout: i64) -> Result<bool> {
        self.shared().require_open()?;
        wait_copied(self.as_raw(), timeout)
    }

    /// How far the save under way is, or how far the last one came. Never blocks.
    pub fn save_progress(&self) -> Result<SaveProgress> {
        self.shared().require_open()?;
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_checkpoint_progress), |out, err| unsafe {
            sys::meron_checkpoint_get_progress(out, self.as_raw(), err)
        })?;
        Ok(SaveProgress::of(&raw))
    }

    /// Loads a checkpoint into all units, whatever world and plan saved it: values, masters, states,
    /// counts of steps and the numbers of groups of the optimizers, which are given as they were to the
    /// save. Collective over the world.
    ///
    /// `folder`: of checkpoints, or one of them; with [`LoadOptions::values_only`] also a model as
    /// Hugging Face publishes it, a directory or one file. `name`: `None` for the newest complete one.
    /// Before anything changes, all ranks have compared names, shapes and optimizers, and opened the
    /// files: such an error leaves everything as it was. An error after that breaks the group.
    ///
    /// Blocks on the drive and on all ranks.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound), [`Corrupt`](crate::ErrorKind::Corrupt) (names tensor,
    /// file and offset), [`Version`](crate::ErrorKind::Version) (of a newer one),
    /// [`Argument`](crate::ErrorKind::Argument) (it does not fit: what is missing, unexpected and of
    /// another shape is listed), [`State`](crate::ErrorKind::State) as
    /// [`save_begin`](Context::save_begin), for a gradient that is not empty, while values or states
    /// are in use, and while an export runs; [`Io`](crate::ErrorKind::Io), [`NoMemory`](crate::ErrorKind::NoMemory),
    /// [`Auth`](crate::ErrorKind::Auth) (a link); those of [`Operation::wait`].
    pub fn load(
        &self,
        folder: impl AsRef<Path>,
        name: Option<&str>,
        optimizers: &mut [&mut Optimizer],
        options: &LoadOptions,
    ) -> Result<Checkpoint> {
        let _open = self.shared().open()?;
        // No slice shows values or states while they are written: of the units there are now, and of
        // those that another thread makes meanwhile.
        let _states = StatesInUse::begin(&self.shared().state_uses, StateUse::Loaded)?;
        let _in_use = InUse::begin_all(&self.shared().units(), Use::WriteValues)?;
        let folder = c_path(folder.as_ref())?;
        let name = optional(name, "the name of a checkpoint")?;
        let mapping = optional(options.mapping.as_deref(), "mapping")?;
        let claimed = optional(options.claimed.as_deref(), "claimed")?;
        let units = chosen(&options.units)?;
        let handles: Vec<_> = optimizers.iter().map(|optimizer| optimizer.as_raw()).collect();
        let raw = sys::meron_checkpoint_load_options {
            lenient: options.lenient.into(),
            values_only: options.values_only.into(),
            rank0_only: options.rank0_only.into(),
            per_node: options.per_node.into(),
            optimizers: table(&handles),
            optimizer_count: handles.len() as u64,
            mapping: pointer(&mapping),
            claimed: pointer(&claimed),
            units: table(units),
            unit_count: units.len() as u64,
            ..sys::MERON_CHECKPOINT_LOAD_OPTIONS_INIT
        };
        // SAFETY: texts and tables are only read, during the call.
        let handle = receive(sys::meron_checkpoint::default(), |out, err| unsafe {
            let (folder, name) = (folder.as_ptr(), pointer(&name));
            sys::meron_checkpoint_load(out, self.as_raw(), folder, name, &raw, err)
        })?;
        Ok(Checkpoint::new(handle))
    }

    /// Writes the values of all units as Hugging Face publishes models: `model.safetensors`, or several
    /// files with an index, in a folder that all ranks see. Collective over the world; each rank
    /// writes its own shard of each tensor in place, so nothing is gathered. A former model stays
    /// until the new files are complete; other files of the folder are unchanged.
    ///
    /// Blocks on the drive and on all ranks.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument), [`Duplicate`](crate::ErrorKind::Duplicate) (a model is
    /// there), [`State`](crate::ErrorKind::State) and [`Unsupported`](crate::ErrorKind::Unsupported) as
    /// [`save_begin`](Context::save_begin), State also while
    /// [`Optimizer::states`](crate::Optimizer::states) lives, [`NoSpace`](crate::ErrorKind::NoSpace),
    /// [`Io`](crate::ErrorKind::Io); those of [`Operation::wait`].
    pub fn export(&self, folder: impl AsRef<Path>, options: &ExportOptions<'_>) -> Result<()> {
        self.shared().require_open()?;
        // Masters are read on another thread of the library.
        let _states = StatesInUse::begin(&self.shared().state_uses, StateUse::Exported)?;
        let folder = c_path(folder.as_ref())?;
        let mapping = optional(options.mapping.as_deref(), "mapping")?;
        let tensors = RawTensors::new(&options.tensors)?;
        let initial = sys::MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
        let raw = sys::meron_checkpoint_export_options {
            dtype: options.dtype.map_or(initial.dtype, |dtype| dtype.code()),
            keep_dtype: options.dtype.is_none().into(),
            overwrite: options.overwrite.into(),
            max_file_bytes: options.max_file_bytes,
            mapping: pointer(&mapping),
            tensors: tensors.first(),
            tensor_count: tensors.count(),
            ..initial
        };
        // SAFETY: everything is only read, during the call.
        check(|err| unsafe {
            sys::meron_checkpoint_export(self.as_raw(), folder.as_ptr(), &raw, err)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved_tensor::CheckpointTensor;

    #[test]
    fn arrays_are_freed_by_the_wait_for_their_operation() {
        let folder = std::env::temp_dir().join(format!("meron-rust-{}-kept", std::process::id()));
        let context = Context::options().rank(0).world_size(1).threads(1).open().unwrap();
        let tensor = CheckpointTensor::new("own", &[3], vec![1.0f32; 3]);
        let options = SaveOptions::new().tensor(tensor);
        let saving = context.save_begin(&folder, "a", &[], &options).unwrap();
        assert_eq!(context.shared().abandoned(), 1);
        saving.wait().unwrap();
        assert_eq!(context.shared().abandoned(), 0);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
