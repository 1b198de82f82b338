// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
//! The operation `call`. `../README.md` defines it.

use crate::checking::has;
use crate::failure::{check, wrong, Done};
use crate::groups::with_group;
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::waiting::finish;

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    if s.require("function")? == "meron_barrier_begin" {
        let begun = with_group(session, s, |it| Ok(it.barrier_begin()?))?;
        return finish(session, s, begun);
    }
    let name = s.object.clone().unwrap_or_else(|| session.current.clone());
    match (s.require("function")?, session.object(&name)?) {
        ("meron_context_plan_json", Object::Context(it)) => has(&it.plan_json()?, s),
        ("meron_context_event_fd", Object::Context(it)) => {
            let result = it.event_fd()?;
            check(s.number("is", result)? == result, format!("it is {result}"))
        }
        ("meron_checkpoint_cancel_save", Object::Context(it)) => Ok(it.cancel_save()?),
        ("meron_plan_json", Object::Plan(it)) => has(&it.to_json()?, s),
        ("meron_plan_table", Object::Plan(it)) => has(&it.to_table()?, s),
        ("meron_reduce_consume", Object::Unit(it)) => Ok(it.consume()?),
        ("meron_reduce_scale_feedback", Object::Unit(it)) => Ok(it.scale_feedback(s.number("factor", 0.0)?)?),
        ("meron_optimizer_set_max_norm", Object::Optimizer(it)) => Ok(it.set_max_norm(s.number("max_norm", 0.0)?)?),
        ("meron_schedule_drop", Object::Schedule((it, _))) => Ok(it.drop_all()?),
        ("meron_io_describe", Object::Io(it)) => has(&it.describe()?, s),
        (function, _) => Err(wrong(format!("{name} has no {function}"))),
    }
}
