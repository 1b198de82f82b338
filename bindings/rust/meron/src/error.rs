// SPDX-License-Identifier: Apache-2.0
//! Errors: what failed, on which rank, on which tensor or file, and what to do.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::raw::c_char;

use meron_sys as sys;

use crate::error_kind::ErrorKind;
use crate::failures::Cause;

/// Result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a call. Displays as one paragraph for people, also by `{:?}`, because Rust prints
/// errors of `main` and `unwrap` in that way. `{:#?}` shows the fields.
#[derive(Clone)]
pub struct Error(Box<Fields>);

#[derive(Clone)]
struct Fields {
    code: sys::meron_status,
    message: String,
    operation: String,
    subject: String,
    advice: String,
    rank: Option<i32>,
    peer: Option<i32>,
    cause: Option<Cause>,
}

impl Error {
    /// The kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(self.0.code)
    }

    /// The status code of the C interface, such as -300 for a passed deadline.
    pub fn code(&self) -> i32 {
        self.0.code
    }

    /// The code's name in the C interface, such as `"MERON_E_TIMEOUT"`.
    pub fn code_name(&self) -> &'static str {
        // SAFETY: the library returns a static string.
        unsafe { CStr::from_ptr(sys::meron_status_name(self.0.code)) }.to_str().unwrap_or("")
    }

    /// The full message: the failure, the rank and object, and the remedy.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The operation that failed, for example `"gather_begin"`; `""` where none applies.
    pub fn operation(&self) -> &str {
        &self.0.operation
    }

    /// The tensor, unit, file or key concerned; `""` where none applies.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The remedy, as one sentence; `""` if none is known.
    pub fn advice(&self) -> &str {
        &self.0.advice
    }

    /// The rank that reports the error.
    pub fn rank(&self) -> Option<i32> {
        self.0.rank
    }

    /// The rank that caused the error, when it is another one: dead, late, or diverging.
    pub fn peer(&self) -> Option<i32> {
        self.0.peer
    }

    /// True if the group is broken: every further call on it gives the same error on every rank.
    pub fn breaks_group(&self) -> bool {
        (-399..=-300).contains(&self.0.code)
    }

    /// An error that this crate finds by itself.
    pub(crate) fn new(code: sys::meron_status, subject: &str, what: &str, advice: &str) -> Error {
        let message = match advice {
            "" => what.to_string(),
            advice => format!("{what}; {advice}"),
        };
        Error(Box::new(Fields {
            code,
            message,
            operation: String::new(),
            subject: subject.to_string(),
            advice: advice.to_string(),
            rank: None,
            peer: None,
            cause: None,
        }))
    }

    pub(crate) fn argument(subject: &str, what: &str, advice: &str) -> Error {
        Error::new(sys::MERON_E_ARGUMENT, subject, what, advice)
    }

    pub(crate) fn state(subject: &str, what: &str, advice: &str) -> Error {
        Error::new(sys::MERON_E_STATE, subject, what, advice)
    }

    pub(crate) fn closed() -> Error {
        Error::new(sys::MERON_E_CLOSED, "", "the context was closed", "open another one")
    }

    /// Takes an error object over. `raw` may be null, where no memory was left for the detail.
    ///
    /// # Safety
    ///
    /// `raw` is null or an error that no other code frees.
    pub(crate) unsafe fn take(code: sys::meron_status, raw: *mut sys::meron_error) -> Error {
        if raw.is_null() {
            let mut error = Error::new(code, "", "", "");
            error.0.message = format!("{} (no memory for more)", error.code_name());
            return error;
        }
        let rank = |rank: i32| if rank == sys::MERON_RANK_NONE { None } else { Some(rank) };
        // SAFETY: the error is valid, as the caller promises; its texts are copied before it is freed.
        unsafe {
            let fields = Fields {
                code,
                message: text(sys::meron_error_message(raw)),
                operation: text(sys::meron_error_operation(raw)),
                subject: text(sys::meron_error_subject(raw)),
                advice: text(sys::meron_error_advice(raw)),
                rank: rank(sys::meron_error_rank(raw)),
                peer: rank(sys::meron_error_peer(raw)),
                cause: None,
            };
            sys::meron_error_free(raw);
            Error(Box::new(fields))
        }
    }

    /// Adds a failure of the program that led to this error, such as the panic of `should_stop` that
    /// ended a wait.
    pub(crate) fn amend(&mut self, what: &str, cause: Cause) {
        self.0.message = format!("{what}: {}", self.0.message);
        self.0.cause = Some(cause);
    }
}

/// A copy of a string of the library; what is no UTF-8 is replaced.
///
/// # Safety
///
/// `text` is NUL-terminated.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !formatter.alternate() {
            return fmt::Display::fmt(self, formatter);
        }
        formatter
            .debug_struct("Error")
            .field("kind", &self.kind())
            .field("message", &self.0.message)
            .field("operation", &self.0.operation)
            .field("subject", &self.0.subject)
            .field("rank", &self.0.rank)
            .field("peer", &self.0.peer)
            .finish()
    }
}

impl std::error::Error for Error {
    /// The failure of the program's own code that led to this error: an error of its
    /// [`CustomTransport`](crate::CustomTransport), or a panic in `should_stop`. `None` for all
    /// other errors, whose message has the reason.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|cause| &**cause as _)
    }
}

/// For functions that return [`io::Result`]. [`io::Error::get_ref`] returns this error again.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Duplicate => io::ErrorKind::AlreadyExists,
            ErrorKind::Argument => io::ErrorKind::InvalidInput,
            ErrorKind::Parse | ErrorKind::Corrupt => io::ErrorKind::InvalidData,
            ErrorKind::Timeout => io::ErrorKind::TimedOut,
            ErrorKind::PeerDead | ErrorKind::PeerClosed => io::ErrorKind::ConnectionReset,
            ErrorKind::Aborted => io::ErrorKind::ConnectionAborted,
            ErrorKind::Auth => io::ErrorKind::PermissionDenied,
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other, // Interrupted would make callers retry after should_stop
        };
        io::Error::new(kind, error)
    }
}

impl fmt::Display for ErrorKind {
    /// The kind's name, such as `PeerDead`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_errors_keep_the_error_and_its_kind() {
        let error = Error::new(sys::MERON_E_NOT_FOUND, "a.bin", "there is no file", "");
        let io: io::Error = error.into();
        assert_eq!(io.kind(), io::ErrorKind::NotFound);
        let own = io.get_ref().unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!((own.subject(), own.kind().to_string()), ("a.bin", "NotFound".to_string()));
    }
}
