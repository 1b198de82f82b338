// SPDX-License-Identifier: Apache-2.0
//! The future of a gather, with the leases on its units.

use std::ptr;
use std::sync::Arc;

use meron_sys as sys;

use crate::call::{call, check, receive, NO_TIMEOUT};
use crate::device::{Memory, Stream};
use crate::dlpack::DlpackTensor;
use crate::error::Result;
use crate::group::table;
use crate::handle::Owned;
use crate::home::{Open, Shared};
use crate::param::Param;

/// A gather's handle, and what keeps its memory mapped. (The handle is released first: fields are
/// dropped in their order.)
pub(crate) struct Lease {
    handle: Owned<sys::meron_future>,
    open: Arc<Open>,
    /// Memory of its views.
    pub(crate) memory: Memory,
}

impl Lease {
    #[inline]
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        units: &[sys::meron_unit],
        options: *const sys::meron_gather_options,
        memory: Memory,
    ) -> Result<Lease> {
        let open = shared.open()?;
        shared.sweep();
        let (first, count) = (table(units), units.len());
        // SAFETY: units and options are only read, during the call; destinations that the options name
        // are kept by PendingGatherInto.
        let handle = receive(sys::meron_future::default(), |out, err| unsafe {
            sys::meron_gather_begin(out, first, count, options, err)
        })?;
        Ok(Lease { handle: Owned::new(handle), open, memory })
    }

    #[inline]
    pub(crate) fn wait(&self, timeout: i64) -> Result<bool> {
        // SAFETY: a call with a handle by value; the closures that it calls live as long as `open`.
        call(|err| unsafe { sys::meron_future_wait(self.handle.raw(), timeout, err) })
    }

    pub(crate) fn wait_stream(&self, stream: Stream) -> Result<bool> {
        // SAFETY: as in `wait`; the stream is one of the device, as `Stream::from_raw` was promised.
        call(|err| unsafe {
            sys::meron_gather_wait_stream(self.handle.raw(), stream.as_raw(), NO_TIMEOUT, err)
        })
    }

    pub(crate) fn poll(&self) -> Result<bool> {
        // SAFETY: as in `wait`.
        call(|err| unsafe { sys::meron_future_poll(self.handle.raw(), err) })
    }

    pub(crate) fn as_raw(&self) -> sys::meron_future {
        self.handle.raw()
    }

    pub(crate) fn view(&self, param: &Param) -> Result<sys::meron_view> {
        // SAFETY: `out` is valid during the call; zero is a value of a view.
        unsafe {
            receive(std::mem::zeroed(), |out, err| {
                sys::meron_gather_view(out, self.handle.raw(), param.as_raw(), err)
            })
        }
    }

    pub(crate) fn dlpack(&self, param: &Param) -> Result<DlpackTensor> {
        // SAFETY: `out` is valid during the call, and what it receives is ours.
        unsafe {
            let raw = receive(ptr::null_mut(), |out, err| {
                sys::meron_gather_dlpack(out, self.handle.raw(), param.as_raw(), err)
            })?;
            DlpackTensor::of_context(raw, self.open.clone(), None)
        }
    }
    /// Gives the leases back, and says how that went.
    #[inline]
    pub(crate) fn release(self) -> Result<()> {
        let Lease { handle, open: _open, .. } = self;
        handle.release()
    }

    /// The same, with the memory on the device when what was asked of the stream so far is done.
    pub(crate) fn release_on_stream(self, stream: Stream) -> Result<()> {
        let handle = self.handle.raw();
        // SAFETY: a call with a handle by value; the stream is as in `wait_stream`.
        check(|err| unsafe { sys::meron_gather_release_on_stream(handle, stream.as_raw(), err) })?;
        let Lease { handle, open: _open, .. } = self;
        handle.into_raw(); // which is gone
        Ok(())
    }
}
