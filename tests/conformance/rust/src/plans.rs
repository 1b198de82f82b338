// SPDX-License-Identifier: Apache-2.0
//! Operations on plans and their predictions.

use meron::{Plan, Workload};

use crate::checking::has;
use crate::failure::Done;
use crate::session::{Object, Session};
use crate::table::Statement;

pub fn plan(session: &mut Session, s: &Statement) -> Done {
    let made = match s.get("json") {
        Some(json) => Plan::parse(json)?,
        None => Plan::preset(s.require("preset")?)?,
    };
    session.put(s.object()?, Object::Plan(made));
    Ok(())
}

pub fn plan_predict(session: &mut Session, s: &Statement) -> Done {
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
