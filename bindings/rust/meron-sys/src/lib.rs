// SPDX-License-Identifier: Apache-2.0
//! The C interface of libmeron as it stands: no more than its types, constants and functions.
//!
//! Programs use the crate `meron`. This one is generated from the C headers; each function's
//! documentation lists its ownership, blocking, threads and errors. The build finds the library by
//! `MERON_DIR` (an installation's prefix, or a build folder) or by pkg-config.
//!
//! Enumerations are integers here: the library of another version may know values that this crate
//! does not, and a Rust enum with such a value would be undefined behaviour.

#![allow(non_camel_case_types)]

#[rustfmt::skip]
mod generated;

pub use generated::*;
