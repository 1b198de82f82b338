// SPDX-License-Identifier: Apache-2.0
//! Operations on plans, and what is predicted and ranked by them.

use meron::{Computation, Plan, Workload};

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

pub fn rank_cluster(s: &Statement) -> Done {
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

pub fn safetensors(s: &Statement) -> Done {
    let header = s.require("header")?.as_bytes();
    let length: u64 = s.number("length", header.len() as u64)?;
    let mut file = length.to_le_bytes().to_vec();
    file.extend_from_slice(header);
    let size = file.len() as u64 + s.number("data", 0u64)?;
    has(&meron::model_from_safetensors(&file, size)?, s)
}
