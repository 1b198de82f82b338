// SPDX-License-Identifier: Apache-2.0
//! Groups, and the collectives of buffers over one.

use std::thread::sleep;
use std::time::{Duration, Instant};

use meron::{Buffer, Group, Number, ReduceOp};

use crate::checking::compare;
use crate::failure::{check, wrong, Done, Failure};
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::values::{dtype_of, Values};

fn numbers(s: &Statement, key: &str) -> Result<Vec<i32>, Failure> {
    s.list(key).iter().map(|n| n.parse().map_err(|_| wrong("no number"))).collect()
}

/// Runs with the group that is named, the world without a name.
pub fn with_group<T>(
    session: &mut Session,
    s: &Statement,
    body: impl FnOnce(&Group) -> Result<T, Failure>,
) -> Result<T, Failure> {
    match s.object.as_deref() {
        None | Some("world") => body(&session.context()?.world()?),
        Some(name) => match session.object(name)? {
            Object::Group(Some(group)) => body(group),
            _ => Err(wrong(format!("{name} is no group of this rank"))),
        },
    }
}

pub fn group(session: &mut Session, s: &Statement) -> Done {
    let made = session.context()?.group(&numbers(s, "ranks")?)?;
    session.put(s.object()?, Object::Group(made));
    Ok(())
}

pub fn group_is(session: &mut Session, s: &Statement) -> Done {
    let ranks = numbers(s, "ranks")?;
    let place = ranks.iter().position(|&rank| rank == session.setup.rank);
    with_group(session, s, |group| {
        check(group.size()? as usize == ranks.len(), "the size differs")?;
        check(Some(group.rank()? as usize) == place, "the place differs")
    })
}

pub fn group_status(session: &mut Session, s: &Statement) -> Done {
    let deadline = Instant::now() + Duration::from_secs(20);
    let patient = s.get("until") == Some("broken");
    with_group(session, s, |group| loop {
        group.status()?;
        if !patient {
            return Ok(());
        }
        check(Instant::now() < deadline, "the group stays whole")?;
        sleep(Duration::from_millis(1));
    })
}

pub fn reduce_op(s: &Statement, otherwise: ReduceOp) -> Result<ReduceOp, Failure> {
    match s.get("op") {
        None => Ok(otherwise),
        Some("sum") => Ok(ReduceOp::Sum),
        Some("mean") => Ok(ReduceOp::Mean),
        Some("max") => Ok(ReduceOp::Max),
        Some("min") => Ok(ReduceOp::Min),
        Some(other) => Err(wrong(format!("{other} is no way to reduce"))),
    }
}

pub fn collective(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    match s.require("dtype")? {
        "f64" => return reduce_numbers(session, s, |value| value, |value| value),
        "i64" => return reduce_numbers(session, s, |value| value as i64, |value| value as f64),
        _ => {}
    }
    let dtype = dtype_of(s.require("dtype")?)?;
    let count = s.number("count", 0)?;
    let array = Values::parse(s.require("with")?, rank, ranks)?.make(dtype, 0, count)?;
    let root = s.number("root", 0)?;
    let op = reduce_op(s, ReduceOp::Sum)?;
    let broadcast = s.operation == "broadcast";
    let ended = with_group(session, s, |group| {
        macro_rules! run {
            ($kind:path, $values:expr) => {
                $kind(match broadcast {
                    true => group.broadcast_begin($values, root)?.wait()?,
                    false => group.all_reduce_begin($values, op)?.wait()?,
                })
            };
        }
        Ok(match array {
            Buffer::F32(values) => run!(Buffer::F32, values),
            Buffer::Bf16(values) => run!(Buffer::Bf16, values),
            Buffer::F16(values) => run!(Buffer::F16, values),
            _ => unreachable!("the table has no other dtype"),
        })
    })?;
    compare(&ended, s, 0, rank, ranks)
}

/// An all-reduce of numbers that no tensor has.
fn reduce_numbers<T: Number>(
    session: &mut Session,
    s: &Statement,
    narrow: fn(f64) -> T,
    wide: fn(T) -> f64,
) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let count: u64 = s.number("count", 0)?;
    let given = Values::parse(s.require("with")?, rank, ranks)?;
    let array: Vec<T> = (0..count).map(|k| narrow(given.at(k))).collect();
    let op = reduce_op(s, ReduceOp::Sum)?;
    let ended = with_group(session, s, |group| Ok(group.all_reduce_begin(array, op)?.wait()?))?;
    let wanted = Values::parse(s.require("is")?, rank, ranks)?;
    for (k, found) in ended.into_iter().map(wide).enumerate() {
        let expected = wanted.at(k as u64);
        let same = found == expected || (found.is_nan() && expected.is_nan());
        check(same, format!("element {k} is {found} instead of {expected}"))?;
    }
    Ok(())
}
