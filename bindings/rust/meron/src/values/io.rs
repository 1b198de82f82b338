// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/io.h.

use std::time::Duration;

use meron_sys as sys;

use crate::call::nanoseconds;

/// The interface that moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IoBackend {
    /// io_uring if the host allows it, else threads.
    Auto,
    /// io_uring.
    IoUring,
    /// Threads of this process that call pread and pwrite.
    Threads,
}

#[allow(dead_code)]
impl IoBackend {
    pub(crate) fn code(self) -> sys::meron_io_backend {
        match self {
            IoBackend::Auto => sys::MERON_IO_BACKEND_AUTO,
            IoBackend::IoUring => sys::MERON_IO_BACKEND_URING,
            IoBackend::Threads => sys::MERON_IO_BACKEND_THREADS,
        }
    }

    pub(crate) fn of(code: sys::meron_io_backend) -> IoBackend {
        match code {
            sys::MERON_IO_BACKEND_AUTO => IoBackend::Auto,
            sys::MERON_IO_BACKEND_URING => IoBackend::IoUring,
            _ => IoBackend::Threads,
        }
    }
}

/// Options of an io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoOptions {
    /// The interface that moves the bytes.
    pub backend: IoBackend,
    /// Of one call of the kernel: a multiple of 4096; default 1 MiB.
    pub block_bytes: u32,
    /// Pending calls of io_uring, 1 to 4096; default 32.
    pub depth: u32,
    /// Of the backend of threads, 1 to 256: as many calls at a time.
    pub threads: u32,
    /// True: submit each call to the kernel alone.
    pub single_submit: bool,
    /// False: the next calls begin after the last ones have ended.
    pub overlap_events: bool,
    /// A wait fails after this time without any transfer; by default 600 s.
    pub timeout: Option<Duration>,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            backend: IoBackend::Auto,
            block_bytes: 1048576,
            depth: 32,
            threads: 1,
            single_submit: false,
            overlap_events: true,
            timeout: None,
        }
    }
}

impl IoOptions {
    /// The interface that moves the bytes.
    #[must_use]
    pub fn backend(mut self, value: IoBackend) -> IoOptions {
        self.backend = value;
        self
    }

    /// Of one call of the kernel: a multiple of 4096; default 1 MiB.
    #[must_use]
    pub fn block_bytes(mut self, value: u32) -> IoOptions {
        self.block_bytes = value;
        self
    }

    /// Pending calls of io_uring, 1 to 4096; default 32.
    #[must_use]
    pub fn depth(mut self, value: u32) -> IoOptions {
        self.depth = value;
        self
    }

    /// Of the backend of threads, 1 to 256: as many calls at a time.
    #[must_use]
    pub fn threads(mut self, value: u32) -> IoOptions {
        self.threads = value;
        self
    }

    /// True: submit each call to the kernel alone.
    #[must_use]
    pub fn single_submit(mut self, value: bool) -> IoOptions {
        self.single_submit = value;
        self
    }

    /// False: the next calls begin after the last ones have ended.
    #[must_use]
    pub fn overlap_events(mut self, value: bool) -> IoOptions {
        self.overlap_events = value;
        self
    }

    /// A wait fails after this time without any transfer; by default 600 s.
    #[must_use]
    pub fn timeout(mut self, value: impl Into<Option<Duration>>) -> IoOptions {
        self.timeout = value.into();
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_io_options {
        sys::meron_io_options {
            backend: self.backend.code(),
            block_bytes: self.block_bytes,
            depth: self.depth,
            threads: self.threads,
            single_submit: u32::from(self.single_submit),
            overlap_events: u32::from(self.overlap_events),
            timeout_ns: self.timeout.map_or(0, |time| nanoseconds(time).max(1)),
            ..sys::MERON_IO_OPTIONS_INIT
        }
    }
}

/// Information about an io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoInfo {
    /// The interface that moves the bytes: never the automatic choice.
    pub backend: IoBackend,
    /// As in the options.
    pub block_bytes: u32,
    /// As in the options.
    pub depth: u32,
    /// As in the options.
    pub threads: u32,
    /// As in the options.
    pub single_submit: bool,
    /// As in the options.
    pub overlap_events: bool,
    /// By requests that have succeeded.
    pub bytes_read: u64,
    /// Likewise.
    pub bytes_written: u64,
    /// Of the kernel, completed.
    pub calls: u64,
    /// Of these, past the page cache.
    pub direct_calls: u64,
    /// Reads and writes that were begun, also blocking ones.
    pub requests: u64,
    /// Of these, pending or not waited for.
    pub pending: u64,
    /// Of all existing buffers.
    pub buffer_bytes: u64,
}

impl IoInfo {
    pub(crate) fn of(raw: &sys::meron_io_info) -> IoInfo {
        IoInfo {
            backend: IoBackend::of(raw.backend),
            block_bytes: raw.block_bytes,
            depth: raw.depth,
            threads: raw.threads,
            single_submit: raw.single_submit != 0,
            overlap_events: raw.overlap_events != 0,
            bytes_read: raw.bytes_read,
            bytes_written: raw.bytes_written,
            calls: raw.calls,
            direct_calls: raw.direct_calls,
            requests: raw.requests,
            pending: raw.pending,
            buffer_bytes: raw.buffer_bytes,
        }
    }
}
