// SPDX-License-Identifier: Apache-2.0
//! Gathers into the program's arrays.

use std::sync::Arc;
use std::time::Duration;

use meron_sys as sys;

use crate::buffer::Buffer;
use crate::call::{nanoseconds, NO_TIMEOUT};
use crate::device::Memory;
use crate::error::{Error, Result};
use crate::group::table;
use crate::home::Shared;
use crate::lease::Lease;
use crate::param::Param;
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
        arrays: Vec<(&Param, Buffer)>,
    ) -> Result<PendingGatherInto> {
        let mut destinations = Vec::with_capacity(arrays.len());
        let mut kept = Vec::with_capacity(arrays.len());
        for (param, mut array) in arrays {
            if array.dtype() != param.dtype() {
                return Err(Error::argument(
                    param.name(),
                    &format!(
                        "param '{}' is {}, its destination {}",
                        param.name(),
                        param.dtype(),
                        array.dtype()
                    ),
                    "pass an array of the param's dtype",
                ));
            }
            destinations.push(sys::meron_destination {
                param: param.as_raw(),
                data: array.as_mut_ptr(),
                bytes: (array.len() * array.dtype().size()) as u64,
            });
            kept.push(array);
        }
        let options = sys::meron_gather_options {
            mode: sys::MERON_GATHER_INTO,
            destinations: table(&destinations),
            destination_count: destinations.len() as u64,
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
    /// Begins to gather whole tensors into the program's arrays: one per param that is wanted, of
    /// exactly its size and dtype. They come back when it is waited for.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for another size or dtype.
    pub fn gather_into_begin(&self, arrays: Vec<(&Param, Buffer)>) -> Result<PendingGatherInto> {
        PendingGatherInto::begin(self.shared(), self.as_raw(), arrays)
    }
}
