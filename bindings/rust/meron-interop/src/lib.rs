// SPDX-License-Identifier: Apache-2.0
//! Memory, log and texts of [`meron`] as the types of other crates.
//!
//! Each feature adds one crate: `half`, `bytemuck`, `ndarray`, `tracing`, `serde`. None is on by default.

#[cfg(feature = "ndarray")]
mod arrays;
#[cfg(feature = "bytemuck")]
mod bytes;
#[cfg(feature = "half")]
mod half;
#[cfg(feature = "serde")]
mod json;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "half")]
pub use crate::half::{elements, elements_vec, from_elements_vec, AsHalf, AsHalfMut, Half};
#[cfg(feature = "tracing")]
pub use crate::tracing::trace;
#[cfg(feature = "ndarray")]
pub use arrays::{as_array, as_array_mut};
#[cfg(feature = "bytemuck")]
pub use bytes::{as_bytes, as_pod};
#[cfg(feature = "serde")]
pub use json::{extra, listed_checkpoints, to_extra, ListedCheckpoint};
