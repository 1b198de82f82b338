// SPDX-License-Identifier: Apache-2.0
//! Operations that open contexts, and hold their counters against what is expected.

use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use meron::{sys, Context, Plan, Stats, Workload};

use crate::counters;
use crate::failure::{check, raw, wrong, Done, Failure};
use crate::session::{Object, Session};
use crate::sockets::Sockets;
use crate::table::Statement;

pub fn open(session: &mut Session, s: &Statement) -> Done {
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

pub fn open_version(s: &Statement) -> Done {
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

pub fn counted(session: &mut Session, s: &Statement) -> Done {
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

pub fn predicted(session: &mut Session, s: &Statement) -> Done {
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
        ("inter_node_gather_bytes", plan.inter_node_gather_bytes),
        ("inter_node_reduce_bytes", plan.inter_node_reduce_bytes),
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
