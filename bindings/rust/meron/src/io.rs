// SPDX-License-Identifier: Apache-2.0
//! Files read and written past the page cache, as DeepSpeed's DeepNVMe does it.

use std::ffi::CString;
use std::fmt;
use std::os::raw::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use meron_sys as sys;

use crate::call::{call, nanoseconds, receive, sized, NO_TIMEOUT};
use crate::error::{Error, Result};
use crate::handle::Owned;
use crate::home::ForCall;
use crate::io_memory::{IoBuffer, IoMemory};
use crate::io_request::{IoRequest, Queue};
use crate::system::require_version;
use crate::values::{IoInfo, IoOptions};

/// A queue to the kernel, and the threads that serve it. Needs no [`Context`](crate::Context), and
/// knows no ranks.
///
/// ```
/// use meron::{Io, IoOptions};
///
/// let io = Io::open(&IoOptions::default())?;
/// let path = std::env::temp_dir().join(format!("meron-io-{}", std::process::id()));
/// io.write(&path, &[1.0f32, 2.0, 3.0], 0)?;
///
/// let mut request = io.read_begin(&path, vec![0.0f32; 2], 4)?; // beside what follows
/// assert_eq!(request.wait()?, [2.0, 3.0]);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), meron::Error>(())
/// ```
///
/// Offsets are in bytes; offset, length and memory need no alignment, though multiples of the page
/// are the fastest. A pending request must not touch bytes of a file that other code writes.
/// Dropping it waits for pending requests first, at most about five seconds.
pub struct Io(Arc<Queue>);

impl ForCall for Io {
    type Raw = sys::meron_io;

    fn for_call(&self) -> Result<sys::meron_io> {
        Ok(self.as_raw())
    }
}

impl Io {
    /// Opens one.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a value out of range;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for
    /// [`IoBackend::IoUring`](crate::IoBackend::IoUring) where the host forbids it.
    pub fn open(options: &IoOptions) -> Result<Io> {
        require_version()?;
        let options = options.raw();
        // SAFETY: the options are only read, during the call.
        let raw = receive(sys::meron_io::default(), |out, err| unsafe {
            sys::meron_io_open(out, &options, err)
        })?;
        Ok(Io(Arc::new(Queue::open(raw))))
    }

    /// Begins to fill memory, which the request owns meanwhile, from byte `offset` of a file on. The
    /// file is opened here; errors as [`read`](Io::read), and those of the drive from the wait.
    pub fn read_begin<M: IoMemory>(
        &self,
        path: impl AsRef<Path>,
        mut into: M,
        offset: u64,
    ) -> Result<IoRequest<M>> {
        let (data, bytes) = into.memory();
        // SAFETY: the request owns the memory, which does not move with its owner.
        let request = unsafe { self.begin_read(path.as_ref(), data, bytes, offset)? };
        Ok(IoRequest::new(request, into, self.0.clone()))
    }

    /// Begins to write memory, which the request owns meanwhile, to byte `offset` of a file and on.
    /// The file is made, and grows, here; errors as [`write`](Io::write), and those of the drive from
    /// the wait.
    pub fn write_begin<M: IoMemory>(
        &self,
        path: impl AsRef<Path>,
        mut data: M,
        offset: u64,
    ) -> Result<IoRequest<M>> {
        let (memory, bytes) = data.memory();
        // SAFETY: as in `read_begin`.
        let request = unsafe { self.begin_write(path.as_ref(), memory, bytes, offset)? };
        Ok(IoRequest::new(request, data, self.0.clone()))
    }

    /// Waits for every request that no call has waited for, also those that were dropped.
    ///
    /// Blocks on the drive, as long as transfers progress. Fails with their first error after all
    /// have ended; [`Timeout`](crate::ErrorKind::Timeout) if no transfer progresses.
    pub fn wait(&self) -> Result<()> {
        self.wait_ns(NO_TIMEOUT).map(drop)
    }

    /// Waits at most `timeout` for them. Returns `false` after the timeout; the requests continue.
    /// Errors as [`wait`](Io::wait).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        self.wait_ns(nanoseconds(timeout))
    }

    fn wait_ns(&self, timeout: i64) -> Result<bool> {
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        let ended = call(|err| unsafe { sys::meron_io_wait(self.as_raw(), timeout, err) })?;
        self.0.sweep();
        self.0.take_error()?;
        Ok(ended)
    }

    /// Makes pinned memory of so many bytes, which are 0: the fastest to read into and write from.
    pub fn buffer(&self, bytes: usize) -> Result<IoBuffer> {
        IoBuffer::create(self.as_raw(), bytes)
    }

    /// The options, and what was counted so far. Never blocks.
    pub fn info(&self) -> Result<IoInfo> {
        // SAFETY: the place is valid during the call.
        let info = receive(sized!(meron_io_info), |out, err| unsafe {
            sys::meron_io_get_info(out, self.as_raw(), err)
        })?;
        Ok(IoInfo::of(&info))
    }

    /// Like dropping it, but fails with the first error of requests that no call has waited for; it
    /// is closed even then. The program can still wait for requests that it holds.
    pub fn close(self) -> Result<()> {
        self.0.close()
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_io {
        self.0.raw()
    }

    /// # Safety
    ///
    /// The memory must be `bytes` long and stay until the request has ended.
    unsafe fn begin_read(
        &self,
        path: &Path,
        data: *mut c_void,
        bytes: u64,
        offset: u64,
    ) -> Result<Owned<sys::meron_future>> {
        let path = c_path(path)?;
        self.0.sweep();
        // SAFETY: the path lives during the call, and the memory as long as the caller promises.
        receive(sys::meron_future::default(), |out, err| unsafe {
            sys::meron_io_read_begin(out, self.as_raw(), path.as_ptr(), data, bytes, offset, err)
        })
        .map(Owned::new)
    }

    /// # Safety
    ///
    /// As `begin_read`.
    unsafe fn begin_write(
        &self,
        path: &Path,
        data: *const c_void,
        bytes: u64,
        offset: u64,
    ) -> Result<Owned<sys::meron_future>> {
        let path = c_path(path)?;
        self.0.sweep();
        // SAFETY: as in `begin_read`.
        receive(sys::meron_future::default(), |out, err| unsafe {
            sys::meron_io_write_begin(out, self.as_raw(), path.as_ptr(), data, bytes, offset, err)
        })
        .map(Owned::new)
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Io").field("raw", &self.as_raw().id).finish()
    }
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| {
        Error::argument(
            "path",
            &format!("the path has a NUL at byte {}: {path:?}", error.nul_position()),
            "leave the NUL out",
        )
    })
}
