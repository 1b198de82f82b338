// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
//! The kinds of errors.

use meron_sys as sys;

/// The kind of an error; the kinds stand in groups by how much they damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    // The call alone: the context and its groups are untouched and usable.
    /// A null pointer, a wrong size, an unknown enum value.
    Argument,
    /// A null handle, of another kind, or of another context.
    Handle,
    /// A handle whose object was released or closed.
    Stale,
    /// The call is valid, but not in the object's present state.
    State,
    /// A name or an object given twice.
    Duplicate,
    /// Valid, but this build or this plan does not offer it.
    Unsupported,
    /// Text that does not parse; the message has line and key.
    Parse,
    /// Gradients hold NaN or infinity, or a step makes a value infinite.
    NonFinite,
    /// should_stop ended a wait, or a rank cancelled the save.
    Cancelled,

    // A resource of this process or host: nothing was changed.
    /// No memory, or the context's limit is reached; the message has the figures.
    NoMemory,
    /// A file, a socket or a mapping failed.
    Io,
    /// A file or a key does not exist.
    NotFound,
    /// A drive returned other bytes than were written: the message says where.
    Corrupt,
    /// A drive is full; the message has need and free bytes.
    NoSpace,
    /// A device has failed: this process cannot use it any more.
    Device,

    // The group is broken: each further call on it gives the error, on every rank.
    /// A deadline passed: the message says who has not arrived.
    Timeout,
    /// A rank's process is gone: the error's peer.
    PeerDead,
    /// A rank, the error's peer, closed its context too early.
    PeerClosed,
    /// Ranks made different calls: the message has both.
    Mismatch,
    /// A rank called meron_group_abort, or cancelled an update.
    Aborted,
    /// A wrong token, a peer of another user, or a link in a checkpoint.
    Auth,
    /// A rank, the caller's headers or a file are of another version.
    Version,

    // The whole context is unusable.
    /// This process is a fork of the one that opened the context.
    Forked,
    /// Closed by another thread during the call; then MERON_E_STALE.
    Closed,
    /// A defect of Meron: please report it.
    Internal,

    /// A status that this version of the crate does not know.
    Other(i32),
}

impl ErrorKind {
    /// The kind that a status of the C interface stands for.
    pub(crate) fn of(status: sys::meron_status) -> ErrorKind {
        match status {
            sys::MERON_E_ARGUMENT => ErrorKind::Argument,
            sys::MERON_E_HANDLE => ErrorKind::Handle,
            sys::MERON_E_STALE => ErrorKind::Stale,
            sys::MERON_E_STATE => ErrorKind::State,
            sys::MERON_E_DUPLICATE => ErrorKind::Duplicate,
            sys::MERON_E_UNSUPPORTED => ErrorKind::Unsupported,
            sys::MERON_E_PARSE => ErrorKind::Parse,
            sys::MERON_E_NONFINITE => ErrorKind::NonFinite,
            sys::MERON_E_CANCELLED => ErrorKind::Cancelled,
            sys::MERON_E_NO_MEMORY => ErrorKind::NoMemory,
            sys::MERON_E_IO => ErrorKind::Io,
            sys::MERON_E_NOT_FOUND => ErrorKind::NotFound,
            sys::MERON_E_CORRUPT => ErrorKind::Corrupt,
            sys::MERON_E_NO_SPACE => ErrorKind::NoSpace,
            sys::MERON_E_DEVICE => ErrorKind::Device,
            sys::MERON_E_TIMEOUT => ErrorKind::Timeout,
            sys::MERON_E_PEER_DEAD => ErrorKind::PeerDead,
            sys::MERON_E_PEER_CLOSED => ErrorKind::PeerClosed,
            sys::MERON_E_MISMATCH => ErrorKind::Mismatch,
            sys::MERON_E_ABORTED => ErrorKind::Aborted,
            sys::MERON_E_AUTH => ErrorKind::Auth,
            sys::MERON_E_VERSION => ErrorKind::Version,
            sys::MERON_E_FORKED => ErrorKind::Forked,
            sys::MERON_E_CLOSED => ErrorKind::Closed,
            sys::MERON_E_INTERNAL => ErrorKind::Internal,
            other => ErrorKind::Other(other),
        }
    }
}
