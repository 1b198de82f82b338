// SPDX-License-Identifier: Apache-2.0
//! Operations on params, units, updates, gathers and gradients.

use std::ptr;
use std::time::Duration;

use meron::{
    sys, Activity, Buffer, Dtype, Param, ParamDesc, Place, ReduceOp, ReduceOptions, Source, Stream,
    View, ViewMut,
};

use crate::groups::reduce_op;
use crate::operations::{check, check_ended, compare, finish, timeout_of, Done};
use crate::optimizers;
use crate::session::{raw, wrong, Failure, Full, Object, Session};
use crate::table::Statement;
use crate::values::{checksum, dtype_of, floats, same, Values};

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "param" => param(session, s),
        "param_is" => param_is(session, s),
        "owned" => owned(session, s),
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
        "gather" | "gather_begin" => gather(session, s),
        "full" => full(session, s),
        "overwrite" => overwrite(session, s),
        "wait_stream" => wait_stream(session, s),
        "release_on_stream" => release_on_stream(session, s),
        "dlpack" => dlpack(session, s),
        "gradient" => gradient(session, s),
        "reduce" => reduce(session, s),
        "reduce_finish" => {
            let options = ReduceOptions::default()
                .op(reduce_op(s, ReduceOp::Mean)?)
                .divisor(s.number("divisor", 1.0)?);
            let operation = session.unit(s.object()?)?.reduce_finish(&options)?;
            finish(session, s, operation)
        }
        "reduce_wait" => reduce_wait(session, s),
        "reduced" => reduced(session, s),
        "discard" => Ok(session.unit(s.object()?)?.discard_reduced()?),
        "destroy" => Ok(session.unit(s.object()?)?.destroy()?),
        _ => optimizers::execute(session, s),
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
    param.owned()?; // what the layer remembers by itself is not asked for
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

fn owned(session: &mut Session, s: &Statement) -> Done {
    let param = session.param(s.object()?)?;
    let (part, count) = (param.owned()?, param.count());
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
    let info = session.unit(s.object()?)?.info()?;
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

// ---- Elements ------------------------------------------------------------------------------------

pub fn seen(view: &View<'_>) -> Result<Buffer, Failure> {
    Ok(match view.dtype() {
        Dtype::F32 => Buffer::F32(view.as_slice()?.to_vec()),
        Dtype::Bf16 => Buffer::Bf16(view.as_slice()?.to_vec()),
        _ => Buffer::F16(view.as_slice()?.to_vec()),
    })
}

fn seen_mut(view: &ViewMut<'_>) -> Result<Buffer, Failure> {
    Ok(match view.dtype() {
        Dtype::F32 => Buffer::F32(view.as_slice()?.to_vec()),
        Dtype::Bf16 => Buffer::Bf16(view.as_slice()?.to_vec()),
        _ => Buffer::F16(view.as_slice()?.to_vec()),
    })
}

pub fn store(view: &mut ViewMut<'_>, values: &Buffer) -> Done {
    match values {
        Buffer::F32(values) => view.as_mut_slice()?.copy_from_slice(values),
        Buffer::Bf16(values) => view.as_mut_slice()?.copy_from_slice(values),
        Buffer::F16(values) => view.as_mut_slice()?.copy_from_slice(values),
    }
    Ok(())
}

/// Values for what a view shows.
pub fn values_for(view: &ViewMut<'_>, values: &Values) -> Result<Buffer, Failure> {
    values.make(view.dtype(), view.offset(), view.len())
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

// ---- Gathers -------------------------------------------------------------------------------------

fn gather(session: &mut Session, s: &Statement) -> Done {
    let only_begin = s.operation == "gather_begin";
    let names = s.list("units");
    let units = session.units(&names)?;
    let (full, handle) = match s.get("mode").unwrap_or("view") {
        "view" => {
            let place = if s.get("place") == Some("host") { Place::Host } else { Place::Device };
            let pending = session.context()?.gather_begin_at(&units, place)?;
            let handle = pending.as_raw();
            match only_begin {
                true => (Full::Pending(pending), handle),
                false => (Full::View(pending.wait()?), handle),
            }
        }
        "copy" if only_begin => {
            let options = sys::meron_gather_options {
                mode: sys::MERON_GATHER_COPY,
                ..sys::MERON_GATHER_OPTIONS_INIT
            };
            let mut handle = sys::meron_future::default();
            let unit = units[0].as_raw();
            // SAFETY: all pointers are valid during the call.
            raw(unsafe {
                sys::meron_gather_begin(&mut handle, &unit, 1, &options, ptr::null_mut())
            })?;
            (Full::Raw, handle)
        }
        "copy" => {
            let copy = units[0].gather_copy()?;
            let handle = copy.as_raw();
            (Full::Copy(copy), handle)
        }
        _ => {
            let wanted = session.params_of(names[0]);
            let arrays = wanted
                .iter()
                .map(|name| {
                    let param = session.param(name)?;
                    let minus_one = Values::parse("fill:-1", 0, 1)?;
                    Ok((param, minus_one.make(param.dtype(), 0, param.count() as usize)?))
                })
                .collect::<Result<Vec<_>, Failure>>()?;
            let pending = units[0].gather_into_begin(arrays)?;
            if !only_begin {
                pending.wait_timeout(Duration::from_secs(60))?;
            }
            let handle = pending.as_raw();
            (Full::Into(Some(pending), wanted, Vec::new()), handle)
        }
    };
    session.put(s.object()?, Object::Gather(full, handle));
    Ok(())
}

fn wait_stream(session: &mut Session, s: &Statement) -> Done {
    match session.object(s.object()?)? {
        Object::Gather(Full::View(gather), _) => Ok(gather.wait_stream(Stream::default())?),
        Object::Gather(full @ Full::Pending(_), _) => {
            if let Full::Pending(pending) = std::mem::replace(full, Full::Gone) {
                *full = Full::View(pending.wait_stream(Stream::default())?);
            }
            Ok(())
        }
        _ => Err(wrong("that is no gather of views")),
    }
}

fn release_on_stream(session: &mut Session, s: &Statement) -> Done {
    match session.object(s.object()?)? {
        Object::Gather(full @ Full::View(_), _) => match std::mem::replace(full, Full::Gone) {
            Full::View(gather) => Ok(gather.release_on_stream(Stream::default())?),
            _ => Ok(()),
        },
        _ => Err(wrong("that is no full gather of views")),
    }
}

/// The status of a view that the natural layer has no object for.
fn raw_view(handle: sys::meron_future, param: &Param) -> Done {
    // SAFETY: `out` is valid during the call; zero is a value of a view.
    raw(unsafe {
        let mut out = std::mem::zeroed();
        sys::meron_gather_view(&mut out, handle, param.as_raw(), ptr::null_mut())
    })
}

fn full(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let (gather, param) = session.with_param(s.object()?, s.require("param")?)?;
    let (full, handle) = match gather {
        Object::Gather(full, handle) => (full, *handle),
        _ => return Err(wrong("that is no gather")),
    };
    if let Full::Into(pending, _, arrays) = full {
        if let Some(pending) = pending.take() {
            *arrays = pending.wait()?;
        }
    }
    let values = match full {
        Full::View(gather) => seen(&gather.view(param)?)?,
        Full::Copy(copy) => {
            copy.view_mut(param)?; // writable
            seen(&copy.view(param)?)?
        }
        Full::Into(_, names, arrays) => {
            let wanted = s.require("param")?;
            match names.iter().position(|name| name == wanted) {
                Some(place) => arrays[place].clone(),
                None => return Err(wrong("that was not gathered")),
            }
        }
        Full::Pending(_) | Full::Raw | Full::Gone => return raw_view(handle, param),
    };
    check(values.len() as u64 == param.count(), "the number of elements differs")?;
    check(values.dtype() == param.dtype(), "the dtype differs")?;
    compare(&values, s, 0, rank, ranks)?;
    match s.get("same") {
        Some("1") => check_same(session, &values),
        _ => Ok(()),
    }
}

/// Every rank of the world has these bytes: the sum of each half of the CRC is a multiple of it.
fn check_same(session: &Session, values: &Buffer) -> Done {
    let crc = u32::from_str_radix(&checksum(values), 16).map_err(|_| wrong("no CRC"))?;
    let own = [(crc >> 16) as f32, (crc & 0xffff) as f32];
    let mut sums = own;
    session.context()?.world()?.all_reduce(&mut sums, ReduceOp::Sum)?;
    let ranks = session.setup.ranks as f32;
    check(sums == own.map(|half| ranks * half), "the ranks differ")
}

fn overwrite(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let values = Values::parse(s.require("with")?, rank, ranks)?;
    match session.with_param(s.object()?, s.require("param")?)? {
        (Object::Gather(Full::Copy(copy), _), param) => {
            let mut view = copy.view_mut(param)?;
            let values = values_for(&view, &values)?;
            store(&mut view, &values)
        }
        _ => Err(wrong("that is no copy")),
    }
}

fn dlpack(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let tensor = match session.with_param(s.require("gather")?, s.require("param")?)? {
        (Object::Gather(Full::View(gather), _), param) => {
            let tensor = gather.dlpack(param)?;
            check(tensor.shape() == param.shape(), "the shape differs")?;
            check(tensor.dtype() == param.dtype(), "the dtype differs")?;
            tensor
        }
        (Object::Gather(_, handle), param) => {
            let mut out = ptr::null_mut();
            let err = ptr::null_mut();
            // SAFETY: `out` is valid during the call, which is to fail.
            return raw(unsafe {
                sys::meron_gather_dlpack(&mut out, *handle, param.as_raw(), err)
            });
        }
        _ => return Err(wrong("that is no gather")),
    };
    let values = match tensor.dtype() {
        Dtype::F32 => Buffer::F32(tensor.as_slice()?.to_vec()),
        Dtype::Bf16 => Buffer::Bf16(tensor.as_slice()?.to_vec()),
        _ => Buffer::F16(tensor.as_slice()?.to_vec()),
    };
    compare(&values, s, 0, rank, ranks)?;
    session.put(s.object()?, Object::Dlpack(Some(tensor)));
    Ok(())
}

// ---- Gradients -----------------------------------------------------------------------------------

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
        unit.gradients()?.reduce(&options)?
    } else {
        let sources: Vec<Source<'_>> = arrays
            .iter()
            .map(|(param, array)| match array {
                Buffer::F32(values) => Source::new(param, values),
                Buffer::Bf16(values) => Source::new(param, values),
                Buffer::F16(values) => Source::new(param, values),
            })
            .collect();
        unit.reduce_from(&sources, &options)?
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
    let operation = session.unit(s.object()?)?.reduce_from(&sources, options)?;
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

fn reduced(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let param = session.param(s.object()?)?;
    let unit = session.unit_of.get(&param.as_raw().id).ok_or_else(|| wrong("no unit"))?;
    let mut reduced = session.unit(unit)?.reduced()?;
    let view = reduced.view(param)?;
    check(view.dtype() == Dtype::F32, "it is not f32")?;
    compare(&seen_mut(&view)?, s, view.offset(), rank, ranks)
}
