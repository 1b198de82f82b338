// SPDX-License-Identifier: Apache-2.0
//! Gathers into private copies.

use std::sync::Arc;

use meron_sys as sys;

use crate::call::NO_TIMEOUT;
use crate::device::Memory;
use crate::dlpack::DlpackTensor;
use crate::error::Result;
use crate::handle::debug_by_handle;
use crate::home::Shared;
use crate::lease::Lease;
use crate::param::Param;
use crate::unit::Unit;
use crate::view::{View, ViewMut};

/// A private copy of a unit's whole tensors, to read and write. It holds no lease: the unit may be
/// updated meanwhile.
///
/// ```compile_fail,E0499
/// # let context = meron::Context::open()?;
/// # let table = context.param("table", &[8])?;
/// # let unit = context.unit("table", &[&table])?;
/// let mut copy = unit.gather_copy()?;
/// let mut first = copy.view_mut(&table)?;
/// let mut second = copy.view_mut(&table)?; // error: `copy` is mutably borrowed already
/// first.as_mut_slice::<f32>()?[0] = second.as_mut_slice::<f32>()?[0];
/// # Ok::<(), meron::Error>(())
/// ```
pub struct GatherCopy(Lease);

debug_by_handle!([] GatherCopy: "GatherCopy");

impl GatherCopy {
    pub(crate) fn make(shared: &Arc<Shared>, unit: sys::meron_unit) -> Result<GatherCopy> {
        let options = sys::meron_gather_options {
            mode: sys::MERON_GATHER_COPY,
            ..sys::MERON_GATHER_OPTIONS_INIT
        };
        let lease = Lease::begin(shared, &[unit], &options, Memory::Host)?;
        lease.wait(NO_TIMEOUT)?;
        Ok(GatherCopy(lease))
    }

    /// A param's whole tensor.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) when the param is not in the unit.
    pub fn view(&self, param: &Param) -> Result<View<'_>> {
        // SAFETY: the copy is ours and writing it takes `&mut self`; `self` keeps the mapping.
        unsafe { View::new(self.0.view(param)?, param) }
    }

    /// A param's whole tensor, to write. Errors as [`view`](GatherCopy::view).
    pub fn view_mut(&mut self, param: &Param) -> Result<ViewMut<'_>> {
        // SAFETY: as in `view`; the borrow is exclusive.
        unsafe { ViewMut::new(self.0.view(param)?, param) }
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.0.as_raw()
    }

    /// Gives a param's tensor to other libraries, which may write it. The copies of the unit's other
    /// params go.
    pub fn into_dlpack(self, param: &Param) -> Result<DlpackTensor> {
        self.0.dlpack(param)
    }
}

impl Unit {
    /// The unit's whole tensors as a private, writable copy, which belongs to what is returned. Else as
    /// [`gather`](Unit::gather).
    ///
    /// # Errors
    ///
    /// [`NoMemory`](crate::ErrorKind::NoMemory) besides.
    pub fn gather_copy(&self) -> Result<GatherCopy> {
        GatherCopy::make(self.shared(), self.as_raw())
    }
}
