// SPDX-License-Identifier: Apache-2.0
//! Operations on gradients and their reductions.

use std::ptr;

use meron::{sys, Buffer, Dtype, ReduceOp, ReduceOptions, Source};

use crate::checking::compare;
use crate::elements::{seen_mut, store, values_for};
use crate::failure::{check, raw, wrong, Done};
use crate::groups::reduce_op;
use crate::optimizers;
use crate::session::{Full, Object, Session};
use crate::table::Statement;
use crate::values::{dtype_of, floats, Values};
use crate::waiting::{check_ended, finish, timeout_of};

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "gradient" => gradient(session, s),
        "reduce" => reduce(session, s),
        "reduce_finish" => {
            let options = ReduceOptions::default()
                .op(reduce_op(s, ReduceOp::Mean)?)
                .divisor(s.number("divisor", 1.0)?);
            let operation = session.unit(s.object()?)?.reduce_finish_begin(&options)?;
            finish(session, s, operation)
        }
        "reduce_wait" => reduce_wait(session, s),
        "reduced" => reduced(session, s),
        "clip" => {
            let units = session.units(&s.list("units"))?;
            let norm = session.context()?.clip_gradients(&units, s.number("max_norm", 0.0)?)?;
            check(norm == s.number("is", norm)?, format!("the norm is {norm}"))
        }
        "reduced_dlpack" => reduced_dlpack(session, s),
        "discard" => Ok(session.unit(s.object()?)?.discard_reduced()?),
        _ => optimizers::execute(session, s),
    }
}

fn gradient(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let param = session.param(s.object()?)?;
    let unit = match session.unit_of.get(&param.as_raw().id) {
        Some(unit) => session.unit(unit)?,
        // The natural layer asks a unit for its gradients.
        None => {
            // SAFETY: `out` is valid during the call; zero is a value of a view.
            return raw(unsafe {
                let mut out = std::mem::zeroed();
                sys::meron_gradient_view(&mut out, param.as_raw(), 0, ptr::null_mut())
            });
        }
    };
    let mut gradients = unit.gradients()?;
    if let Some(text) = s.get("set") {
        let mut view = gradients.view_to_overwrite(param)?;
        let values = values_for(&view, &Values::parse(text, rank, ranks)?)?;
        return store(&mut view, &values);
    }
    let mut view = gradients.view(param)?;
    let added = values_for(&view, &Values::parse(s.require("add")?, rank, ranks)?)?;
    let sums = floats(&seen_mut(&view)?).into_iter().zip(floats(&added)).map(|(a, b)| a + b);
    let sums = match view.dtype() {
        Dtype::F32 => Buffer::F32(sums.collect()),
        Dtype::Bf16 => Buffer::Bf16(sums.map(meron::Bf16::from_f32).collect()),
        _ => Buffer::F16(sums.map(meron::F16::from_f32).collect()),
    };
    store(&mut view, &sums)
}

fn reduce(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let options = ReduceOptions::default()
        .op(reduce_op(s, ReduceOp::Mean)?)
        .boundary(s.get("boundary") != Some("0"))
        .divisor(s.number("divisor", 1.0)?);
    if let Some(gather) = s.get("from") {
        return reduce_from_gather(session, s, gather, &options);
    }
    let unit = session.unit(s.object()?)?;
    let mut arrays = Vec::new();
    for source in s.all("source") {
        let (name, text) = source.split_once('@').ok_or_else(|| wrong("no source"))?;
        let param = session.param(name)?;
        let dtype = s.get("dtype").map_or(Ok(param.dtype()), dtype_of)?;
        let count = s.number("count", param.count() as usize)?;
        arrays.push((param, Values::parse(text, rank, ranks)?.make(dtype, 0, count)?));
    }
    let operation = if arrays.is_empty() {
        unit.gradients()?.reduce_begin(&options)?
    } else {
        let sources: Vec<Source<'_>> = arrays
            .iter()
            .map(|(param, array)| match array {
                Buffer::F32(values) => Source::new(param, values),
                Buffer::Bf16(values) => Source::new(param, values),
                Buffer::F16(values) => Source::new(param, values),
                _ => unreachable!("the table has no other dtype"),
            })
            .collect();
        unit.reduce_from_begin(&sources, &options)?
    };
    finish(session, s, operation)
}

/// The gradients are the memory of a gather on the device.
fn reduce_from_gather(
    session: &mut Session,
    s: &Statement,
    gather: &str,
    options: &ReduceOptions,
) -> Done {
    let mut sources = Vec::new();
    for name in session.params_of(s.object()?) {
        let (full, param) = match session.with_param(gather, &name)? {
            (Object::Gather(Full::View(full), _), param) => (full, param),
            _ => return Err(wrong("that is no full gather of views")),
        };
        let data = full.device_pointer(param)?;
        // SAFETY: the case holds the gather until the reduction has ended.
        sources.push(unsafe { Source::on_device(param, data, param.count(), param.dtype()) });
    }
    let operation = session.unit(s.object()?)?.reduce_from_begin(&sources, options)?;
    finish(session, s, operation)
}

fn reduce_wait(session: &mut Session, s: &Statement) -> Done {
    let (context, units) = (session.context()?, session.units(&s.list("units"))?);
    let done = match timeout_of(s)? {
        Some(limit) => context.wait_reductions_timeout(&units, limit)?,
        None => context.wait_reductions(&units).map(|()| true)?,
    };
    check_ended(s, done)
}

fn reduced_dlpack(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let param = session.param(s.require("param")?)?;
    let unit = session.unit_of.get(&param.as_raw().id).ok_or_else(|| wrong("no unit"))?;
    let mut tensors = session.unit(unit)?.reduced()?.into_dlpack(&[param])?;
    let tensor = tensors.remove(0);
    let owned = param.shard_range()?;
    check(tensor.shape() == [(owned.end - owned.start) as i64], "another shape")?;
    let values = Buffer::F32(tensor.as_slice()?.to_vec());
    compare(&values, s, owned.start, rank, ranks)?;
    session.put(s.object()?, Object::Dlpack(Some(tensor)));
    Ok(())
}

fn reduced(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let param = session.param(s.object()?)?;
    let unit = session.unit_of.get(&param.as_raw().id).ok_or_else(|| wrong("no unit"))?;
    let mut reduced = session.unit(unit)?.reduced()?;
    let view = reduced.view(param)?;
    check(view.dtype() == Dtype::F32, "it is not f32")?;
    compare(&seen_mut(&view)?, s, view.offset(), rank, ranks)
}
