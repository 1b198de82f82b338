// SPDX-License-Identifier: Apache-2.0
//! Texts of the library that are JSON, as types.

use std::io;
use std::path::Path;

use meron::{list_checkpoints, Checkpoint};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A complete checkpoint in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedCheckpoint {
    /// Name in the folder.
    pub name: String,
    /// The program's count at the save.
    pub step: u64,
    /// Number of ranks that saved it.
    pub world: u64,
    /// Size of its files.
    pub bytes: u64,
    /// False if params, states or units were left out.
    pub whole: bool,
}

/// The complete checkpoints in a folder, newest first. Blocks on the drive.
///
/// # Errors
///
/// Those of [`list_checkpoints`], as [`io::Error`].
pub fn listed_checkpoints(folder: impl AsRef<Path>) -> io::Result<Vec<ListedCheckpoint>> {
    Ok(serde_json::from_str(&list_checkpoints(folder)?)?)
}

/// A program's own state as text, for [`SaveOptions::extra`](meron::SaveOptions::extra).
///
/// # Errors
///
/// `InvalidData` if the value cannot be written as JSON.
pub fn to_extra<T: Serialize>(value: &T) -> io::Result<String> {
    Ok(serde_json::to_string(value)?)
}

/// The program's own state in a checkpoint. Never blocks.
///
/// # Errors
///
/// `InvalidData` if it is no `T`; those of [`Checkpoint::extra`].
pub fn extra<T: DeserializeOwned>(checkpoint: &Checkpoint) -> io::Result<T> {
    Ok(serde_json::from_str(&checkpoint.extra()?)?)
}
