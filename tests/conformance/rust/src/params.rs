// SPDX-License-Identifier: Apache-2.0
//! Operations on params, units and updates.

use std::ptr;

use meron::{sys, Activity, Buffer, Param, ParamDesc, ReduceOp};

use crate::elements::{seen_mut, store, values_for};
use crate::failure::{check, raw, wrong, Done, Failure};
use crate::gathers;
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::values::{dtype_of, floats, same, Values};

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "param" => param(session, s),
        "param_is" => param_is(session, s),
        "shard_range" => shard_range(session, s),
        "unit" => unit(session, s),
        "unit_is" => unit_is(session, s),
        "update" => {
            let update = session.context()?.update(&session.units(&s.list("units"))?)?;
            let handle = update.as_raw();
            session.put(s.object()?, Object::Update(Some(update), handle));
            Ok(())
        }
        "write" => write(session, s),
        "write_view" => write_view(session, s),
        "publish" => match session.object(s.object()?)? {
            Object::Update(update, handle) => match update.take() {
                Some(update) => Ok(update.publish()?),
                // SAFETY: a call with a handle by value; a stale one gives an error.
                None => raw(unsafe { sys::meron_update_publish(*handle, ptr::null_mut()) }),
            },
            _ => Err(wrong("that is no update")),
        },
        "destroy" => Ok(session.unit(s.object()?)?.destroy()?),
        _ => gathers::execute(session, s),
    }
}

// ---- Params and units ----------------------------------------------------------------------------

fn shape(text: &str) -> Result<Vec<i64>, Failure> {
    if text == "scalar" {
        return Ok(Vec::new());
    }
    text.split('x').map(|size| size.parse().map_err(|_| wrong("no size"))).collect()
}

fn param(session: &mut Session, s: &Statement) -> Done {
    let name = s.get("name").unwrap_or(s.object()?);
    let shape = shape(s.require("shape")?)?;
    let mut desc = ParamDesc::new(name, &shape)
        .dtype(dtype_of(s.require("dtype")?)?)
        .frozen(s.get("frozen") == Some("1"));
    if let Some(group) = s.get("group") {
        desc = desc.group(session.group(group)?);
    }
    let made = session.context()?.register(&desc)?;
    session.put(s.object()?, Object::Param(made));
    Ok(())
}

fn param_is(session: &mut Session, s: &Statement) -> Done {
    let param = session.param(s.object()?)?;
    param.shard_range()?; // what the layer remembers by itself is not asked for
    if let Some(wanted) = s.get("shape") {
        check(param.shape() == shape(wanted)?, "the shape differs")?;
    }
    check(
        s.get("dtype").unwrap_or_else(|| param.dtype().name()) == param.dtype().name(),
        "the dtype",
    )?;
    check(s.number("count", param.count())? == param.count(), "the count differs")?;
    let frozen = u8::from(param.is_frozen());
    check(s.number("frozen", frozen)? == frozen, "frozen differs")?;
    check(s.get("name").unwrap_or_else(|| param.name()) == param.name(), "the name differs")
}

fn shard_range(session: &mut Session, s: &Statement) -> Done {
    let param = session.param(s.object()?)?;
    let (part, count) = (param.shard_range()?, param.count());
    if s.get("all") == Some("1") {
        return check(part == (0..count), "it is not all");
    }
    let mut sum = [(part.end - part.start) as f32];
    session.context()?.world()?.all_reduce(&mut sum, ReduceOp::Sum)?;
    check(sum[0] == count as f32, format!("the parts add up to {}", sum[0]))
}

fn unit(session: &mut Session, s: &Statement) -> Done {
    let name = s.object()?;
    let names = s.list("params");
    let params: Vec<&Param> =
        names.iter().map(|name| session.param(name)).collect::<Result<_, _>>()?;
    let handles: Vec<u64> = params.iter().map(|param| param.as_raw().id).collect();
    let made = session.context()?.unit(s.get("name").unwrap_or(name), &params)?;
    session.put(name, Object::Unit(made));
    for handle in handles {
        session.unit_of.insert(handle, name.to_string());
    }
    Ok(())
}

fn unit_is(session: &mut Session, s: &Statement) -> Done {
    let unit = session.unit(s.object()?)?;
    check(s.get("name").unwrap_or(unit.name()) == unit.name(), unit.name().to_string())?;
    let flats: Vec<_> =
        unit.flats()?.iter().map(|f| format!("{}:{}", f.dtype().name(), f.count())).collect();
    check(s.list("flats").is_empty() || s.list("flats") == flats, format!("{flats:?}"))?;
    let info = unit.info()?;
    let state = match info.activity {
        Activity::Partitioned => "partitioned",
        Activity::Gathering => "gathering",
        Activity::Available => "available",
        Activity::Updating => "updating",
        _ => "unknown",
    };
    check(s.get("state").unwrap_or(state) == state, format!("it is {state}"))?;
    check(s.number("version", info.version)? == info.version, format!("{info:?}"))?;
    check(s.number("leases", info.leases)? == info.leases, format!("{info:?}"))?;
    let reduced = u8::from(info.reduced);
    check(s.number("reduced", reduced)? == reduced, format!("{info:?}"))?;
    for (key, codec) in [("param_codec", info.param_codec), ("gradient_codec", info.gradient_codec)]
    {
        let name = format!("{codec:?}").to_lowercase();
        check(s.get(key).unwrap_or(&name) == name, format!("{key} is {name}"))?;
    }
    check_error(s, "param_error", [info.param_error, info.param_worst_block])?;
    check_error(s, "gradient_error", [info.gradient_error, info.gradient_worst_block])
}

/// 0, or above 0 and at most what is given.
fn check_error(s: &Statement, name: &str, errors: [f64; 2]) -> Done {
    if s.get(name).is_none() {
        return Ok(());
    }
    let most: f64 = s.number(name, 0.0)?;
    let right =
        |&error: &f64| if most == 0.0 { error == 0.0 } else { error > 0.0 && error <= most };
    check(errors.iter().all(right), format!("{name} is {errors:?}, not up to {most}"))
}

// ---- Updates -------------------------------------------------------------------------------------

fn write(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let values = Values::parse(s.require("with")?, rank, ranks)?;
    let (update, param) = session.with_param(s.object()?, s.require("param")?)?;
    let dtype = s.get("dtype").map_or(Ok(param.dtype()), dtype_of)?;
    let values = values.make(dtype, 0, s.number("count", param.count() as usize)?)?;
    match update {
        Object::Update(Some(update), _) => match &values {
            Buffer::F32(values) => update.write(param, values)?,
            Buffer::Bf16(values) => update.write(param, values)?,
            Buffer::F16(values) => update.write(param, values)?,
            _ => unreachable!("the table has no other dtype"),
        },
        Object::Update(None, handle) => {
            let data = floats(&values);
            let (first, count) = (data.as_ptr() as *const _, data.len() as u64);
            // SAFETY: the values are only read, during the call.
            raw(unsafe {
                let (param, err) = (param.as_raw(), ptr::null_mut());
                sys::meron_update_write(*handle, param, first, count, sys::MERON_F32, err)
            })?;
        }
        _ => return Err(wrong("that is no update")),
    }
    Ok(())
}

fn write_view(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let before = s.get("before").map(|text| Values::parse(text, rank, ranks)).transpose()?;
    let values = Values::parse(s.require("with")?, rank, ranks)?;
    match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Update(Some(update), _), param) => {
            let mut view = update.view(param)?;
            if let Some(before) = before {
                same(&seen_mut(&view)?, &values_for(&view, &before)?)?;
            }
            let values = values_for(&view, &values)?;
            store(&mut view, &values)
        }
        _ => Err(wrong("that is no update that is open")),
    }
}
