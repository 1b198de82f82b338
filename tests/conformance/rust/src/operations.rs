// SPDX-License-Identifier: Apache-2.0
//! Finds the function of an operation; operations on the library, and on whatever is waited for or
//! released.

use std::ptr;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use meron::{sys, Buffer, Dtype, Operation, Plan};

use crate::calls;
use crate::contexts::{counted, open, open_version, predicted};
use crate::files::Begun;
use crate::groups::{collective, group, group_is, group_status, with_group};
use crate::params;
use crate::plans::{plan, plan_predict, rank_cluster, safetensors};
use crate::session::{raw, status_name, wrong, Failure, Full, Object, Session};
use crate::table::Statement;
use crate::values::{checksum, holds, near, Values};

pub type Done = Result<(), Failure>;

pub fn check(holds: bool, what: impl Into<String>) -> Done {
    if holds {
        Ok(())
    } else {
        Err(wrong(what))
    }
}

/// Whether a text holds each of the words of `has`.
pub fn has(text: &str, s: &Statement) -> Done {
    for word in s.list("has") {
        check(holds(text, word), format!("{text} lacks {word}"))?;
    }
    Ok(())
}

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "library" => library(),
        "call" => calls::execute(session, s),
        "system" => has(&meron::system_info()?, s),
        "plan" => plan(session, s),
        "plan_json" => {
            let json = session.plan(s.object()?)?.to_json()?;
            has(&json, s)?;
            check(Plan::parse(&json)?.to_json()? == json, "it reads back as another plan")
        }
        "plan_same" => {
            let json = session.plan(s.object()?)?.to_json()?;
            check(json == session.plan(s.require("other")?)?.to_json()?, "the plans differ")
        }
        "plan_predict" => plan_predict(session, s),
        "rank_cluster" => rank_cluster(s),
        "safetensors" => safetensors(s),
        "open" => open(session, s),
        "open_version" => open_version(s),
        "use" => {
            session.current = s.object()?.to_string();
            Ok(())
        }
        "close" => {
            let name = s.object.clone().unwrap_or_else(|| session.current.clone());
            match session.object(&name)? {
                // SAFETY: nothing of this session looks at the context's memory any more.
                Object::Context(context) => {
                    raw(unsafe { sys::meron_context_close(context.as_raw(), ptr::null_mut()) })
                }
                _ => Err(wrong(format!("{name} is no context"))),
            }
        }
        "context" => {
            let (context, setup) = (session.context()?, &session.setup);
            check(context.rank() == setup.rank, "the rank differs")?;
            check(context.world_size() == setup.ranks, "the number of ranks differs")?;
            check(context.transport() == setup.transport, "the transport differs")
        }
        "progress" => Ok(session.context()?.progress()?),
        "stop" => {
            session.stop.store(s.object()? == "1", Ordering::Relaxed);
            Ok(())
        }
        "mark" => {
            session.mark = session.context()?.stats()?;
            Ok(())
        }
        "counted" => counted(session, s),
        "predicted" => predicted(session, s),
        "flight_record" => has(&session.context()?.flight_record()?, s),
        "group" => group(session, s),
        "group_is" => group_is(session, s),
        "group_status" => group_status(session, s),
        "abort" => with_group(session, s, |group| Ok(group.abort(s.require("reason")?)?)),
        "barrier" => {
            let barrier = with_group(session, s, |group| Ok(group.barrier_begin()?))?;
            finish(session, s, barrier)
        }
        "broadcast" | "all_reduce" => collective(session, s),
        "wait" => wait(session, s),
        "poll" => poll(session, s),
        "release" => release(session, s.object()?),
        "sleep" => {
            sleep(Duration::from_secs_f64(s.number("s", 0.0)?));
            Ok(())
        }
        _ => params::execute(session, s),
    }
}

fn library() -> Done {
    check(meron::version() == env!("CARGO_PKG_VERSION"), "the version's text differs")?;
    // SAFETY: a function without arguments that returns a number.
    check(unsafe { sys::meron_version() } == sys::MERON_VERSION, "the version differs")?;
    for (dtype, size) in [(Dtype::F32, 4), (Dtype::Bf16, 2), (Dtype::F16, 2)] {
        check(dtype.size() == size, format!("{dtype} has another size"))?;
    }
    let names = [(0, "OK"), (-100, "E_ARGUMENT"), (-300, "E_TIMEOUT"), (-402, "E_INTERNAL")];
    for (code, name) in names {
        check(status_name(code) == format!("MERON_{name}"), format!("{code} is not {name}"))?;
    }
    Ok(())
}

/// Holds elements against `is=`, `crc=` or `crcN=`.
pub fn compare(seen: &Buffer, s: &Statement, offset: u64, rank: i32, ranks: i32) -> Done {
    if let Some(is) = s.get("is") {
        let wanted = Values::parse(is, rank, ranks)?;
        let within = s.number("within", 0.0)?;
        near(seen, &wanted.make(seen.dtype(), offset, seen.len())?, within)?;
    }
    for key in ["crc".to_string(), format!("crc{ranks}")] {
        if let Some(wanted) = s.get(&key) {
            let found = checksum(seen);
            check(found == wanted, format!("the CRC is {found} instead of {wanted}"))?;
        }
    }
    Ok(())
}

// ---- Waiting and letting go ----------------------------------------------------------------------

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

/// What `timeout=` gives a wait.
pub fn timeout_of(s: &Statement) -> Result<Option<Duration>, Failure> {
    let seconds = s.get("timeout").map(|_| s.number("timeout", 0.0)).transpose()?;
    Ok(seconds.map(Duration::from_secs_f64))
}

pub fn check_ended(s: &Statement, done: bool) -> Done {
    let pending = s.get("pending") == Some("1");
    check(done != pending, if done { "it has ended" } else { "it has not ended" })
}

fn wait(session: &mut Session, s: &Statement) -> Done {
    let done = ended(session.object(s.object()?)?, timeout_of(s)?)?;
    check_ended(s, done)
}

fn poll(session: &mut Session, s: &Statement) -> Done {
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

fn release(session: &mut Session, name: &str) -> Done {
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
                Full::Into(pending @ None, ..) => {
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
