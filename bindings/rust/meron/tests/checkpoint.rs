// SPDX-License-Identifier: Apache-2.0
//! Checkpoints: what is saved is loaded, at another number of ranks too, and what does not fit changes
//! nothing.

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use meron::{
    AdamW, CheckpointTensor, Context, Dtype, ErrorKind, ExportOptions, LoadOptions, Optimizer,
    Param, ParamDesc, SaveOptions, State, Unit,
};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("meron-rust-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Tells another thread to end, also when an assertion of this one fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn model(context: &Context) -> (Param, Unit, Optimizer) {
    let weight = context.param("weight", &[3, 5]).unwrap();
    let unit = context.unit("layer", &[&weight]).unwrap();
    let optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    (weight, unit, optimizer)
}

fn fill(context: &Context, unit: &Unit, weight: &Param, value: f32) {
    let mut update = context.update(&[unit]).unwrap();
    update.write(weight, &[value; 15]).unwrap();
    update.publish().unwrap();
}

fn values(unit: &Unit, weight: &Param) -> Vec<f32> {
    unit.gather().unwrap().view(weight).unwrap().as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn loads_at_another_number_of_ranks() {
    let folder = Folder::new("ranks");
    let path = folder.0.clone();
    common::ranks(2, "zero3", move |context| {
        let (weight, unit, mut optimizer) = model(&context);
        fill(&context, &unit, &weight, 1.5);
        optimizer.set_steps(7).unwrap();
        let options = SaveOptions::new().step(42).extra(r#"{"epoch": 3}"#);
        let saving = context.save_begin(&path, "step-42", &[&optimizer], &options).unwrap();
        context.wait_copied().unwrap();
        saving.wait().unwrap();
        assert!(!context.save_progress().unwrap().saving);
        assert!(optimizer.states().is_ok());
    });

    let context = common::alone();
    let (weight, unit, mut optimizer) = model(&context);
    let loaded = context.load(&folder.0, None, &mut [&mut optimizer], &LoadOptions::new()).unwrap();
    assert_eq!(values(&unit, &weight), [1.5; 15]);
    assert_eq!(optimizer.info().unwrap().steps, 7);
    let info = loaded.info().unwrap();
    assert_eq!((info.step, info.world), (42, 2));
    assert_eq!(loaded.path().unwrap(), folder.0.join("step-42"));
    assert!(loaded.extra().unwrap().contains("epoch"));
    assert!(loaded.missing().unwrap().is_empty() && loaded.unexpected().unwrap().is_empty());
    loaded.release().unwrap();
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let folder = Folder::new("fit");
    let context = common::alone();
    let (weight, unit, mut optimizer) = model(&context);
    fill(&context, &unit, &weight, 2.0);
    let (save, load) = (SaveOptions::new(), LoadOptions::new());
    context.save(&folder.0, "a", &[&optimizer], &save).unwrap();
    let kind = |done: meron::Result<()>| done.unwrap_err().kind();
    assert_eq!(kind(context.save(&folder.0, "a", &[], &save)), ErrorKind::Duplicate);
    assert_eq!(kind(context.save(&folder.0, "a/b", &[], &save)), ErrorKind::Argument);
    assert_eq!(kind(context.save(&folder.0, "a\0b", &[], &save)), ErrorKind::Argument);
    let mut loads = |name: Option<&str>, with: bool| {
        let mut all = [&mut optimizer];
        let some = if with { &mut all[..] } else { &mut [] };
        kind(context.load(&folder.0, name, some, &load).map(drop))
    };
    assert_eq!(loads(None, false), ErrorKind::Argument);
    assert_eq!(loads(Some("b"), true), ErrorKind::NotFound);
    assert_eq!(values(&unit, &weight), [2.0; 15]);
}

#[test]
fn values_that_are_shown_are_not_loaded() {
    let folder = Folder::new("shown");
    let context = common::alone();
    let (weight, unit, mut optimizer) = model(&context);
    let load = LoadOptions::new().values_only();
    context.save(&folder.0, "a", &[], &SaveOptions::new().values_only()).unwrap();
    let gather = unit.gather().unwrap();
    let refused = context.load(&folder.0, None, &mut [], &load).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::State);
    drop(gather);
    let states = optimizer.states().unwrap(); // of f32, the master is the param
    let master = states.view(&weight, State::Master).unwrap();
    let refused = context.load(&folder.0, None, &mut [], &load).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::State);
    assert_eq!(master.as_slice::<f32>().unwrap().len(), 15);
    drop(states);
    context.load(&folder.0, None, &mut [], &load).unwrap();
}

#[test]
fn masters_that_are_shown_are_not_exported() {
    let folder = Folder::new("exported");
    let context = common::alone();
    let desc = ParamDesc::new("weight", &[3, 5]).dtype(Dtype::Bf16);
    let weight = context.register(&desc).unwrap();
    let unit = context.unit("layer", &[&weight]).unwrap();
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let export = ExportOptions::new().dtype(Dtype::F32).overwrite();

    let mut states = optimizer.states().unwrap();
    let mut master = states.view_mut(&weight, State::Master).unwrap();
    let written = master.as_mut_slice::<f32>().unwrap();
    let refused = context.export(&folder.0, &export).unwrap_err();
    written.fill(4.0);
    assert_eq!(refused.kind(), ErrorKind::State);
    assert!(refused.to_string().contains("Optimizer::states"), "{refused}");
    drop(states);
    context.export(&folder.0, &export).unwrap();
    optimizer.states().unwrap();
}

#[test]
fn states_are_not_shown_while_an_export_reads_them() {
    let folder = Folder::new("reads");
    let context = common::alone();
    let desc = ParamDesc::new("weight", &[1 << 20]).dtype(Dtype::Bf16);
    let weight = context.register(&desc).unwrap();
    let unit = context.unit("layer", &[&weight]).unwrap();
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let export = ExportOptions::new().dtype(Dtype::F32).overwrite();
    // Slices that another thread takes in between are written with one value each time: an export that
    // read beside them would contain several.
    let ended = AtomicBool::new(false);
    let refusals = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut refusals, mut value) = (0, 0.0);
            while !ended.load(Ordering::Acquire) {
                match optimizer.states() {
                    Ok(mut states) => {
                        value += 1.0;
                        let mut master = states.view_mut(&weight, State::Master).unwrap();
                        master.as_mut_slice::<f32>().unwrap().fill(value);
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::State);
                        refusals += 1;
                        thread::yield_now();
                    }
                }
            }
            refusals
        });
        let ends = Ends(&ended);
        let mut exported = 0;
        while exported < 5 {
            match context.export(&folder.0, &export) {
                Err(error) => assert_eq!(error.kind(), ErrorKind::State),
                Ok(()) => {
                    exported += 1;
                    let read = meron::open_checkpoint(&folder.0, None).unwrap();
                    let mut values = vec![0.0f32; 1 << 20];
                    read.read("values", "weight", 0, &mut values).unwrap();
                    assert!(values.iter().all(|&value| value == values[0]));
                }
            }
        }
        drop(ends);
        writer.join().unwrap()
    });
    assert!(refusals > 0);
}

/// Read again at each call.
#[inline(never)]
fn first(values: &[f32]) -> f32 {
    values[0]
}

#[test]
fn a_unit_made_during_a_load_is_not_written_under_a_slice() {
    let folder = Folder::new("late");
    {
        let context = common::alone();
        let (weight, unit, _optimizer) = model(&context);
        fill(&context, &unit, &weight, 7.0);
        context.save(&folder.0, "a", &[], &SaveOptions::new()).unwrap();
    }
    let context = common::alone();
    let kept: Vec<_> = (0..1000)
        .map(|i| {
            let param = context.param(&format!("w{i}"), &[4]).unwrap();
            let unit = context.unit(&format!("u{i}"), &[&param]).unwrap();
            (param, unit)
        })
        .collect();
    let (begun, loaded) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let (weight, _unit, mut optimizer) = model(&context);
            while !loaded.load(Ordering::Acquire) {
                let states = match optimizer.states() {
                    Ok(states) => states,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::State);
                        continue;
                    }
                };
                let view = states.view(&weight, State::Master).unwrap();
                let values = view.as_slice::<f32>().unwrap();
                let before = values[0];
                for _ in 0..100 {
                    assert_eq!(first(values), before);
                }
            }
        });
        begun.store(true, Ordering::Release);
        let ends = Ends(&loaded);
        let options = LoadOptions::new().lenient();
        for _ in 0..20 {
            if let Err(error) = context.load(&folder.0, None, &mut [], &options) {
                assert_eq!(error.kind(), ErrorKind::State, "{error}");
            }
        }
        drop(ends);
        other.join().unwrap();
    });
    drop(kept);
}

#[test]
fn a_loaded_checkpoint_outlives_its_context() {
    let folder = Folder::new("outlives");
    let context = common::alone();
    let (_weight, _unit, optimizer) = model(&context);
    context.save(&folder.0, "a", &[&optimizer], &SaveOptions::new()).unwrap();
    let loaded = context.load(&folder.0, None, &mut [], &LoadOptions::new().values_only()).unwrap();
    context.close().unwrap();
    let mut first = [1.0f32];
    loaded.read("values", "weight", 14, &mut first).unwrap();
    assert_eq!((first, loaded.info().unwrap().world), ([0.0], 1));
}

#[test]
fn a_tensor_says_what_it_is() {
    let seeds = CheckpointTensor::new("seeds", &[2, 2], vec![1u64, 2]).part_from(2).kind("extra");
    assert_eq!(format!("{seeds:?}"), "extra:seeds[2:4] of U64 [2, 2]");
}
