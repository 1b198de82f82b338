// SPDX-License-Identifier: Apache-2.0
//! Operations on files. A file of a case goes with its session.

use std::path::PathBuf;

use meron::{Bf16, Buffer, Dtype, Io, IoBackend, IoBuffer, IoOptions, F16};

use crate::checking::{compare, has};
use crate::checkpoints;
use crate::failure::{check, wrong, Done, Failure};
use crate::session::{Begun, Object, Session};
use crate::table::Statement;
use crate::values::{dtype_of, Values};

fn io<'s>(session: &'s mut Session, name: &str) -> Result<&'s Io, Failure> {
    match session.object(name)? {
        Object::Io(io) => Ok(io),
        _ => Err(wrong(format!("{name} is no io"))),
    }
}

fn buffer<'s>(session: &'s mut Session, name: &str) -> Result<&'s mut Option<IoBuffer>, Failure> {
    match session.object(name)? {
        Object::IoBuffer(buffer, _) => Ok(buffer),
        _ => Err(wrong(format!("{name} is no buffer"))),
    }
}

fn path(session: &mut Session, s: &Statement) -> Result<PathBuf, Failure> {
    let (process, rank) = (std::process::id(), session.setup.rank);
    let name = format!("meron-{process}-{}-{rank}-{}", session.case, s.require("file")?);
    let path = std::env::temp_dir().join(name);
    if !session.files.contains(&path) {
        let _ = std::fs::remove_file(&path);
        session.files.push(path.clone());
    }
    Ok(path)
}

fn bytes_of(values: &Buffer) -> Vec<u8> {
    match values {
        Buffer::F32(values) => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        Buffer::Bf16(values) => values.iter().flat_map(|value| value.0.to_ne_bytes()).collect(),
        Buffer::F16(values) => values.iter().flat_map(|value| value.0.to_ne_bytes()).collect(),
        _ => unreachable!("the table has no other dtype"),
    }
}

fn elements_of(bytes: &[u8], dtype: Dtype) -> Buffer {
    let half = |pair: &[u8]| u16::from_ne_bytes([pair[0], pair[1]]);
    match dtype {
        Dtype::Bf16 => Buffer::Bf16(bytes.chunks_exact(2).map(half).map(Bf16).collect()),
        Dtype::F16 => Buffer::F16(bytes.chunks_exact(2).map(half).map(F16).collect()),
        _ => {
            let word = |four: &[u8]| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
            Buffer::F32(bytes.chunks_exact(4).map(word).collect())
        }
    }
}

/// Bytes that a write transfers; zeros for a read.
fn bytes_for(session: &Session, s: &Statement, write: bool) -> Result<Vec<u8>, Failure> {
    let dtype = dtype_of(s.require("dtype")?)?;
    let text = if write { s.require("with")? } else { "fill:0" };
    let values = Values::parse(text, session.setup.rank, session.setup.ranks)?;
    Ok(bytes_of(&values.make(dtype, 0, s.number("count", 0)?)?))
}

fn compare_bytes(session: &Session, s: &Statement, bytes: &[u8]) -> Done {
    let seen = elements_of(bytes, dtype_of(s.require("dtype")?)?);
    compare(&seen, s, 0, session.setup.rank, session.setup.ranks)
}

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "io" => open(session, s),
        "io_is" => io_is(session, s),
        "io_write" | "io_read" => transfer(session, s),
        "io_write_begin" | "io_read_begin" => begin(session, s),
        "io_data" => io_data(session, s),
        "io_wait" => Ok(io(session, s.object()?)?.wait()?),
        "io_request_wait" => io_request_wait(session, s),
        "io_buffer" => io_buffer(session, s),
        _ => checkpoints::execute(session, s),
    }
}

fn open(session: &mut Session, s: &Statement) -> Done {
    let usual = IoOptions::default();
    let made = Io::open(
        &usual
            .backend(match s.get("backend") {
                Some("threads") => IoBackend::Threads,
                Some("io_uring") => IoBackend::IoUring,
                _ => IoBackend::Auto,
            })
            .block_bytes(s.number("block", usual.block_bytes)?)
            .depth(s.number("depth", usual.depth)?)
            .threads(s.number("threads", usual.threads)?),
    )?;
    session.put(s.object()?, Object::Io(made));
    Ok(())
}

fn io_is(session: &mut Session, s: &Statement) -> Done {
    let io = io(session, s.object()?)?;
    let info = io.info()?;
    for (name, seen) in [
        ("block", u64::from(info.block_bytes)),
        ("depth", info.depth.into()),
        ("threads", info.threads.into()),
        ("requests", info.requests),
        ("pending", info.pending),
        ("bytes_read", info.bytes_read),
        ("bytes_written", info.bytes_written),
        ("buffer_bytes", info.buffer_bytes),
    ] {
        let wanted = s.number(name, seen)?;
        check(seen == wanted, format!("{name} is {seen} instead of {wanted}"))?;
    }
    has(&io.describe()?, s)
}

fn transfer(session: &mut Session, s: &Statement) -> Done {
    let write = s.operation == "io_write";
    let (file, offset) = (path(session, s)?, s.number("offset", 0)?);
    let mut bytes = bytes_for(session, s, write)?;
    let pinned = match s.get("buffer") {
        Some(name) => buffer(session, name)?.take(),
        None => None,
    };
    match pinned {
        None if write => io(session, s.object()?)?.write(&file, &bytes, offset)?,
        None => io(session, s.object()?)?.read(&file, &mut bytes, offset)?,
        Some(mut pinned) => {
            let count = bytes.len();
            pinned[..count].copy_from_slice(&bytes);
            let io = io(session, s.object()?)?;
            match write {
                true => io.write(&file, &pinned[..count], offset)?,
                false => io.read(&file, &mut pinned[..count], offset)?,
            }
            bytes.copy_from_slice(&pinned[..count]);
            *buffer(session, s.require("buffer")?)? = Some(pinned);
        }
    }
    compare_bytes(session, s, &bytes)
}

fn begin(session: &mut Session, s: &Statement) -> Done {
    let write = s.operation == "io_write_begin";
    let (file, offset) = (path(session, s)?, s.number("offset", 0)?);
    let bytes = bytes_for(session, s, write)?;
    let name = s.require("io")?;
    let begun = match s.get("buffer") {
        None => {
            let io = io(session, name)?;
            let request = match write {
                true => io.write_begin(&file, bytes, offset)?,
                false => io.read_begin(&file, bytes, offset)?,
            };
            Begun::Own(request, None)
        }
        Some(buffer_name) => {
            // A request owns all of a buffer.
            let taken = buffer(session, buffer_name)?.take();
            let mut pinned = taken.ok_or_else(|| wrong("the buffer is in use"))?;
            check(pinned.len() == bytes.len(), "the buffer has another length")?;
            pinned[..bytes.len()].copy_from_slice(&bytes);
            let io = io(session, name)?;
            let request = match write {
                true => io.write_begin(&file, pinned, offset)?,
                false => io.read_begin(&file, pinned, offset)?,
            };
            Begun::Pinned(request, buffer_name.to_string(), bytes.len())
        }
    };
    session.put(s.object()?, Object::IoRequest(begun));
    Ok(())
}

fn io_request_wait(session: &mut Session, s: &Statement) -> Done {
    let back = match session.object(s.object()?)? {
        Object::IoRequest(Begun::Own(request, data)) => {
            check(request.is_done()? || request.wait_timeout(DEADLINE)?, "it does not end")?;
            if data.is_none() {
                *data = Some(request.wait()?);
            }
            return Ok(());
        }
        Object::IoRequest(Begun::Pinned(request, name, _)) => (name.clone(), request.wait()?),
        _ => return Err(wrong("that is no request")),
    };
    *buffer(session, &back.0)? = Some(back.1);
    Ok(())
}

const DEADLINE: std::time::Duration = std::time::Duration::from_secs(20);

fn io_data(session: &mut Session, s: &Statement) -> Done {
    let bytes = match session.object(s.object()?)? {
        Object::IoRequest(Begun::Own(_, Some(data))) => data.clone(),
        Object::IoRequest(Begun::Pinned(_, name, count)) => {
            let (name, count) = (name.clone(), *count);
            match buffer(session, &name)? {
                Some(pinned) => pinned[..count].to_vec(),
                None => return Err(wrong("the buffer is in use")),
            }
        }
        _ => return Err(wrong("that was not waited for")),
    };
    compare_bytes(session, s, &bytes)
}

fn io_buffer(session: &mut Session, s: &Statement) -> Done {
    let bytes = s.number("bytes", 0)?;
    let made = io(session, s.require("io")?)?.buffer(bytes)?;
    check(made.len() == bytes, "the buffer has another length")?;
    check(made.as_ptr() as usize % 4096 == 0, "it does not begin at a page")?;
    check(made.iter().all(|&byte| byte == 0), "the buffer is not 0")?;
    let raw = made.as_raw();
    session.put(s.object()?, Object::IoBuffer(Some(made), raw));
    Ok(())
}
