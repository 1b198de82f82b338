// SPDX-License-Identifier: Apache-2.0
//! Operations on schedules. Dropping the natural layer's `Entered` leaves the unit. Misuses that
//! the natural layer cannot express (leaving a unit that is not entered, resetting one that is) use
//! the raw layer.

use std::ptr;
use std::time::Duration;

use meron::{sys, Entered, Schedule, ScheduleOptions, Tier};

use crate::checking::compare;
use crate::elements::seen;
use crate::failure::{check, raw, wrong, Done, Failure};
use crate::files;
use crate::session::{Object, Session};
use crate::table::Statement;

fn found<'s>(
    session: &'s mut Session,
    s: &Statement,
) -> Result<&'s mut (Schedule, Vec<Entered>), Failure> {
    match session.object(s.object()?)? {
        Object::Schedule(schedule) => Ok(schedule),
        _ => Err(wrong("that is no schedule")),
    }
}

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "schedule" => schedule(session, s),
        "pass" => Ok(found(session, s)?.0.start_pass(s.number("kind", 0)?)?),
        "enter" => enter(session, s),
        "leave" => leave(session, s),
        "used" => used(session, s),
        "reset" => {
            let (schedule, entered) = found(session, s)?;
            if entered.is_empty() {
                return Ok(schedule.reset()?);
            }
            entered.drain(..).for_each(std::mem::forget);
            let handle = schedule.as_raw();
            // SAFETY: a call with a handle by value; no slice of this session lives between operations.
            raw(unsafe { sys::meron_schedule_reset(handle, ptr::null_mut()) })
        }
        "schedule_is" => schedule_is(session, s),
        _ => files::execute(session, s),
    }
}

fn schedule(session: &mut Session, s: &Statement) -> Done {
    let usual = ScheduleOptions::default();
    let options = usual
        .prefetch_elements(s.number("prefetch", usual.prefetch_elements)?)
        .max_live_elements(s.number("live", usual.max_live_elements)?)
        .max_reuse_elements(s.number("reuse", usual.max_reuse_elements)?)
        .persist_elements(s.number("persist", usual.persist_elements)?)
        .persist_total_elements(s.number("persist_total", usual.persist_total_elements)?)
        .tier(if s.get("tier") == Some("device") { Tier::Device } else { Tier::Host });
    let made = session.context()?.schedule(&session.units(&s.list("units"))?, &options)?;
    session.put(s.object()?, Object::Schedule((made, Vec::new())));
    Ok(())
}

fn enter(session: &mut Session, s: &Statement) -> Done {
    let index = s.number("index", 0)?;
    let (schedule, entered) = found(session, s)?;
    let now = match s.get("timeout") {
        Some(_) => {
            schedule.enter_timeout(index, Duration::from_secs_f64(s.number("timeout", 0.0)?))?
        }
        None => Some(schedule.enter(index)?),
    };
    check(now.is_some() != (s.get("pending") == Some("1")), "entered, or not")?;
    entered.extend(now);
    Ok(())
}

fn leave(session: &mut Session, s: &Statement) -> Done {
    let index = s.number("index", 0)?;
    let (schedule, entered) = found(session, s)?;
    if let Some(place) = entered.iter().position(|each| each.index() == index) {
        return Ok(entered.remove(place).leave()?);
    }
    let handle = schedule.as_raw();
    // SAFETY: a call with a handle by value; a wrong one gives an error.
    raw(unsafe { sys::meron_schedule_leave(handle, index, ptr::null_mut()) })
}

fn used(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let ((schedule, entered), param) = match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Schedule(schedule), param) => (&*schedule, param),
        _ => return Err(wrong("that is no schedule")),
    };
    for each in entered {
        if let Ok(view) = each.view(param) {
            let values = seen(&view)?;
            check(values.len() as u64 == param.count(), "the number of elements differs")?;
            check(values.dtype() == param.dtype(), "the dtype differs")?;
            return compare(&values, s, 0, rank, ranks);
        }
    }
    let (handle, param) = (schedule.as_raw(), param.as_raw());
    // SAFETY: `out` is valid during the call; zero is a value of a view.
    raw(unsafe {
        let mut out = std::mem::zeroed();
        sys::meron_schedule_view(&mut out, handle, param, ptr::null_mut())
    })
}

fn schedule_is(session: &mut Session, s: &Statement) -> Done {
    let info = found(session, s)?.0.info()?;
    for (key, value) in [
        ("entered", u64::from(info.entered)),
        ("units", info.units),
        ("passes", info.passes),
        ("uses", info.uses),
        ("ahead", info.ahead),
        ("deviations", info.deviations),
        ("live_elements", info.live_elements),
        ("peak_live_elements", info.peak_live_elements),
    ] {
        check(s.number(key, value)? == value, format!("{key} is {value}"))?;
    }
    Ok(())
}
