// SPDX-License-Identifier: Apache-2.0
//! Operations on the library, plans and contexts, and on whatever is waited for or released.

use std::ptr;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use meron::{sys, Buffer, Computation, Context, Dtype, Operation, Plan, Stats, Workload};

use crate::calls;
use crate::counters;
use crate::files::Begun;
use crate::groups::{collective, group, group_is, group_status, with_group};
use crate::session::{raw, status_name, wrong, Failure, Full, Object, Session};
use crate::sockets::Sockets;
use crate::table::Statement;
use crate::tensors;
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
        _ => tensors::execute(session, s),
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

// ---- Plans ---------------------------------------------------------------------------------------

fn plan(session: &mut Session, s: &Statement) -> Done {
    let made = match s.get("json") {
        Some(json) => Plan::parse(json)?,
        None => Plan::preset(s.require("preset")?)?,
    };
    session.put(s.object()?, Object::Plan(made));
    Ok(())
}

fn plan_predict(session: &mut Session, s: &Statement) -> Done {
    let workload = Workload::default()
        .ranks(s.number("ranks", 1)?)
        .micro_batches(s.number("micro_batches", 1)?)
        .gathers_per_micro_batch(s.number("gathers", 2)?)
        .ranks_per_node(s.number("node", 0)?)
        .optimizer_states(s.number("states", 2)?);
    let plan = session.plan(s.object()?)?;
    let model = s.require("model")?;
    let text = match s.get("table") {
        Some("1") => plan.predict_table(model, &workload)?,
        _ => plan.predict(model, &workload)?,
    };
    has(&text, s)
}

fn rank_cluster(s: &Statement) -> Done {
    let workload = Workload::default()
        .micro_batches(s.number("micro_batches", 1)?)
        .gathers_per_micro_batch(s.number("gathers", 2)?);
    let computation = match (s.get("tokens"), s.get("seconds")) {
        (Some(_), _) => Computation::Tokens(s.number("tokens", 0)?),
        (_, Some(_)) => Computation::Seconds(s.number("seconds", 0.0)?),
        _ => Computation::None,
    };
    let (model, cluster) = (s.require("model")?, s.require("cluster")?);
    let text = match s.get("table") {
        Some("1") => meron::rank_cluster_table(model, cluster, &workload, computation)?,
        _ => meron::rank_cluster(model, cluster, &workload, computation)?,
    };
    has(&text, s)
}

fn safetensors(s: &Statement) -> Done {
    let header = s.require("header")?.as_bytes();
    let length: u64 = s.number("length", header.len() as u64)?;
    let mut file = length.to_le_bytes().to_vec();
    file.extend_from_slice(header);
    let size = file.len() as u64 + s.number("data", 0u64)?;
    has(&meron::model_from_safetensors(&file, size)?, s)
}

// ---- Contexts ------------------------------------------------------------------------------------

fn open(session: &mut Session, s: &Statement) -> Done {
    let name = s.object.clone().unwrap_or_else(|| "ctx".to_string());
    let setup = session.setup.clone();
    let plan = match s.get("plan") {
        Some(plan) => Plan::parse(&session.plan(plan)?.to_json()?)?,
        None => Plan::preset(&session.plan)?,
    };
    let job = format!("{}.{}.{}.{name}", setup.job, session.case, session.plan);
    let mut options = Context::options()
        .threads(1)
        .arena_reserve(64 << 20)
        .rank(s.number("rank", setup.rank)?)
        .world_size(s.number("world", setup.ranks)?)
        .transport(s.get("transport").unwrap_or(&setup.transport))
        .job(s.get("job").unwrap_or(&job))
        .timeout(Duration::from_secs_f64(s.number("timeout", 20.0)?))
        .host_memory_limit(s.number("limit", 0)?)
        .plan(plan);
    if let Some(device) = s.get("device") {
        options = options.device(device);
    }
    if let Some(token) = s.get("token") {
        options = options.token(token);
    }
    if s.get("stoppable") == Some("1") {
        let stop = session.stop.clone();
        options = options.should_stop(move || stop.load(Ordering::Relaxed));
    }
    let usual = s.get("rank").is_none() && s.get("world").is_none() && s.get("transport").is_none();
    if setup.transport == "custom" && usual {
        let folder = std::env::temp_dir().join(format!("meron-{}-{job}", std::process::id()));
        let met = std::fs::create_dir_all(&folder).and_then(|()| {
            Sockets::meet(&folder, setup.rank, setup.ranks, Duration::from_secs(20))
        });
        let sockets = met.map_err(|error| wrong(format!("cannot meet in {folder:?}: {error}")))?;
        let _ = std::fs::remove_dir(&folder); // by the last rank; before, it is not empty
        options = options.custom("custom", 0, sockets)?;
    }
    session.put(&name, Object::Context(options.open()?));
    session.current = name;
    Ok(())
}

fn open_version(s: &Statement) -> Done {
    let mut options = sys::MERON_CONTEXT_OPTIONS_INIT;
    options.header_version = s.number::<u32>("minor", 0)? << 8;
    let mut context = sys::meron_context::default();
    // SAFETY: both pointers are valid during the call.
    raw(unsafe { sys::meron_context_open(&mut context, &options, ptr::null_mut()) })
}

/// A figure by its name in the C interface; whether it only grows.
fn counter(stats: &Stats, name: &str) -> Result<(u64, bool), Failure> {
    counters::counter(stats, name).ok_or_else(|| wrong(format!("there is no counter {name}")))
}

fn counted(session: &mut Session, s: &Statement) -> Done {
    let now = session.context()?.stats()?;
    for (name, wanted) in s.pairs() {
        if name == "on" {
            continue;
        }
        let (value, grows) = counter(&now, name)?;
        let before = if grows { counter(&session.mark, name)?.0 } else { 0 };
        let seen = value - before;
        check(&seen.to_string() == wanted, format!("{name} is {seen} instead of {wanted}"))?;
    }
    Ok(())
}

fn predicted(session: &mut Session, s: &Statement) -> Done {
    let workload = Workload::default()
        .micro_batches(s.number("micro_batches", 1)?)
        .gathers_per_micro_batch(s.number("gathers", 2)?);
    let steps: u64 = s.number("steps", 1)?;
    let plan = session.context()?.predict(&workload)?;
    let now = session.context()?.stats()?;
    for (name, per_step) in [
        ("param_bytes", plan.param_bytes),
        ("gradient_bytes", plan.gradient_bytes),
        ("optimizer_bytes", plan.optimizer_bytes),
        ("peak_bytes", plan.peak_bytes),
        ("gather_mapped_bytes", plan.gather_mapped_bytes),
        ("gather_copied_bytes", plan.gather_copied_bytes),
        ("reduce_bytes", plan.reduce_bytes),
        ("far_gather_bytes", plan.far_gather_bytes),
        ("far_reduce_bytes", plan.far_reduce_bytes),
        ("nvme_read_bytes", plan.nvme_read_bytes),
        ("nvme_written_bytes", plan.nvme_written_bytes),
        ("nvme_bytes", plan.nvme_bytes),
        ("device_bytes", plan.device_bytes),
    ] {
        let (value, grows) = counter(&now, name)?;
        let (seen, wanted) = match grows {
            true => (value - counter(&session.mark, name)?.0, steps * per_step),
            false => (value, per_step),
        };
        // Over a custom transport messages have memory of their own.
        let staged = name == "peak_bytes" && session.setup.transport == "custom" && seen > wanted;
        check(seen == wanted || staged, format!("{name} is {seen}, the prediction {wanted}"))?;
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
