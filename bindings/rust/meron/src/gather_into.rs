// SPDX-License-Identifier: Apache-2.0
//! Gathers into the program's arrays.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use meron_sys as sys;

use crate::buffer::Buffer;
use crate::call::{nanoseconds, NO_TIMEOUT};
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::flat::Gathered;
use crate::group::table;
use crate::handle::debug_by_handle;
use crate::home::Shared;
use crate::lease::Lease;
use crate::operation::poll_state;
use crate::unit::Unit;
use crate::wake::Backoff;

/// A gather into the program's arrays, which it owns while it is under way.
///
/// It is also a [`std::future::Future`], which polls as [`Operation`](crate::Operation) does.
#[must_use = "the values are only there when the gather has been waited for"]
pub struct PendingGatherInto {
    lease: Option<Lease>, // dropped first: then the library writes to the arrays no more
    arrays: Vec<Buffer>,
    backoff: Backoff,
}

debug_by_handle!([] PendingGatherInto: "PendingGatherInto");

impl PendingGatherInto {
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        unit: sys::meron_unit,
        arrays: Vec<(Gathered<'_>, Buffer)>,
    ) -> Result<PendingGatherInto> {
        let (mut params, mut flats) = (Vec::new(), Vec::new());
        let mut kept = Vec::with_capacity(arrays.len());
        for (wanted, mut array) in arrays {
            if array.dtype() != wanted.dtype() {
                let (what, is, other) = (wanted.describe(), wanted.dtype(), array.dtype());
                return Err(Error::argument(
                    wanted.subject(),
                    &format!("{what} is {is}, its destination {other}"),
                    "pass an array of the same dtype",
                ));
            }
            let bytes = (array.len() * array.dtype().size()) as u64;
            let data = array.as_mut_ptr();
            match wanted {
                Gathered::Param(param) => {
                    params.push(sys::meron_destination { param: param.as_raw(), data, bytes })
                }
                Gathered::Flat(flat) => flats.push(sys::meron_flat_destination {
                    unit: flat.raw_unit(),
                    flat: flat.index() as u64,
                    data,
                    bytes,
                }),
            }
            kept.push(array);
        }
        let options = sys::meron_gather_options {
            mode: sys::MERON_GATHER_INTO,
            destinations: table(&params),
            destination_count: params.len() as u64,
            flats: table(&flats),
            flat_count: flats.len() as u64,
            ..sys::MERON_GATHER_OPTIONS_INIT
        };
        let lease = Lease::begin(shared, &[unit], &options, Memory::Host)?;
        Ok(PendingGatherInto { lease: Some(lease), arrays: kept, backoff: Backoff::default() })
    }

    /// Waits until the tensors are full, and gives the arrays back in the order in which they came.
    ///
    /// Blocks as [`Operation::wait`](crate::Operation::wait). If that fails, the gather is
    /// cancelled and the arrays are dropped.
    pub fn wait(mut self) -> Result<Vec<Buffer>> {
        self.lease()?.wait(NO_TIMEOUT)?;
        Ok(self.take())
    }

    /// The handle of the C interface, for calls of `meron-sys`; null when it has been awaited.
    pub fn as_raw(&self) -> sys::meron_future {
        self.lease.as_ref().map_or(sys::meron_future::default(), Lease::as_raw)
    }

    /// Waits at most so long; as [`PendingGather::wait_timeout`](crate::PendingGather::wait_timeout).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.lease()?.wait(nanoseconds(timeout))
    }

    /// True if the tensors are full; never blocks on peers.
    pub fn is_done(&self) -> Result<bool> {
        self.lease()?.poll()
    }

    fn lease(&self) -> Result<&Lease> {
        self.lease.as_ref().ok_or_else(|| {
            Error::state("", "this gather has been awaited already", "use what it gave")
        })
    }

    /// The arrays, after the lease that let the library write to them.
    fn take(&mut self) -> Vec<Buffer> {
        self.lease = None;
        std::mem::take(&mut self.arrays)
    }
}

impl Future for PendingGatherInto {
    type Output = Result<Vec<Buffer>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Result<Vec<Buffer>>> {
        let arrays = self.is_done().map(|done| done.then(|| self.take()));
        poll_state(arrays, &mut self.backoff, task)
    }
}

impl Unit {
    /// Begins to gather into the program's arrays: one per param or [`Flat`](crate::Flat) that is
    /// wanted, of exactly its size and dtype. They come back when it is waited for. A vector of both
    /// kinds is one of [`Gathered`].
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for another size or dtype, and a flat of another
    /// unit; [`Duplicate`](crate::ErrorKind::Duplicate) for a flat twice, and a param with its flat.
    pub fn gather_into_begin<'a, W: Into<Gathered<'a>>>(
        &self,
        arrays: Vec<(W, Buffer)>,
    ) -> Result<PendingGatherInto> {
        let arrays = arrays.into_iter().map(|(wanted, array)| (wanted.into(), array)).collect();
        PendingGatherInto::begin(self.shared(), self.as_raw(), arrays)
    }
}
