// SPDX-License-Identifier: Apache-2.0
//! Finds the function of an operation; operations on the library and on contexts.

use std::ptr;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use meron::{sys, Dtype, Plan};

use crate::calls;
use crate::checking::has;
use crate::contexts::{counted, open, open_version, predicted};
use crate::failure::{check, raw, status_name, wrong, Done};
use crate::groups::{collective, group, group_is, group_status, with_group};
use crate::params;
use crate::plans::{plan, plan_predict};
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::waiting::{finish, finish_one, poll, release, wait, wait_any};

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
        "wait_any" => wait_any(session, s),
        "finish" => finish_one(session, s),
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
