// SPDX-License-Identifier: Apache-2.0
//! What is saved, loaded, written and exported.

use meron_sys as sys;

use crate::dtype::Dtype;
use crate::saved_tensor::CheckpointTensor;
use crate::unit::Unit;

/// Options of a save: its content, and the fate of other checkpoints. By default it saves
/// everything, and other checkpoints stay.
///
/// ```
/// use meron::SaveOptions;
///
/// let options = SaveOptions::new().step(100).keep(2).extra(r#"{"epoch": 3}"#);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to Context::save"]
pub struct SaveOptions {
    pub(crate) step: u64,
    pub(crate) keep: u64,
    pub(crate) extra: Option<String>,
    pub(crate) values_only: bool,
    pub(crate) skip_frozen: bool,
    pub(crate) per_node: bool,
    pub(crate) overwrite: bool,
    pub(crate) mapping: Option<String>,
    pub(crate) tensors: Vec<CheckpointTensor<'static>>,
    pub(crate) units: Option<Vec<sys::meron_unit>>,
}

impl SaveOptions {
    /// The defaults.
    pub fn new() -> SaveOptions {
        SaveOptions::default()
    }

    /// The program's count, 0 by default: the newest checkpoint has the highest.
    pub fn step(mut self, step: u64) -> SaveOptions {
        self.step = step;
        self
    }

    /// So many complete checkpoints stay in the folder; 0, the default: all.
    pub fn keep(mut self, checkpoints: u64) -> SaveOptions {
        self.keep = checkpoints;
        self
    }

    /// The program's own state: the text of a JSON object. Rank 0's is kept.
    pub fn extra(mut self, json: &str) -> SaveOptions {
        self.extra = Some(json.to_string());
        self
    }

    /// Leaves masters and the states of optimizers out.
    pub fn values_only(mut self) -> SaveOptions {
        self.values_only = true;
        self
    }

    /// Leaves frozen params out.
    pub fn skip_frozen(mut self) -> SaveOptions {
        self.skip_frozen = true;
        self
    }

    /// Each node has a folder of its own, such as one on a local disk. Ranks of a node pass the same.
    pub fn per_node(mut self) -> SaveOptions {
        self.per_node = true;
        self
    }

    /// Replaces a checkpoint of that name.
    pub fn overwrite(mut self) -> SaveOptions {
        self.overwrite = true;
        self
    }

    /// Where params are to have other names in the files, also for their states: the text of a JSON object,
    /// `"PARAM": "NAME"`; `""` leaves the param out.
    pub fn mapping(mut self, json: &str) -> SaveOptions {
        self.mapping = Some(json.to_string());
        self
    }

    /// Saves a tensor of the program's own too. Those of all ranks together have each element of a
    /// tensor once.
    pub fn tensor(mut self, tensor: CheckpointTensor<'static>) -> SaveOptions {
        self.tensors.push(tensor);
        self
    }

    /// Saves these units alone, the same on all ranks; by default all. They have all units of the
    /// optimizers and all params of the mapping.
    pub fn units(mut self, units: &[&Unit]) -> SaveOptions {
        self.units = Some(units.iter().map(|unit| unit.as_raw()).collect());
        self
    }
}

/// What is loaded. By default all of it, and it must fit.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to Context::load"]
pub struct LoadOptions {
    pub(crate) lenient: bool,
    pub(crate) values_only: bool,
    pub(crate) rank0_only: bool,
    pub(crate) per_node: bool,
    pub(crate) mapping: Option<String>,
    pub(crate) claimed: Option<String>,
    pub(crate) units: Option<Vec<sys::meron_unit>>,
}

impl LoadOptions {
    /// The defaults.
    pub fn new() -> LoadOptions {
        LoadOptions::default()
    }

    /// Params and tensors that the other side lacks are left alone, and reported by
    /// [`Checkpoint::missing`](crate::Checkpoint::missing) and
    /// [`unexpected`](crate::Checkpoint::unexpected).
    pub fn lenient(mut self) -> LoadOptions {
        self.lenient = true;
        self
    }

    /// Loads values, and masters by them; optimizers keep their states.
    pub fn values_only(mut self) -> LoadOptions {
        self.values_only = true;
        self
    }

    /// Only rank 0 sees the files, and sends each rank what it needs.
    pub fn rank0_only(mut self) -> LoadOptions {
        self.rank0_only = true;
        self
    }

    /// Each node has a folder of its own. A rank of each reads the node's files for all; there may be
    /// other nodes than at the save.
    pub fn per_node(mut self) -> LoadOptions {
        self.per_node = true;
        self
    }

    /// Where params have other names in the files: the text of a JSON object, `"PARAM": "TENSOR"`, or
    /// `"PARAM": ["TENSOR", ...]`, one after the other along the first dimension.
    pub fn mapping(mut self, json: &str) -> LoadOptions {
        self.mapping = Some(json.to_string());
        self
    }

    /// Values of the files that the program reads itself, by [`Checkpoint::read`](crate::Checkpoint::read):
    /// they are not unexpected.
    pub fn claimed(mut self, names: &[&str]) -> LoadOptions {
        self.claimed = Some(names.join("\n"));
        self
    }

    /// Loads these units alone, the same on all ranks; by default all. They have all units of the
    /// optimizers. Others stay as they are.
    pub fn units(mut self, units: &[&Unit]) -> LoadOptions {
        self.units = Some(units.iter().map(|unit| unit.as_raw()).collect());
        self
    }
}

/// Options of a write without a context.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to write_checkpoint"]
pub struct WriteOptions {
    pub(crate) step: u64,
    pub(crate) extra: Option<String>,
    pub(crate) optimizers: Option<String>,
    pub(crate) overwrite: bool,
}

impl WriteOptions {
    /// The defaults.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// The program's count, 0 by default.
    pub fn step(mut self, step: u64) -> WriteOptions {
        self.step = step;
        self
    }

    /// The program's own state: the text of a JSON object.
    pub fn extra(mut self, json: &str) -> WriteOptions {
        self.extra = Some(json.to_string());
        self
    }

    /// The manifest's list of optimizers: the text of a JSON array (docs/checkpoint-format.md).
    pub fn optimizers(mut self, json: &str) -> WriteOptions {
        self.optimizers = Some(json.to_string());
        self
    }

    /// Replaces a checkpoint of that name.
    pub fn overwrite(mut self) -> WriteOptions {
        self.overwrite = true;
        self
    }
}

/// Options of an export.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to Context::export"]
pub struct ExportOptions<'d> {
    pub(crate) dtype: Option<Dtype>,
    pub(crate) max_file_bytes: u64,
    pub(crate) mapping: Option<String>,
    pub(crate) overwrite: bool,
    pub(crate) tensors: Vec<CheckpointTensor<'d>>,
}

impl<'d> ExportOptions<'d> {
    /// The defaults.
    pub fn new() -> ExportOptions<'d> {
        ExportOptions::default()
    }

    /// The dtype of the floating-point values in the files; by default each param's own.
    pub fn dtype(mut self, dtype: Dtype) -> ExportOptions<'d> {
        self.dtype = Some(dtype);
        self
    }

    /// A file is closed before it would exceed so many bytes; by default 5 GB.
    pub fn max_file_bytes(mut self, bytes: u64) -> ExportOptions<'d> {
        self.max_file_bytes = bytes;
        self
    }

    /// Where params have other names in the files: the text of a JSON object, `"PARAM": "NAME"`.
    pub fn mapping(mut self, json: &str) -> ExportOptions<'d> {
        self.mapping = Some(json.to_string());
        self
    }

    /// Replaces a model that is there.
    pub fn overwrite(mut self) -> ExportOptions<'d> {
        self.overwrite = true;
        self
    }

    /// Exports a tensor of the program's own too: of kind `"values"`, whole, of rank 0.
    pub fn tensor(mut self, tensor: CheckpointTensor<'d>) -> ExportOptions<'d> {
        self.tensors.push(tensor);
        self
    }
}
