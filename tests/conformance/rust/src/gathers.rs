// SPDX-License-Identifier: Apache-2.0
//! Operations on gathers.

use std::ptr;
use std::time::Duration;

use meron::{sys, Buffer, Dtype, Param, ReduceOp, Stream, Tier};

use crate::checking::compare;
use crate::elements::{part_of, seen, store, values_for};
use crate::failure::{check, raw, wrong, Done, Failure};
use crate::gradients;
use crate::session::{Full, Object, Session};
use crate::table::Statement;
use crate::values::{checksum, Values};

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "gather" | "gather_begin" => gather(session, s),
        "full" => full(session, s),
        "overwrite" => overwrite(session, s),
        "wait_stream" => wait_stream(session, s),
        "release_on_stream" => release_on_stream(session, s),
        "dlpack" => dlpack(session, s),
        _ => gradients::execute(session, s),
    }
}

fn gather(session: &mut Session, s: &Statement) -> Done {
    let only_begin = s.operation == "gather_begin";
    let names = s.list("units");
    let units = session.units(&names)?;
    let (full, handle) = match s.get("mode").unwrap_or("view") {
        "view" => {
            let tier = if s.get("tier") == Some("host") { Tier::Host } else { Tier::Device };
            let pending = session.context()?.gather_begin_at(&units, tier)?;
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
        _ if s.get("by") == Some("flat") => {
            let flats = units[0].flats()?;
            let minus_one = Values::parse("fill:-1", 0, 1)?;
            let arrays = flats
                .iter()
                .map(|flat| Ok((flat, minus_one.make(flat.dtype(), 0, flat.count())?)))
                .collect::<Result<Vec<_>, Failure>>()?;
            let pending = units[0].gather_into_begin(arrays)?;
            let handle = pending.as_raw();
            (Full::Flats(Some(pending), Vec::new()), handle)
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
    if let Full::Flats(pending, arrays) = full {
        if let Some(pending) = pending.take() {
            *arrays = pending.wait()?;
        }
    }
    let values = match full {
        Full::Flats(_, arrays) => part_of(&arrays[param.flat()?], param.flat_range()?),
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
