// SPDX-License-Identifier: Apache-2.0
//! ZeRO without the monolith: models whose parameters, gradients and optimizer states are partitioned
//! over ranks.
//!
//! A [`Context`] is this rank's engine. A [`Param`] is a named tensor, a [`Unit`] the params that are
//! gathered together, such as a layer's. A rank holds its shards; [`Unit::gather`] returns the full
//! tensors. [`Unit::gradients`] takes gradients, and [`Optimizer::step`] updates. The [`Plan`]
//! decides how states are sharded over ranks: nothing else changes.
//!
//! ```
//! use meron::{AdamW, Context};
//!
//! let context = Context::open()?;
//! let weight = context.param("weight", &[4, 4])?;
//! let unit = context.unit("layer", &[&weight])?;
//! let mut optimizer = context.adamw(&[&unit], &AdamW::default().learning_rate(0.1))?;
//!
//! for _step in 0..3 {
//!     let layer = unit.gather()?; // whole, until it is dropped
//!     let values = layer.view(&weight)?.as_slice::<f32>()?;
//!
//!     let mut gradients = unit.gradients()?; // where peers read them
//!     let mut place = gradients.view(&weight)?;
//!     for (gradient, value) in place.as_mut_slice::<f32>()?.iter_mut().zip(values) {
//!         *gradient += value - 1.0;
//!     }
//!     drop(layer);
//!     gradients.reduce(&Default::default())?;
//!     optimizer.step()?;
//! }
//! # Ok::<(), meron::Error>(())
//! ```
//!
//! # Checks of the compiler, and checks at run time
//!
//! Slices live no longer than the object that leases their memory: a [`Gather`], an [`Update`],
//! [`Gradients`], [`Reduced`], [`Entered`], [`States`] or [`OwnedStates`]. These keep the context's
//! memory mapped as well, even when it is closed meanwhile. Arrays that an operation uses belong to
//! it until it has ended ([`Transfer`], [`PendingGatherInto`], [`IoRequest`]). Memory of a device is
//! never a slice before the device has written it. Misuse that the compiler cannot detect (two
//! requests for a gradient at a time, a call on an object of a closed context) is an [`Error`],
//! like every failure of the library. No safe call is undefined behaviour, in any order of drops,
//! as long as the peers of this host keep the protocol: they are processes of one user and one job,
//! and may write the memory that they share.
//!
//! # Threads, waiting and async
//!
//! Everything is [`Send`] and [`Sync`]. Calls that wait, poll or [`progress`](Context::progress) move
//! all operations of the context, with these exceptions: a thread of the library copies and writes a
//! save, and one polls MPI under that transport.
//!
//! [`Operation`], [`Transfer`], [`PendingGather`], [`PendingGatherInto`], [`PendingUpdate`],
//! [`IoRequest`] and [`Entering`] are standard futures and need no particular executor. A task that waits is woken by a
//! thread of this crate, `meron-wake`, at most every 2 ms. An executor that can watch a descriptor
//! may use [`event_fd`](Context::event_fd) instead.
//!
//! # Finding the library
//!
//! `meron-sys` links `libmeron.so`, found by `MERON_DIR` (an installation's prefix, or a build folder) or
//! by pkg-config.

// Of those in Cargo.toml also for Rust 1.63, which otherwise finds these blocks unnecessary.
#![deny(unsafe_op_in_unsafe_fn)]

mod bits;
mod borrow;
mod buffer;
mod call;
mod callbacks;
mod checkpoint;
mod checkpoint_options;
mod context;
mod copied;
mod device;
pub mod dlpack;
mod dtype;
mod error;
#[rustfmt::skip] // generated, as are methods and values
mod error_kind;
mod failures;
mod flat;
mod gather;
mod gather_copy;
mod gather_into;
mod gradient;
mod group;
mod handle;
mod home;
mod io;
mod io_borrowed;
mod io_memory;
mod io_request;
mod lease;
#[rustfmt::skip]
mod methods;
mod operation;
mod optimizer;
mod options;
mod param;
mod pending;
mod plan;
mod raw_future;
mod reduce;
#[rustfmt::skip]
mod rules;
mod saved_tensor;
mod saving;
mod schedule;
mod states;
mod system;
mod transport;
mod unit;
mod update;
#[rustfmt::skip]
mod values;
mod view;
mod wake;

pub use buffer::Buffer;
pub use checkpoint::{
    list_checkpoints, open_checkpoint, remove_checkpoint, write_checkpoint, Checkpoint,
};
pub use checkpoint_options::{ExportOptions, LoadOptions, SaveOptions, WriteOptions};
pub use context::Context;
pub use device::{DeviceAllocator, Stream};
pub use dlpack::DlpackTensor;
pub use dtype::{Bf16, Dtype, Element, Number, Plain, F16};
pub use error::{Error, Result};
pub use error_kind::ErrorKind;
pub use flat::{Flat, Gathered};
pub use gather::{Gather, PendingGather};
pub use gather_copy::GatherCopy;
pub use gather_into::PendingGatherInto;
pub use gradient::{Gradients, Reduced};
pub use group::Group;
pub use io::Io;
pub use io_memory::{IoBuffer, IoMemory};
pub use io_request::IoRequest;
pub use operation::{Operation, Transfer};
pub use optimizer::Optimizer;
pub use options::ContextOptions;
pub use param::{Param, ParamDesc};
pub use pending::{wait_any, Pending};
pub use plan::Plan;
pub use reduce::Source;
pub use saved_tensor::{CheckpointTensor, SavedElement};
pub use schedule::{Entered, Entering, Schedule};
pub use states::{OwnedStates, States};
pub use system::{system_info, version};
pub use transport::CustomTransport;
pub use unit::{Unit, UnitInfo};
pub use update::{PendingUpdate, Update};
pub use values::*;
pub use view::{View, ViewMut};

/// The C interface that this crate is made of.
pub use meron_sys as sys;
