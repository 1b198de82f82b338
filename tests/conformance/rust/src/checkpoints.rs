// SPDX-License-Identifier: Apache-2.0
//! Operations on checkpoints. A folder of a case goes with rank 0's session.

use std::path::PathBuf;
use std::time::Duration;

use meron::{
    list_checkpoints, open_checkpoint, remove_checkpoint, write_checkpoint, Buffer, Checkpoint,
    CheckpointTensor, Dtype, ExportOptions, LoadOptions, SaveOptions, WriteOptions,
};

use crate::checking::{compare, has};
use crate::failure::{check, wrong, Done, Failure};
use crate::session::{Object, Session};
use crate::table::Statement;
use crate::values::{dtype_of, Values};
use crate::waiting::finish;

pub fn execute(session: &mut Session, s: &Statement) -> Done {
    match s.operation.as_str() {
        "save" => save(session, s),
        "wait_copied" => wait_copied(session, s),
        "save_progress" => save_progress(session, s),
        "load" => load(session, s),
        "checkpoint_open" => {
            let opened = open_checkpoint(folder(session, s)?, s.get("checkpoint"))?;
            session.put(s.object()?, Object::Checkpoint(opened));
            Ok(())
        }
        "checkpoint_is" => checkpoint_is(session, s),
        "checkpoint_text" => checkpoint_text(session, s),
        "checkpoint_read" => checkpoint_read(session, s),
        "checkpoint_list" => checkpoint_list(session, s),
        "checkpoint_remove" => Ok(remove_checkpoint(folder(session, s)?, s.object()?)?),
        "checkpoint_write" => checkpoint_write(session, s),
        "export_model" => export_model(session, s),
        other => Err(wrong(format!("there is no operation {other}"))),
    }
}

fn folder(session: &mut Session, s: &Statement) -> Result<PathBuf, Failure> {
    let (job, name) = (&session.setup.job, s.require("folder")?);
    let name = format!("meron-{job}-{}-{}-{name}", session.case, session.plan);
    let path = std::env::temp_dir().join(name);
    if session.setup.rank == 0 && !session.folders.contains(&path) {
        let _ = std::fs::remove_dir_all(&path);
        session.folders.push(path.clone());
    }
    Ok(path)
}

fn flag(s: &Statement, key: &str) -> bool {
    s.get(key) == Some("1")
}

/// The tensor that `tensor=` gives: this rank's part of it, or nothing.
fn given(session: &Session, s: &Statement) -> Result<Option<CheckpointTensor<'static>>, Failure> {
    let (rank, ranks) = (session.setup.rank as u64, session.setup.ranks as u64);
    let split = flag(s, "split");
    let name = match s.get("tensor") {
        Some(name) if split || rank == 0 => name,
        _ => return Ok(None),
    };
    let count = s.number("count", 0u64)?;
    let (begin, end) =
        if split { (count * rank / ranks, count * (rank + 1) / ranks) } else { (0, count) };
    let values = Values::parse(s.require("with")?, session.setup.rank, session.setup.ranks)?;
    let many = (end - begin) as usize;
    let tensor = match values.make(dtype_of(s.require("dtype")?)?, begin, many)? {
        Buffer::F32(data) => CheckpointTensor::new(name, &[count], data),
        Buffer::Bf16(data) => CheckpointTensor::new(name, &[count], data),
        Buffer::F16(data) => CheckpointTensor::new(name, &[count], data),
        _ => unreachable!("the table has no other dtype"),
    };
    let tensor = tensor.part_from(begin);
    Ok(Some(match s.get("kind") {
        Some(kind) => tensor.kind(kind),
        None => tensor,
    }))
}

fn save(session: &mut Session, s: &Statement) -> Done {
    let path = folder(session, s)?;
    let mut options = SaveOptions::new().step(s.number("step", 0)?).keep(s.number("keep", 0)?);
    if let Some(extra) = s.get("extra") {
        options = options.extra(extra);
    }
    if let Some(mapping) = s.get("mapping") {
        options = options.mapping(mapping);
    }
    if flag(s, "values_only") {
        options = options.values_only();
    }
    if flag(s, "skip_frozen") {
        options = options.skip_frozen();
    }
    if flag(s, "overwrite") {
        options = options.overwrite();
    }
    if flag(s, "per_node") {
        options = options.per_node();
    }
    if let Some(tensor) = given(session, s)? {
        options = options.tensor(tensor);
    }
    if s.get("units").is_some() {
        options = options.units(&session.units(&s.list("units"))?);
    }
    let (context, optimizers) = session.context_and_optimizers(&s.list("optimizers"))?;
    let optimizers: Vec<_> = optimizers.iter().map(|optimizer| &**optimizer).collect();
    let begun = context.save_begin(path, s.object()?, &optimizers, &options)?;
    finish(session, s, begun)
}

fn wait_copied(session: &Session, s: &Statement) -> Done {
    let context = session.context()?;
    let copied = match s.get("timeout") {
        None => context.wait_copied().map(|()| true)?,
        Some(_) => {
            context.wait_copied_timeout(Duration::from_secs_f64(s.number("timeout", 0.0)?))?
        }
    };
    check(copied != flag(s, "pending"), format!("copied: {copied}"))
}

fn save_progress(session: &Session, s: &Statement) -> Done {
    let progress = session.context()?.save_progress()?;
    if s.get("saving").is_some() {
        check(progress.saving == flag(s, "saving"), format!("saving: {}", progress.saving))?;
    }
    let most = progress.copied.max(progress.written);
    check(most <= progress.total, "more is done than there is")?;
    if flag(s, "done") {
        check(progress.total > 0, "nothing was to be written")?;
        check(progress.copied == progress.total, "not all is copied")?;
        check(progress.written == progress.total, "not all is written")?;
    }
    Ok(())
}

fn load(session: &mut Session, s: &Statement) -> Done {
    let path = folder(session, s)?;
    let mut options = LoadOptions::new();
    if flag(s, "lenient") {
        options = options.lenient();
    }
    if flag(s, "values_only") {
        options = options.values_only();
    }
    if flag(s, "rank0_only") {
        options = options.rank0_only();
    }
    if flag(s, "per_node") {
        options = options.per_node();
    }
    if let Some(mapping) = s.get("mapping") {
        options = options.mapping(mapping);
    }
    if s.get("claimed").is_some() {
        options = options.claimed(&s.list("claimed"));
    }
    if s.get("units").is_some() {
        options = options.units(&session.units(&s.list("units"))?);
    }
    let (context, mut optimizers) = session.context_and_optimizers(&s.list("optimizers"))?;
    let loaded = context.load(path, s.get("checkpoint"), &mut optimizers, &options)?;
    session.put(s.object()?, Object::Checkpoint(loaded));
    Ok(())
}

fn checkpoint<'s>(session: &'s mut Session, s: &Statement) -> Result<&'s Checkpoint, Failure> {
    match session.object(s.object()?)? {
        Object::Checkpoint(checkpoint) => Ok(checkpoint),
        _ => Err(wrong("that is no checkpoint")),
    }
}

fn checkpoint_is(session: &mut Session, s: &Statement) -> Done {
    let info = checkpoint(session, s)?.info()?;
    for (name, seen) in [
        ("step", info.step),
        ("world", info.world.into()),
        ("missing", info.missing),
        ("unexpected", info.unexpected),
    ] {
        let wanted = s.number(name, seen)?;
        check(seen == wanted, format!("{name} is {seen} instead of {wanted}"))?;
    }
    Ok(())
}

fn checkpoint_text(session: &mut Session, s: &Statement) -> Done {
    let checkpoint = checkpoint(session, s)?;
    let text = match s.require("text")? {
        "path" => checkpoint.path()?.to_string_lossy().into_owned(),
        "extra" => checkpoint.extra()?,
        "missing" => checkpoint.missing()?.join("\n"),
        "unexpected" => checkpoint.unexpected()?.join("\n"),
        "manifest" => checkpoint.manifest()?,
        other => return Err(wrong(format!("there is no text {other}"))),
    };
    has(&text, s)
}

fn checkpoint_read(session: &mut Session, s: &Statement) -> Done {
    let (rank, ranks) = (session.setup.rank, session.setup.ranks);
    let (count, begin) = (s.number("count", 0)?, s.number("begin", 0)?);
    let (kind, name) = (s.get("kind").unwrap_or("values"), s.require("tensor")?);
    let checkpoint = checkpoint(session, s)?;
    let seen = match dtype_of(s.require("dtype")?)? {
        Dtype::Bf16 => {
            let mut data = vec![Default::default(); count];
            checkpoint.read(kind, name, begin, &mut data)?;
            Buffer::Bf16(data)
        }
        Dtype::F16 => {
            let mut data = vec![Default::default(); count];
            checkpoint.read(kind, name, begin, &mut data)?;
            Buffer::F16(data)
        }
        _ => {
            let mut data = vec![0.0; count];
            checkpoint.read(kind, name, begin, &mut data)?;
            Buffer::F32(data)
        }
    };
    compare(&seen, s, begin, rank, ranks)
}

fn checkpoint_list(session: &mut Session, s: &Statement) -> Done {
    let list = list_checkpoints(folder(session, s)?)?;
    has(&list, s)?;
    let count = list.matches("\"step\"").count();
    let wanted = s.number("count", count)?;
    check(count == wanted, format!("there are {count} checkpoints instead of {wanted}"))
}

fn checkpoint_write(session: &mut Session, s: &Statement) -> Done {
    let path = folder(session, s)?;
    let mut options = WriteOptions::new().step(s.number("step", 0)?);
    if let Some(extra) = s.get("extra") {
        options = options.extra(extra);
    }
    if flag(s, "overwrite") {
        options = options.overwrite();
    }
    let tensors: Vec<_> = given(session, s)?.into_iter().collect();
    Ok(write_checkpoint(path, s.object()?, &tensors, &options)?)
}

fn export_model(session: &mut Session, s: &Statement) -> Done {
    let path = folder(session, s)?;
    let mut options = ExportOptions::new().max_file_bytes(s.number("max", 0)?);
    if let Some(dtype) = s.get("to") {
        options = options.dtype(dtype_of(dtype)?);
    }
    if let Some(mapping) = s.get("mapping") {
        options = options.mapping(mapping);
    }
    if flag(s, "overwrite") {
        options = options.overwrite();
    }
    if let Some(tensor) = given(session, s)? {
        options = options.tensor(tensor);
    }
    Ok(session.context()?.export(path, &options)?)
}
