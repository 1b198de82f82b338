// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/checkpoint.h.

use meron_sys as sys;

/// Information about a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Ranks that saved it.
    pub world: u32,
    /// The caller's count.
    pub step: u64,
    /// Of its files.
    pub bytes: u64,
    /// In the checkpoint.
    pub tensors: u64,
    /// Of its files, by this rank, so far.
    pub bytes_read: u64,
    /// States that it lacks; the load did not change them.
    pub missing: u64,
    /// Tensors that no unit has.
    pub unexpected: u64,
}

impl CheckpointInfo {
    pub(crate) fn of(raw: &sys::meron_checkpoint_info) -> CheckpointInfo {
        CheckpointInfo {
            world: raw.world,
            step: raw.step,
            bytes: raw.bytes,
            tensors: raw.tensors,
            bytes_read: raw.bytes_read,
            missing: raw.missing,
            unexpected: raw.unexpected,
        }
    }
}

/// Progress of a save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveProgress {
    /// True while a save is pending.
    pub saving: bool,
    /// Bytes that this rank writes; 0: not known yet, or no save.
    pub total: u64,
    /// Of these, copied from the units.
    pub copied: u64,
    /// Of these, written to files.
    pub written: u64,
}

impl SaveProgress {
    pub(crate) fn of(raw: &sys::meron_checkpoint_progress) -> SaveProgress {
        SaveProgress {
            saving: raw.saving != 0,
            total: raw.total,
            copied: raw.copied,
            written: raw.written,
        }
    }
}
