// SPDX-License-Identifier: Apache-2.0
//! Memory that a request on a file can own.

use std::mem::size_of_val;
use std::ops::{Deref, DerefMut};
use std::os::raw::c_void;

use meron_sys as sys;

use crate::call::{receive, sized};
use crate::dtype::Plain;
use crate::error::Result;
use crate::handle::{debug_by_handle, Owned};

pub(crate) mod sealed {
    use std::os::raw::c_void;

    pub trait Memory {
        /// Where it is, which does not change when its owner moves, and how many bytes it has.
        fn memory(&mut self) -> (*mut c_void, u64);
    }
}

/// Memory that a request can own: a vector of plain numbers, or an [`IoBuffer`].
pub trait IoMemory: sealed::Memory + Send + Unpin + 'static {}

impl<T: Plain> sealed::Memory for Vec<T> {
    fn memory(&mut self) -> (*mut c_void, u64) {
        (self.as_mut_ptr() as *mut c_void, size_of_val(self.as_slice()) as u64)
    }
}
impl<T: Plain> IoMemory for Vec<T> {}

/// Pinned, page-aligned memory. Made by [`Io::buffer`](crate::Io::buffer), which it may outlive.
pub struct IoBuffer {
    handle: Owned<sys::meron_io_buffer>,
    data: *mut u8,
    len: usize,
    registered: bool,
}

debug_by_handle!([] IoBuffer: "IoBuffer");

// SAFETY: it owns its memory, as a Vec<u8> does.
unsafe impl Send for IoBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// Pinned memory of so many bytes, of an io.
    pub(crate) fn create(io: sys::meron_io, bytes: usize) -> Result<IoBuffer> {
        // SAFETY: calls with handles by value and places that are valid during the call.
        let raw = receive(sys::meron_io_buffer::default(), |out, err| unsafe {
            sys::meron_io_buffer_create(out, io, bytes as u64, err)
        })?;
        let handle = Owned::new(raw);
        // SAFETY: as above.
        let info = receive(sized!(meron_io_buffer_info), |out, err| unsafe {
            sys::meron_io_buffer_get_info(out, raw, err)
        })?;
        Ok(IoBuffer {
            handle,
            data: info.data as *mut u8,
            len: bytes,
            registered: info.registered == 1,
        })
    }

    /// True if the kernel has pinned it; otherwise the kernel pins it at each call.
    pub fn is_registered(&self) -> bool {
        self.registered
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_io_buffer {
        self.handle.raw()
    }
}

impl Deref for IoBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the library's memory of so many bytes, which is there as long as the handle.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl sealed::Memory for IoBuffer {
    fn memory(&mut self) -> (*mut c_void, u64) {
        (self.data as *mut c_void, self.len as u64)
    }
}
impl IoMemory for IoBuffer {}
