// SPDX-License-Identifier: Apache-2.0
//! Operations on optimizers.

use std::ptr;

use meron::{sys, Adagrad, Adam, AdamW, Buffer, Dtype, Lion, OptimizerGroup, Sgd, State};

use crate::checking::compare;
use crate::elements::{seen, store, values_for};
use crate::failure::{check, raw, wrong, Done, Failure};
use crate::schedules;
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::values::Values;
use crate::waiting::finish;

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "optimizer" => optimizer(session, s),
        "step" => {
            let step = session.optimizer(s.object()?)?.step_begin()?;
            finish(session, s, step)
        }
        "optimizer_is" => optimizer_is(session, s),
        "learning_rate" => {
            let rate = s.number("lr", 0.0)?;
            Ok(session.optimizer(s.object()?)?.set_learning_rate(rate)?)
        }
        "set_steps" => {
            let steps = s.number("steps", 0)?;
            Ok(session.optimizer(s.object()?)?.set_steps(steps)?)
        }
        "skip" => {
            let (optimizer, params) =
                session.optimizer_and_params(s.object()?, &s.list("params"))?;
            Ok(optimizer.skip(&params)?)
        }
        "param_steps" => {
            let (optimizer, params) =
                session.optimizer_and_params(s.object()?, &[s.require("param")?])?;
            let found = optimizer.param_steps(params[0])?;
            check(found == s.number("is", 0)?, format!("it has taken {found} steps"))
        }
        "set_param_steps" => {
            let (optimizer, params) =
                session.optimizer_and_params(s.object()?, &[s.require("param")?])?;
            Ok(optimizer.set_param_steps(params[0], s.number("steps", 0)?)?)
        }
        "optimizer_group" => optimizer_group(session, s),
        "set_optimizer_group" => set_optimizer_group(session, s),
        "optimizer_group_is" => optimizer_group_is(session, s),
        "state" => state(session, s),
        "state_read" => state_read(session, s),
        "state_write" => state_write(session, s),
        "offload" => Ok(session.optimizer(s.object()?)?.offload(s.get("folder"))?),
        "reload" => Ok(session.optimizer(s.object()?)?.reload()?),
        _ => schedules::execute(session, s),
    }
}

fn optimizer(session: &mut Session, s: &Statement) -> Done {
    let context = session.context()?;
    let units = session.units(&s.list("units"))?;
    let kind = s.get("kind").unwrap_or("adamw");
    let dampening = s.number("dampening", 0.0)?;
    let nesterov = s.get("nesterov") == Some("1");
    let lr_decay = s.number("lr_decay", 0.0)?;
    let made = match kind {
        "adamw" | "adam" | "adagrad" | "lion" if nesterov || dampening != 0.0 => {
            return optimizer_raw(session, s, kind);
        }
        "adamw" | "adam" | "lion" | "sgd" if lr_decay != 0.0 => {
            return optimizer_raw(session, s, kind);
        }
        "adamw" => {
            let mut rule = AdamW::default();
            rule.learning_rate = s.number("lr", rule.learning_rate)?;
            rule.beta1 = s.number("beta1", rule.beta1)?;
            rule.beta2 = s.number("beta2", rule.beta2)?;
            rule.epsilon = s.number("epsilon", rule.epsilon)?;
            rule.weight_decay = s.number("weight_decay", rule.weight_decay)?;
            rule.max_norm = s.number("max_norm", rule.max_norm)?;
            context.adamw(&units, &rule)?
        }
        "adam" => {
            let mut rule = Adam::default();
            rule.learning_rate = s.number("lr", rule.learning_rate)?;
            rule.beta1 = s.number("beta1", rule.beta1)?;
            rule.beta2 = s.number("beta2", rule.beta2)?;
            rule.epsilon = s.number("epsilon", rule.epsilon)?;
            rule.weight_decay = s.number("weight_decay", rule.weight_decay)?;
            rule.max_norm = s.number("max_norm", rule.max_norm)?;
            context.adam(&units, &rule)?
        }
        "adagrad" => {
            let mut rule = Adagrad::default();
            rule.learning_rate = s.number("lr", rule.learning_rate)?;
            rule.epsilon = s.number("epsilon", rule.epsilon)?;
            rule.weight_decay = s.number("weight_decay", rule.weight_decay)?;
            rule.max_norm = s.number("max_norm", rule.max_norm)?;
            rule.lr_decay = s.number("lr_decay", rule.lr_decay)?;
            context.adagrad(&units, &rule)?
        }
        "lion" => {
            let mut rule = Lion::default();
            rule.learning_rate = s.number("lr", rule.learning_rate)?;
            rule.beta1 = s.number("beta1", rule.beta1)?;
            rule.beta2 = s.number("beta2", rule.beta2)?;
            rule.weight_decay = s.number("weight_decay", rule.weight_decay)?;
            rule.max_norm = s.number("max_norm", rule.max_norm)?;
            context.lion(&units, &rule)?
        }
        "sgd" => {
            let mut rule = Sgd::default();
            rule.learning_rate = s.number("lr", rule.learning_rate)?;
            rule.momentum = s.number("beta1", rule.momentum)?;
            rule.dampening = s.number("dampening", rule.dampening)?;
            rule.nesterov = nesterov;
            rule.weight_decay = s.number("weight_decay", rule.weight_decay)?;
            rule.max_norm = s.number("max_norm", rule.max_norm)?;
            context.sgd(&units, &rule)?
        }
        _ => return optimizer_raw(session, s, kind),
    };
    session.put(s.object()?, Object::Optimizer(made));
    Ok(())
}

/// A rule that there is not, or options that are another rule's: the natural layer has no words for them.
fn optimizer_raw(session: &Session, s: &Statement, kind: &str) -> Done {
    let defaults = match kind {
        "adamw" => sys::MERON_OPTIMIZER_ADAMW_INIT,
        "adam" => sys::MERON_OPTIMIZER_ADAM_INIT,
        "adagrad" => sys::MERON_OPTIMIZER_ADAGRAD_INIT,
        "lion" => sys::MERON_OPTIMIZER_LION_INIT,
        "sgd" => sys::MERON_OPTIMIZER_SGD_INIT,
        other => sys::meron_optimizer_options {
            kind: other.parse().map_err(|_| wrong(format!("{other} is no rule")))?,
            ..sys::MERON_OPTIMIZER_OPTIONS_INIT
        },
    };
    let options = sys::meron_optimizer_options {
        dampening: s.number("dampening", 0.0)?,
        nesterov: s.number("nesterov", 0)?,
        lr_decay: s.number("lr_decay", 0.0)?,
        ..defaults
    };
    let units = session.units(&s.list("units"))?;
    let handles: Vec<_> = units.iter().map(|unit| unit.as_raw()).collect();
    let mut out = sys::meron_optimizer::default();
    let (first, count, err) = (handles.as_ptr(), handles.len(), ptr::null_mut());
    // SAFETY: all of it is valid during the call.
    raw(unsafe { sys::meron_optimizer_create(&mut out, first, count, &options, err) })
}

fn optimizer_is(session: &mut Session, s: &Statement) -> Done {
    let info = session.optimizer(s.object()?)?.info()?;
    for (key, found) in [
        ("steps", info.steps as f64),
        ("norm", info.norm),
        ("lr", info.learning_rate),
        ("groups", f64::from(info.groups)),
        ("states", f64::from(info.states)),
        ("nvme_bytes", info.nvme_bytes as f64),
    ] {
        let as_wanted = s.get(key).is_none() || s.number(key, found)? == found;
        check(as_wanted, format!("{key} is {found}"))?;
    }
    Ok(())
}

/// A group's numbers, those that the statement gives instead of its own.
fn group_numbers(s: &Statement, group: OptimizerGroup) -> Result<OptimizerGroup, Failure> {
    Ok(group
        .learning_rate(s.number("lr", group.learning_rate)?)
        .beta1(s.number("beta1", group.beta1)?)
        .beta2(s.number("beta2", group.beta2)?)
        .epsilon(s.number("epsilon", group.epsilon)?)
        .weight_decay(s.number("weight_decay", group.weight_decay)?)
        .lr_decay(s.number("lr_decay", group.lr_decay)?))
}

fn optimizer_group(session: &mut Session, s: &Statement) -> Done {
    let (optimizer, params) = session.optimizer_and_params(s.object()?, &s.list("params"))?;
    let group = group_numbers(s, optimizer.group(0)?)?;
    let number = optimizer.add_group(&params, &group)?;
    check(s.number("number", number)? == number, format!("the group's number is {number}"))
}

fn set_optimizer_group(session: &mut Session, s: &Statement) -> Done {
    let optimizer = session.optimizer(s.object()?)?;
    let number = s.number("number", 0)?;
    let group = group_numbers(s, optimizer.group(number)?)?;
    Ok(optimizer.set_group(number, &group)?)
}

fn optimizer_group_is(session: &mut Session, s: &Statement) -> Done {
    let found = session.optimizer(s.object()?)?.group(s.number("number", 0)?)?;
    check(found == group_numbers(s, found)?, format!("it is {found:?}"))
}

fn state_of(s: &Statement) -> Result<State, Failure> {
    match s.require("state")? {
        "master" => Ok(State::Master),
        "exp_avg" => Ok(State::ExpAvg),
        "exp_avg_sq" => Ok(State::ExpAvgSq),
        other => Err(wrong(format!("{other} is no state"))),
    }
}

fn state_read(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let state = state_of(s)?;
    let (optimizer, param) = match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Optimizer(optimizer), param) => (optimizer, param),
        _ => return Err(wrong("that is no optimizer")),
    };
    if s.get("count").is_some() {
        // The natural layer takes as many as there are.
        let mut out = vec![0.0f32; s.number("count", 0)?];
        let (first, count, err) = (out.as_mut_ptr(), out.len() as u64, ptr::null_mut());
        let (optimizer, param) = (optimizer.as_raw(), param.as_raw());
        let exp_avg = sys::MERON_OPTIMIZER_STATE_EXP_AVG;
        // SAFETY: the buffer has `count` elements and outlives the call.
        return raw(unsafe {
            sys::meron_optimizer_read_state(first, count, optimizer, param, exp_avg, err)
        });
    }
    let values = Buffer::F32(optimizer.read_state(param, state)?);
    compare(&values, s, param.shard_range()?.start, rank, ranks)
}

fn state_write(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let (state, values) = (state_of(s)?, Values::parse(s.require("with")?, rank, ranks)?);
    let (optimizer, param) = match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Optimizer(optimizer), param) => (optimizer, param),
        _ => return Err(wrong("that is no optimizer")),
    };
    let shard_range = param.shard_range()?;
    let count = s.number("count", (shard_range.end - shard_range.start) as usize)?;
    match values.make(Dtype::F32, shard_range.start, count)? {
        Buffer::F32(values) => Ok(optimizer.write_state(param, state, &values)?),
        _ => Err(wrong("it is not f32")),
    }
}

fn state(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let state = state_of(s)?;
    let (optimizer, param) = match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Optimizer(optimizer), param) => (optimizer, param),
        _ => return Err(wrong("that is no optimizer")),
    };
    let mut states = optimizer.states()?;
    if let Some(text) = s.get("set") {
        let mut view = states.view_mut(param, state)?;
        let values = values_for(&view, &Values::parse(text, rank, ranks)?)?;
        return store(&mut view, &values);
    }
    let view = states.view(param, state)?;
    compare(&seen(&view)?, s, view.offset(), rank, ranks)
}
