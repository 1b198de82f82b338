// SPDX-License-Identifier: Apache-2.0
//! How files are read and written, and what is known about that.

use std::time::Duration;

use meron_sys as sys;

use crate::call::nanoseconds;

/// Who moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBackend {
    /// io_uring where the host allows it, else threads.
    Auto,
    /// io_uring.
    IoUring,
    /// Threads of this process.
    Threads,
}

/// How files are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoOptions {
    /// Who moves the bytes.
    pub backend: IoBackend,
    /// Bytes of one call of the kernel, a multiple of 4096.
    pub block_bytes: u32,
    /// Calls under way at a time, of io_uring.
    pub depth: u32,
    /// Of the backend of threads: as many calls at a time.
    pub threads: u32,
    /// Whether each call is handed to the kernel alone.
    pub single_submit: bool,
    /// False: the next calls begin when the last have ended.
    pub overlap_events: bool,
    /// A wait ends when nothing has moved for so long; zero stands for 600 s.
    pub timeout: Duration,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        let initial = sys::MERON_IO_OPTIONS_INIT;
        IoOptions {
            backend: IoBackend::Auto,
            block_bytes: initial.block_bytes,
            depth: initial.depth,
            threads: initial.threads,
            single_submit: initial.single_submit != 0,
            overlap_events: initial.overlap_events != 0,
            timeout: Duration::ZERO,
        }
    }
}

/// What is known about an [`Io`](crate::Io).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoInfo {
    /// In use; never [`IoBackend::Auto`].
    pub backend: IoBackend,
    /// As in [`IoOptions`].
    pub block_bytes: u32,
    /// As in [`IoOptions`].
    pub depth: u32,
    /// As in [`IoOptions`].
    pub threads: u32,
    /// By requests that have ended well.
    pub bytes_read: u64,
    /// Likewise.
    pub bytes_written: u64,
    /// Of the kernel that have ended.
    pub calls: u64,
    /// Of them, those past the page cache.
    pub direct_calls: u64,
    /// Reads and writes that were begun.
    pub requests: u64,
    /// Of them, those under way or not waited for.
    pub pending: u64,
    /// Of buffers that are not gone.
    pub buffer_bytes: u64,
}

impl IoOptions {
    pub(crate) fn raw(&self) -> sys::meron_io_options {
        sys::meron_io_options {
            backend: match self.backend {
                IoBackend::Auto => sys::MERON_IO_AUTO,
                IoBackend::IoUring => sys::MERON_IO_URING,
                IoBackend::Threads => sys::MERON_IO_THREADS,
            },
            block_bytes: self.block_bytes,
            depth: self.depth,
            threads: self.threads,
            single_submit: self.single_submit.into(),
            overlap_events: self.overlap_events.into(),
            timeout_ns: nanoseconds(self.timeout),
            ..sys::MERON_IO_OPTIONS_INIT
        }
    }
}

impl IoInfo {
    pub(crate) fn of(info: &sys::meron_io_info) -> IoInfo {
        IoInfo {
            backend: match info.backend {
                sys::MERON_IO_URING => IoBackend::IoUring,
                _ => IoBackend::Threads,
            },
            block_bytes: info.block_bytes,
            depth: info.depth,
            threads: info.threads,
            bytes_read: info.bytes_read,
            bytes_written: info.bytes_written,
            calls: info.calls,
            direct_calls: info.direct_calls,
            requests: info.requests,
            pending: info.pending,
            buffer_bytes: info.buffer_bytes,
        }
    }
}
