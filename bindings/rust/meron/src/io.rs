// SPDX-License-Identifier: Apache-2.0
//! Files read and written past the page cache, as DeepSpeed's DeepNVMe does it.

use std::any::Any;
use std::ffi::CString;
use std::fmt;
use std::mem::{forget, size_of_val};
use std::ops::{Deref, DerefMut};
use std::os::raw::c_void;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meron_sys as sys;

use crate::call::{call, check, nanoseconds, receive, sized, NO_TIMEOUT};
use crate::dtype::Plain;
use crate::error::{Error, Result};
use crate::error_kind::ErrorKind;
use crate::home::{ForCall, Owned};
use crate::system::require_version;
use crate::values::{IoInfo, IoOptions};

struct Inner {
    /// The handle's id; 0 once closed.
    raw: AtomicU64,
    abandoned: Mutex<Abandoned>,
}

/// What nobody waits for any more.
#[derive(Default)]
struct Abandoned {
    requests: Vec<(Owned<sys::meron_future>, Box<dyn Any + Send>)>,
    /// How one of them failed.
    error: Option<Error>,
}

impl Inner {
    fn raw(&self) -> sys::meron_io {
        sys::meron_io { id: self.raw.load(Ordering::Acquire) }
    }

    fn abandoned(&self) -> MutexGuard<'_, Abandoned> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees what has ended.
    fn sweep(&self) {
        let mut abandoned = self.abandoned();
        let mut error = None;
        abandoned.requests.retain(|(request, _)| {
            let state = wait_for(request, 0);
            let under_way = may_use_memory(&state);
            if let (Err(failed), false) = (state, under_way) {
                error = Some(failed);
            }
            under_way
        });
        if abandoned.error.is_none() {
            abandoned.error = error;
        }
    }

    fn close(&self) -> Result<()> {
        let raw = sys::meron_io { id: self.raw.swap(0, Ordering::AcqRel) };
        if raw.id == 0 {
            return Ok(());
        }
        // SAFETY: a call with a handle by value.
        let closed = check(|err| unsafe { sys::meron_io_close(raw, err) });
        let mut abandoned = self.abandoned();
        let requests = std::mem::take(&mut abandoned.requests);
        for (request, memory) in requests {
            // What a drive holds for longer it may still write to.
            if may_use_memory(&wait_for(&request, 0)) {
                forget(memory);
            }
        }
        closed?;
        abandoned.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn wait_for(request: &Owned<sys::meron_future>, timeout: i64) -> Result<bool> {
    // SAFETY: a call with a handle by value; a wrong one gives an error.
    call(|err| unsafe { sys::meron_future_wait(request.raw(), timeout, err) })
}

/// Whether the drive may still work on the memory of a request that a wait has said this of.
fn may_use_memory(state: &Result<bool>) -> bool {
    match state {
        Ok(ended) => !ended,
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::Io | ErrorKind::NoSpace | ErrorKind::NotFound | ErrorKind::Argument
        ),
    }
}

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
/// are the fastest. What is under way must not touch bytes of a file that something else writes.
/// Dropping it ends what is under way first, for at most about five seconds.
pub struct Io(Arc<Inner>);

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
    /// [`Argument`](ErrorKind::Argument) for a value out of range; [`Unsupported`](ErrorKind::Unsupported)
    /// for [`IoBackend::IoUring`](crate::IoBackend::IoUring) where the host forbids it.
    pub fn open(options: &IoOptions) -> Result<Io> {
        require_version()?;
        let options = options.raw();
        // SAFETY: the options are only read, during the call.
        let raw = receive(sys::meron_io::default(), |out, err| unsafe {
            sys::meron_io_open(out, &options, err)
        })?;
        Ok(Io(Arc::new(Inner { raw: AtomicU64::new(raw.id), abandoned: Mutex::default() })))
    }

    /// Fills all of `into` from byte `offset` of a file on, and waits for it.
    ///
    /// Blocks until the drive has released the memory, however long that takes: borrowed memory
    /// cannot stay with it. ([`read_begin`](Io::read_begin) has a bound.)
    ///
    /// # Errors
    ///
    /// [`NotFound`](ErrorKind::NotFound); [`Io`](ErrorKind::Io) where the file ends before that, or
    /// what the drive says; [`Argument`](ErrorKind::Argument) for what is no file.
    pub fn read<T: Plain>(
        &self,
        path: impl AsRef<Path>,
        into: &mut [T],
        offset: u64,
    ) -> Result<()> {
        let bytes = size_of_val(into) as u64;
        // SAFETY: `into` stays borrowed until the request has ended; every pattern of bits is a T.
        let request = unsafe {
            self.begin_read(path.as_ref(), into.as_mut_ptr() as *mut c_void, bytes, offset)?
        };
        finish(&request)
    }

    /// Writes all of `data` to byte `offset` of a file and on, and waits for the kernel. Makes the
    /// file where there is none; what it holds besides stays, also beyond the end of this. What must
    /// survive a loss of power needs a sync of the caller's own.
    ///
    /// Blocks and fails as [`read`](Io::read); [`NoSpace`](ErrorKind::NoSpace).
    pub fn write<T: Plain>(&self, path: impl AsRef<Path>, data: &[T], offset: u64) -> Result<()> {
        let bytes = size_of_val(data) as u64;
        // SAFETY: `data` stays borrowed until the request has ended.
        let request = unsafe {
            self.begin_write(path.as_ref(), data.as_ptr() as *const c_void, bytes, offset)?
        };
        finish(&request)
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
        Ok(IoRequest { request, memory: Some(into), io: self.0.clone() })
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
        Ok(IoRequest { request, memory: Some(data), io: self.0.clone() })
    }

    /// Waits for every request that nobody has waited for alone, also those that were dropped.
    ///
    /// Blocks on the drive, as long as something moves. Fails with the first error of them when all
    /// have ended; [`Timeout`](ErrorKind::Timeout) when nothing moves.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: a call with a handle by value; a wrong one gives an error.
        check(|err| unsafe { sys::meron_io_wait(self.as_raw(), NO_TIMEOUT, err) })?;
        self.0.sweep();
        self.0.abandoned().error.take().map_or(Ok(()), Err)
    }

    /// Makes pinned memory of so many bytes, which are 0: the fastest to read into and write from.
    pub fn buffer(&self, bytes: usize) -> Result<IoBuffer> {
        // SAFETY: calls with handles by value and places that are valid during the call.
        let raw = receive(sys::meron_io_buffer::default(), |out, err| unsafe {
            sys::meron_io_buffer_create(out, self.as_raw(), bytes as u64, err)
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

    /// The options, and what was counted so far. Never blocks.
    pub fn info(&self) -> Result<IoInfo> {
        // SAFETY: the place is valid during the call.
        let info = receive(sized!(meron_io_info), |out, err| unsafe {
            sys::meron_io_get_info(out, self.as_raw(), err)
        })?;
        Ok(IoInfo::of(&info))
    }

    /// As dropping it; fails with the first error of requests that nobody has waited for: it is closed
    /// all the same. Requests that are still held can be waited for.
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
        receive(sys::meron_future::default(), |out, err| {
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
        receive(sys::meron_future::default(), |out, err| {
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

/// Waits for a request on borrowed memory, until that is nobody's any more.
fn finish(request: &Owned<sys::meron_future>) -> Result<()> {
    loop {
        match wait_for(request, NO_TIMEOUT) {
            Err(error) if error.kind() == ErrorKind::Timeout => continue,
            ended => return ended.map(drop),
        }
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

mod sealed {
    use std::os::raw::c_void;

    pub trait Memory {
        /// Where it is, which does not change when its owner moves, and how many bytes it has.
        fn memory(&mut self) -> (*mut c_void, u64);
    }
}

/// Memory that a request can own: a vector of plain numbers, or an [`IoBuffer`].
pub trait IoMemory: sealed::Memory + Send + 'static {}

impl<T: Plain> sealed::Memory for Vec<T> {
    fn memory(&mut self) -> (*mut c_void, u64) {
        (self.as_mut_ptr() as *mut c_void, size_of_val(self.as_slice()) as u64)
    }
}
impl<T: Plain> IoMemory for Vec<T> {}

/// Pinned, page-aligned memory. Made by [`Io::buffer`], which it may outlive.
pub struct IoBuffer {
    handle: Owned<sys::meron_io_buffer>,
    data: *mut u8,
    len: usize,
    registered: bool,
}

// SAFETY: it owns its memory, as a Vec<u8> does.
unsafe impl Send for IoBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// Whether the kernel has it pinned; else it does so at each call.
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
        // SAFETY: as in `deref`; nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl sealed::Memory for IoBuffer {
    fn memory(&mut self) -> (*mut c_void, u64) {
        (self.data as *mut c_void, self.len as u64)
    }
}
impl IoMemory for IoBuffer {}

/// A read or write that was begun, and the memory that it works on.
///
/// Dropping it does not stop it: the memory is kept until it has ended, and [`Io::wait`] or
/// [`Io::close`] tells how it did.
#[must_use = "the bytes are only there when the request has been waited for"]
pub struct IoRequest<M: IoMemory> {
    request: Owned<sys::meron_future>,
    memory: Option<M>,
    io: Arc<Inner>,
}

impl<M: IoMemory> IoRequest<M> {
    /// Waits until it has ended, and gives its memory back.
    ///
    /// Blocks on the drive, as long as something moves.
    ///
    /// # Errors
    ///
    /// [`Io`](ErrorKind::Io), [`NoSpace`](ErrorKind::NoSpace); [`Timeout`](ErrorKind::Timeout) when
    /// nothing moves (it goes on, and may be waited for again); [`Closed`](ErrorKind::Closed) when the
    /// io was closed before; [`State`](ErrorKind::State) when the memory was given back already.
    pub fn wait(&mut self) -> Result<M> {
        if self.memory.is_none() {
            return Err(Error::state("", "the memory was given back already", "wait once"));
        }
        wait_for(&self.request, NO_TIMEOUT)?;
        self.memory.take().ok_or_else(|| Error::state("", "the memory is gone", "wait once"))
    }

    /// Waits at most so long; whether it has ended. [`wait`](IoRequest::wait) then gives the memory
    /// back. Errors as there.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        wait_for(&self.request, nanoseconds(timeout))
    }

    /// Whether it has ended; never blocks. Errors as [`wait`](IoRequest::wait).
    pub fn is_done(&self) -> Result<bool> {
        wait_for(&self.request, 0)
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_future {
        self.request.raw()
    }
}

impl<M: IoMemory> Drop for IoRequest<M> {
    fn drop(&mut self) {
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => return,
        };
        if !may_use_memory(&wait_for(&self.request, 0)) {
            return;
        }
        let mut abandoned = self.io.abandoned();
        if self.io.raw().id == 0 {
            // A drive has held it for longer than the close: it may still write there.
            forget(memory);
            return;
        }
        let request = std::mem::replace(&mut self.request, Owned::new(Default::default()));
        abandoned.requests.push((request, Box::new(memory)));
    }
}
