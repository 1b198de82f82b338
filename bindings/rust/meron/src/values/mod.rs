// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs that callers fill, structs that the library fills, and enums: a module for each header.

mod checkpoint;
mod context;
mod gather;
mod group;
mod io;
mod optimizer;
mod param;
mod plan;
mod reduce;
mod schedule;

pub use checkpoint::*;
pub use context::*;
pub use gather::*;
pub use group::*;
pub use io::*;
pub use optimizer::*;
pub use param::*;
pub use plan::*;
pub use reduce::*;
pub use schedule::*;
