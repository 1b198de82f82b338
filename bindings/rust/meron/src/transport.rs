// SPDX-License-Identifier: Apache-2.0
//! A transport of the program's own: how bytes move between ranks that share no memory.

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::raw::c_void;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use meron_sys as sys;

use crate::failures::{contained, note_transport_failure, Cause};

/// Moves messages between ranks; everything else Meron makes from that. Given to
/// [`ContextOptions::custom`](crate::ContextOptions::custom).
///
/// - No function blocks, but [`idle`](CustomTransport::idle), and none calls this crate.
/// - Tags are below 2^28.
/// - A message is received by the receive of the same tag that its destination started for this rank;
///   several of one tag in the order in which they were started.
/// - Sends and receives may be started in any order on both sides: a message whose receive has not been
///   started yet waits, and must not keep those of other tags from arriving.
/// - An error, or a panic, ends the use of that peer: the groups that it is in break with an error of
///   kind [`PeerDead`](crate::ErrorKind::PeerDead). On the thread that was told, the error's message has
///   the text.
pub trait CustomTransport: Send + 'static {
    /// Starts to send a message to rank `peer`. It has to be copied, or be on its way when this returns.
    /// Returns a number by which the request is meant from then on, `None` when the message cannot be
    /// taken now: then the same is asked again. A message may be empty.
    fn send(&mut self, peer: i32, tag: u64, message: &[u8]) -> io::Result<Option<u64>>;

    /// Starts to receive a message of at most `bytes` bytes from rank `peer`. Otherwise as
    /// [`send`](CustomTransport::send); the numbers of all requests differ.
    fn receive(&mut self, peer: i32, tag: u64, bytes: usize) -> io::Result<Option<u64>>;

    /// The size of the message when the request is done, `None` when it is not. For a receive, `place`
    /// is where the message goes, and has the bytes that were asked for; for a send it is empty. A
    /// request that is done is not asked about again. This is also where progress may be made.
    fn test(&mut self, request: u64, place: &mut [u8]) -> io::Result<Option<usize>>;

    /// Gives a request up.
    fn cancel(&mut self, request: u64);

    /// Returns when something may have happened, or after `timeout`: at most that long may this function
    /// block.
    fn idle(&mut self, timeout: Duration) {
        std::thread::sleep(timeout.min(Duration::from_millis(1)));
    }

    /// Returns `false` only if rank `peer` is known to be dead.
    fn is_alive(&mut self, _peer: i32) -> bool {
        true
    }

    /// No function is called any more: the context was closed.
    fn closed(&mut self) {}
}

/// Target of the library's user pointer.
pub(crate) struct Bridge {
    name: CString,
    max_message: u64,
    state: Mutex<State>,
}

struct State {
    transport: Box<dyn CustomTransport>,
    /// Destinations of pending receives.
    places: HashMap<u64, Place>,
}

/// Memory that the library lends until the request is done or cancelled.
struct Place {
    data: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is only touched inside of calls by which the library lends it.
unsafe impl Send for Place {}

impl Bridge {
    pub(crate) fn new(
        name: CString,
        max_message: u64,
        transport: Box<dyn CustomTransport>,
    ) -> Bridge {
        let state = Mutex::new(State { transport, places: HashMap::new() });
        Bridge { name, max_message, state }
    }

    /// The table by which the library calls the transport, for as long as `self` stays where it is.
    pub(crate) fn table(&self) -> sys::meron_transport {
        sys::meron_transport {
            name: self.name.as_ptr(),
            user: self as *const Bridge as *mut c_void,
            max_message: self.max_message,
            send: Some(send),
            receive: Some(receive),
            test: Some(test),
            cancel: Some(cancel),
            idle: Some(idle),
            alive: Some(alive),
            closed: Some(closed),
            ..sys::MERON_TRANSPORT_INIT
        }
    }

    /// The library calls one function at a time; the lock makes sure of it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a function of the transport. A failure becomes a status; its reason is kept for the
    /// resulting error.
    fn status(
        &self,
        what: fmt::Arguments<'_>,
        body: impl FnOnce(&mut State) -> io::Result<bool>,
    ) -> sys::meron_status {
        let mut state = self.state();
        let ran = contained(|| match body(&mut state) {
            Ok(done) => Ok(done),
            Err(error) => Err(Failed::cause(what, error.to_string(), Some(error))),
        });
        let (status, why) = match ran {
            Ok(Ok(true)) => return sys::MERON_OK,
            Ok(Ok(false)) => return sys::MERON_IN_PROGRESS,
            Ok(Err(failed)) => (sys::MERON_E_IO, failed),
            Err(panic) => {
                (sys::MERON_E_INTERNAL, Failed::cause(what, format!("panicked ({panic})"), None))
            }
        };
        note_transport_failure(why);
        status
    }
}

/// The failure of a function of the transport.
#[derive(Debug)]
struct Failed {
    text: String,
    error: Option<io::Error>,
}

impl Failed {
    fn cause(what: fmt::Arguments<'_>, why: String, error: Option<io::Error>) -> Cause {
        Arc::new(Failed { text: format!("{what}: {why}"), error })
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Failed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.as_ref().map(|error| error as _)
    }
}

/// # Safety
///
/// `user` is the pointer of `Bridge::table`, whose bridge lives.
unsafe fn bridge<'a>(user: *mut c_void) -> &'a Bridge {
    // SAFETY: as the caller promises.
    unsafe { &*(user as *const Bridge) }
}

unsafe extern "C" fn send(
    user: *mut c_void,
    request: *mut u64,
    peer: i32,
    tag: u64,
    data: *const c_void,
    bytes: u64,
) -> sys::meron_status {
    let message: &[u8] = match bytes {
        0 => &[],
        // SAFETY: the library lends so many bytes during the call.
        _ => unsafe { slice::from_raw_parts(data as *const u8, bytes as usize) },
    };
    // SAFETY: `user` is from `Bridge::table`, whose bridge each object of the context keeps.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("send to rank {peer}"), |state| {
        let number = state.transport.send(peer, tag, message)?;
        if let Some(number) = number {
            // SAFETY: the library's place for the number, during the call.
            unsafe { *request = number };
        }
        Ok(number.is_some())
    })
}

unsafe extern "C" fn receive(
    user: *mut c_void,
    request: *mut u64,
    peer: i32,
    tag: u64,
    data: *mut c_void,
    bytes: u64,
) -> sys::meron_status {
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("receive from rank {peer}"), |state| {
        let number = state.transport.receive(peer, tag, bytes as usize)?;
        if let Some(number) = number {
            state.places.insert(number, Place { data: data as *mut u8, bytes: bytes as usize });
            // SAFETY: the library's place for the number, during the call.
            unsafe { *request = number };
        }
        Ok(number.is_some())
    })
}

unsafe extern "C" fn test(user: *mut c_void, request: u64, bytes: *mut u64) -> sys::meron_status {
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("test"), |state| {
        let place: &mut [u8] = match state.places.get(&request) {
            // SAFETY: the library lends the memory until the request is done or cancelled.
            Some(place) if place.bytes > 0 => unsafe {
                slice::from_raw_parts_mut(place.data, place.bytes)
            },
            _ => &mut [],
        };
        let size = state.transport.test(request, place);
        if !matches!(size, Ok(None)) {
            state.places.remove(&request);
        }
        let size = size?;
        if let Some(size) = size {
            // SAFETY: the library's place for the size, during the call.
            unsafe { *bytes = size as u64 };
        }
        Ok(size.is_some())
    })
}

unsafe extern "C" fn cancel(user: *mut c_void, request: u64) {
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("cancel"), |state| {
        state.places.remove(&request);
        state.transport.cancel(request);
        Ok(true)
    });
}

unsafe extern "C" fn idle(user: *mut c_void, timeout_ns: i64) {
    let timeout = Duration::from_nanos(timeout_ns.max(0) as u64);
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("idle"), |state| {
        state.transport.idle(timeout);
        Ok(true)
    });
}

unsafe extern "C" fn alive(user: *mut c_void, peer: i32) -> i32 {
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    let mut is_alive = false; // after a panic nothing moves to that peer any more
    bridge.status(format_args!("asking for rank {peer}"), |state| {
        is_alive = state.transport.is_alive(peer);
        Ok(true)
    });
    i32::from(is_alive)
}

unsafe extern "C" fn closed(user: *mut c_void) {
    // SAFETY: as in `send`.
    let bridge = unsafe { bridge(user) };
    bridge.status(format_args!("closed"), |state| {
        state.transport.closed();
        Ok(true)
    });
}
