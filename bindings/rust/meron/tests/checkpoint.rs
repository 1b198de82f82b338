// SPDX-License-Identifier: Apache-2.0
//! Checkpoints: what is saved is loaded, at another number of ranks too, and what does not fit changes
//! nothing.

mod common;

use std::path::PathBuf;

use meron::{
    AdamW, CheckpointTensor, Context, ErrorKind, LoadOptions, Optimizer, Param, SaveOptions, State,
    Unit,
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
