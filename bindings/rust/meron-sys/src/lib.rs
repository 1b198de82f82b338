// SPDX-License-Identifier: Apache-2.0
//! The C interface of libmeron as it stands: no more than its types, constants and functions.
//!
//! The crate `meron` is what programs use. This one is generated from the C headers;
//! each function's documentation says what it owns, whether it blocks, from which threads it may be
//! called and which errors it gives. The build finds the library by `MERON_DIR` (an installation's
//! prefix, or a build folder) or by pkg-config.
//!
//! Enumerations are integers here: the library of another version may know values that this crate
//! does not, and a Rust enum with such a value would be undefined behaviour.

#![allow(non_camel_case_types)]

#[rustfmt::skip]
mod generated;

pub use generated::*;
