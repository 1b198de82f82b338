// SPDX-License-Identifier: Apache-2.0
//! Gathers into the program's arrays.

use std::sync::Arc;
use std::time::Duration;

use meron_sys as sys;

use crate::buffer::Buffer;
use crate::call::{nanoseconds, NO_TIMEOUT};
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::flat::Gathered;
use crate::group::table;
use crate::home::Shared;
use crate::lease::Lease;
use crate::unit::Unit;

/// A gather into the program's arrays, which it owns while it is under way.
#[must_use = "the values are only there when the gather has been waited for"]
pub struct PendingGatherInto {
    lease: Lease, // dropped first: then the library writes to the arrays no more
    arrays: Vec<Buffer>,
}

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
        Ok(PendingGatherInto { lease, arrays: kept })
    }

    /// Waits until the tensors are full, and gives the arrays back in the order in which they came.
    ///
    /// Blocks as [`Operation::wait`](crate::Operation::wait). If that fails, the gather is
    /// cancelled and the arrays are dropped.
    pub fn wait(self) -> Result<Vec<Buffer>> {
        self.lease.wait(NO_TIMEOUT)?;
        let PendingGatherInto { lease, arrays } = self;
        drop(lease);
        Ok(arrays)
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.lease.as_raw()
    }

    /// Waits at most so long; as [`PendingGather::wait_timeout`](crate::PendingGather::wait_timeout).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.lease.wait(nanoseconds(timeout))
    }

    /// True if the tensors are full; never blocks on peers.
    pub fn is_done(&self) -> Result<bool> {
        self.lease.poll()
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
