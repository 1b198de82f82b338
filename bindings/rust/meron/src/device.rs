// SPDX-License-Identifier: Apache-2.0
//! The device that a rank computes on: its streams, and memory of it.

use std::os::raw::c_void;
use std::ptr::{self, NonNull};

use meron_sys as sys;

use crate::failures::contained;

/// A stream of the context's device: a `cudaStream_t` for CUDA. [`Default`] is the device's default
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(*mut c_void);

// SAFETY: a number for this crate, and for the library, which takes it on any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// # Safety
    ///
    /// `raw` is null (the default stream), or a stream of the device that the context was opened with,
    /// which stays one as long as this value, or a copy of it, is given to this crate.
    pub unsafe fn from_raw(raw: *mut c_void) -> Stream {
        Stream(raw)
    }

    /// The raw stream.
    pub fn as_raw(self) -> *mut c_void {
        self.0
    }
}

impl Default for Stream {
    fn default() -> Stream {
        Stream(ptr::null_mut())
    }
}

/// The program's own allocator of the device's memory, given to
/// [`ContextOptions::allocator`](crate::ContextOptions::allocator).
///
/// It may be called by any thread that is inside a call of this crate. It may only look and release, as
/// [`ContextOptions::log`](crate::ContextOptions::log), and must not wait for work of the device. A panic in it ends there: in
/// [`allocate`](DeviceAllocator::allocate) there is no memory then.
///
/// # Safety
///
/// [`allocate`](DeviceAllocator::allocate) returns memory of the context's device that no other
/// code uses until it is [released](DeviceAllocator::release).
pub unsafe trait DeviceAllocator: Send + Sync + 'static {
    /// Allocates `bytes` bytes aligned to 256, for later work on `stream`. `None`: there is none.
    fn allocate(&self, bytes: u64, stream: Stream) -> Option<NonNull<c_void>>;

    /// Takes such memory back: what was asked of `stream` so far may still use it.
    fn release(&self, data: NonNull<c_void>, bytes: u64, stream: Stream);
}

/// Target of the table's user pointer.
pub(crate) type Allocator = Box<dyn DeviceAllocator>;

/// The table that calls `allocator`, for as long as that stays where it is.
pub(crate) fn table(allocator: &Allocator) -> sys::meron_allocator {
    sys::meron_allocator {
        allocate: Some(allocate),
        release: Some(release),
        user: allocator as *const Allocator as *mut c_void,
        ..sys::MERON_ALLOCATOR_INIT
    }
}

unsafe extern "C" fn allocate(user: *mut c_void, bytes: u64, stream: *mut c_void) -> *mut c_void {
    // SAFETY: `user` is the pointer of `table`, and each object of the context keeps its target.
    let allocator = unsafe { &*(user as *const Allocator) };
    contained(|| allocator.allocate(bytes, Stream(stream)))
        .ok()
        .flatten()
        .map_or(ptr::null_mut(), NonNull::as_ptr)
}

unsafe extern "C" fn release(
    user: *mut c_void,
    data: *mut c_void,
    bytes: u64,
    stream: *mut c_void,
) {
    // SAFETY: as in `allocate`.
    let allocator = unsafe { &*(user as *const Allocator) };
    if let Some(data) = NonNull::new(data) {
        // A panic ends here: the panic hook has reported it.
        let _ = contained(|| allocator.release(data, bytes, Stream(stream)));
    }
}

/// Owners of a view's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// The host's.
    Host,
    /// That of a device whose memory the host can read: the emulated one.
    Readable,
    /// That of a device.
    Device,
}

impl Memory {
    /// Of views of a context that is opened with this device.
    pub(crate) fn of(device: Option<&str>) -> Memory {
        match device {
            None | Some("") => Memory::Host,
            Some("emulated") => Memory::Readable,
            Some(_) => Memory::Device,
        }
    }
}
