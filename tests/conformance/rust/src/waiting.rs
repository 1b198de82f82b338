// SPDX-License-Identifier: Apache-2.0
//! Operations on whatever is waited for or released.

use std::ptr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use meron::{sys, Operation, Pending};

use crate::failure::{check, raw, wrong, Done, Failure};
use crate::session::{Begun, Full, Object, Session};
use crate::table::Statement;

/// Keeps an operation under the name `future=`, or waits for it.
pub fn finish(session: &mut Session, s: &Statement, operation: Operation) -> Done {
    match s.get("future") {
        Some("none") => drop(operation), // given away
        Some(name) => session.put(name, Object::Future(operation)),
        None => operation.wait()?,
    }
    Ok(())
}

/// Whether it has ended; waits at most so long.
fn ended(object: &mut Object, timeout: Option<Duration>) -> Result<bool, Failure> {
    // Without a limit: longer than any deadline of a case.
    let timeout = timeout.unwrap_or(Duration::from_secs(60));
    let nanoseconds = timeout.as_nanos() as i64;
    match object {
        Object::Future(operation) => Ok(operation.wait_timeout(timeout)?),
        Object::Gather(full @ Full::Pending(_), _) => {
            if let Full::Pending(pending) = &*full {
                if !pending.wait_timeout(timeout)? {
                    return Ok(false);
                }
            }
            if let Full::Pending(pending) = std::mem::replace(full, Full::Gone) {
                *full = Full::View(pending.wait()?);
            }
            Ok(true)
        }
        // The natural layer's gathers are full.
        Object::Gather(_, handle) => {
            // SAFETY: a call with a handle by value; a wrong one gives an error.
            let status = unsafe { sys::meron_future_wait(*handle, nanoseconds, ptr::null_mut()) };
            raw(status)?;
            Ok(status == sys::MERON_OK)
        }
        _ => Err(wrong("that cannot be waited for")),
    }
}

/// The timeout of a wait, from `timeout=`.
pub fn timeout_of(s: &Statement) -> Result<Option<Duration>, Failure> {
    let seconds = s.get("timeout").map(|_| s.number("timeout", 0.0)).transpose()?;
    Ok(seconds.map(Duration::from_secs_f64))
}

pub fn check_ended(s: &Statement, done: bool) -> Done {
    let pending = s.get("pending") == Some("1");
    check(done != pending, if done { "it has ended" } else { "it has not ended" })
}

pub fn wait(session: &mut Session, s: &Statement) -> Done {
    let done = ended(session.object(s.object()?)?, timeout_of(s)?)?;
    check_ended(s, done)
}

pub fn wait_any(session: &mut Session, s: &Statement) -> Done {
    let timeout = timeout_of(s)?;
    let names = s.list("futures");
    let mut pending: Vec<&dyn Pending> = Vec::new();
    for name in &names {
        match session.get(name)? {
            Object::Future(operation) => pending.push(operation),
            Object::Gather(Full::Pending(gather), _) => pending.push(gather),
            _ => return Err(wrong("that cannot be waited for")),
        }
    }
    let found = meron::wait_any(&pending, timeout)?;
    check_ended(s, found.is_some())?;
    let wanted = s.number("is", found.unwrap_or(names.len()))?;
    check(found == Some(wanted) || s.get("is").is_none(), format!("the index is {found:?}"))
}

pub fn finish_one(session: &mut Session, s: &Statement) -> Done {
    let name = s.object()?;
    let waited = ended(session.object(name)?, None);
    let released = release(session, name);
    waited?;
    released
}

pub fn poll(session: &mut Session, s: &Statement) -> Done {
    let deadline = Instant::now() + Duration::from_secs(20);
    let object = session.object(s.object()?)?;
    let is_done = |object: &mut Object| match object {
        Object::Future(operation) => Ok(operation.is_done()?),
        Object::Gather(Full::Pending(pending), _) => Ok(pending.is_done()?),
        Object::Gather(_, handle) => {
            // SAFETY: as in `ended`.
            let status = unsafe { sys::meron_future_poll(*handle, ptr::null_mut()) };
            raw(status)?;
            Ok(status == sys::MERON_OK)
        }
        _ => Err(wrong("that cannot be polled")),
    };
    if s.get("pending") == Some("1") {
        return check(!is_done(object)?, "it has ended");
    }
    while !is_done(object)? {
        check(Instant::now() < deadline, "it does not end")?;
        sleep(Duration::from_millis(1));
    }
    ended(object, Some(Duration::ZERO)).map(drop)
}

pub fn release(session: &mut Session, name: &str) -> Done {
    let err = ptr::null_mut();
    // SAFETY: calls with handles by value; a wrong one gives an error. No slice of this session lives
    // between two operations.
    raw(unsafe {
        match session.object(name)? {
            Object::Plan(plan) => sys::meron_plan_release(plan.as_raw(), err),
            Object::Group(Some(group)) => sys::meron_group_release(group.as_raw(), err),
            Object::Group(None) => sys::MERON_OK,
            Object::Param(param) => sys::meron_param_release(param.as_raw(), err),
            Object::Unit(unit) => sys::meron_unit_release(unit.as_raw(), err),
            Object::Optimizer(optimizer) => sys::meron_optimizer_release(optimizer.as_raw(), err),
            Object::Schedule((schedule, entered)) => {
                entered.clear();
                sys::meron_schedule_release(schedule.as_raw(), err)
            }
            Object::Future(operation) => sys::meron_future_release(operation.as_raw(), err),
            Object::Update(update, handle) => {
                let status = sys::meron_future_release(*handle, err);
                *update = None;
                status
            }
            Object::Gather(full, handle) => match full {
                // Waiting for it has ended the handle and given the arrays back.
                Full::Into(pending @ None, ..) | Full::Flats(pending @ None, _) => {
                    drop(pending.take());
                    *full = Full::Gone;
                    sys::MERON_OK
                }
                _ => sys::meron_future_release(*handle, err),
            },
            Object::Dlpack(tensor) => match tensor.take() {
                Some(tensor) => {
                    drop(tensor);
                    sys::MERON_OK
                }
                None => sys::MERON_E_STALE,
            },
            Object::Checkpoint(checkpoint) => {
                sys::meron_checkpoint_release(checkpoint.as_raw(), err)
            }
            Object::Io(io) => sys::meron_io_close(io.as_raw(), err),
            Object::IoRequest(Begun::Own(request, _)) => {
                sys::meron_future_release(request.as_raw(), err)
            }
            Object::IoRequest(Begun::Pinned(request, ..)) => {
                sys::meron_future_release(request.as_raw(), err)
            }
            Object::IoBuffer(_, handle) => sys::meron_io_buffer_release(*handle, err),
            Object::Context(_) => return Err(wrong("contexts are closed")),
        }
    })
}
