// SPDX-License-Identifier: Apache-2.0
//! What one rank can do by itself, and how it is told what is wrong.

mod common;

use std::sync::Arc;
use std::thread;

use common::alone;
use meron::{
    Adagrad, Adam, AdamW, Bf16, Buffer, Context, Dtype, ErrorKind, Gathered, Lion, Optimizer,
    OptimizerGroup, Param, ParamDesc, Plan, ReduceOp, Sgd, Source, State, Unit, Workload,
};

fn table(context: &Context) -> (Param, Unit) {
    let param = context.param("table", &[8, 100]).unwrap();
    let unit = context.unit("table", &[&param]).unwrap();
    (param, unit)
}

fn counting() -> Vec<f32> {
    (0..800).map(|i| i as f32).collect()
}

#[test]
fn an_update_is_what_gathers_show() {
    let context = alone();
    let (param, unit) = table(&context);
    assert_eq!((param.name(), param.shape(), param.count()), ("table", &[8i64, 100][..], 800));
    assert_eq!(param.shard_range().unwrap(), 0..800);

    let mut update = context.update(&[&unit]).unwrap();
    update.write(&param, &counting()).unwrap();
    let mut part = update.view(&param).unwrap();
    assert_eq!((part.offset(), part.len()), (0, 800));
    part.as_mut_slice::<f32>().unwrap()[3] = -3.0;
    update.publish().unwrap();
    assert_eq!(unit.info().unwrap().version, 1);

    let full = unit.gather().unwrap();
    let values = full.view(&param).unwrap().as_slice::<f32>().unwrap();
    assert_eq!((values[2], values[3], values[799]), (2.0, -3.0, 799.0));
    assert_eq!(unit.info().unwrap().leases, 1);
    full.release().unwrap();
    assert_eq!(unit.info().unwrap().leases, 0);
}

#[test]
fn copies_belong_to_the_program() {
    let context = alone();
    let (param, unit) = table(&context);
    let mut copy = unit.gather_copy().unwrap();
    copy.view_mut(&param).unwrap().as_mut_slice::<f32>().unwrap().fill(5.0);
    assert_eq!(copy.view(&param).unwrap().to_f32(), vec![5.0; 800]);
    assert_eq!(unit.gather().unwrap().view(&param).unwrap().to_f32(), vec![0.0; 800]);

    let arrays = vec![(&param, Buffer::from(vec![7.0f32; 800]))];
    let back = unit.gather_into_begin(arrays).unwrap().wait().unwrap();
    assert_eq!(back, vec![Buffer::from(vec![0.0f32; 800])]);

    let short = vec![(&param, Buffer::zeros(Dtype::F32, 799))];
    let error = unit.gather_into_begin(short).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "table"));
    let other = vec![(&param, Buffer::zeros(Dtype::F16, 800))];
    assert_eq!(unit.gather_into_begin(other).unwrap_err().kind(), ErrorKind::Argument);
}

#[test]
fn flats_are_gathered_at_once() {
    let context = alone();
    let bias = context.param("bias", &[3]).unwrap();
    let half = context.register(&ParamDesc::new("half", &[5]).dtype(Dtype::Bf16)).unwrap();
    let weight = context.param("weight", &[2, 7]).unwrap();
    let unit = context.unit("layer", &[&bias, &half, &weight]).unwrap();
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&bias, &[1.0f32; 3]).unwrap();
    update.write(&half, &[2.0f32; 5]).unwrap();
    update.write(&weight, &[3.0f32; 14]).unwrap();
    update.publish().unwrap();

    let flats = unit.flats().unwrap();
    assert_eq!(flats.len(), 2);
    assert_eq!((flats[0].index(), flats[0].dtype(), flats[0].count()), (0, Dtype::F32, 64));
    assert_eq!((flats[1].index(), flats[1].dtype(), flats[1].count()), (1, Dtype::Bf16, 32));
    assert!(!flats[0].is_frozen());
    assert_eq!((weight.flat().unwrap(), weight.flat_range().unwrap()), (0, 32..46));
    assert_eq!((half.flat().unwrap(), half.flat_range().unwrap()), (1, 0..5));

    let arrays = vec![(&flats[0], Buffer::from(vec![7.0f32; 64]))];
    let back = unit.gather_into_begin(arrays).unwrap().wait().unwrap();
    let values = back[0].as_slice::<f32>().unwrap();
    assert_eq!(values[bias.flat_range().unwrap()], [1.0; 3]);
    assert_eq!(values[weight.flat_range().unwrap()], [3.0; 14]);

    let mixed = vec![
        (Gathered::from(&half), Buffer::zeros(Dtype::Bf16, 5)),
        (Gathered::from(&flats[0]), Buffer::zeros(Dtype::F32, 64)),
    ];
    let back = unit.gather_into_begin(mixed).unwrap().wait().unwrap();
    assert_eq!(back[0].as_slice::<Bf16>().unwrap()[4], Bf16::from_f32(2.0));
    assert_eq!(back[1].as_slice::<f32>().unwrap()[45], 3.0);

    let short = vec![(&flats[0], Buffer::zeros(Dtype::F32, 63))];
    let error = unit.gather_into_begin(short).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "layer"));
    let other = vec![(&flats[1], Buffer::zeros(Dtype::F32, 32))];
    assert_eq!(unit.gather_into_begin(other).unwrap_err().kind(), ErrorKind::Argument);
    let twice = vec![
        (Gathered::from(&bias), Buffer::zeros(Dtype::F32, 3)),
        (Gathered::from(&flats[0]), Buffer::zeros(Dtype::F32, 64)),
    ];
    let error = unit.gather_into_begin(twice).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Duplicate, "bias"));
}

#[test]
fn sixteen_bits_are_typed() {
    let context = alone();
    let half = context.register(&ParamDesc::new("half", &[4]).dtype(Dtype::Bf16)).unwrap();
    let unit = context.unit("half", &[&half]).unwrap();
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&half, &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    update.publish().unwrap();

    let full = unit.gather().unwrap();
    let view = full.view(&half).unwrap();
    assert_eq!(view.dtype(), Dtype::Bf16);
    assert_eq!(view.as_slice::<Bf16>().unwrap()[1], Bf16::from_f32(2.0));
    assert_eq!(view.to_f32(), [1.0, 2.0, 3.0, 4.0]);
    let error = view.as_slice::<f32>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.message().contains("the elements are bf16"), "{error}");
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let context = alone();
    let (_param, _unit) = table(&context);
    let error = context.param("table", &[3]).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Duplicate, -104));
    // So Rust prints what `main` returns.
    assert_eq!(format!("{error:?}"), error.to_string());
    assert!(format!("{error:#?}").contains("kind: Duplicate"));
    assert_eq!(error.code_name(), "MERON_E_DUPLICATE");
    assert_eq!((error.subject(), error.rank(), error.peer()), ("table", Some(0), None));
    assert!(!error.operation().is_empty() && !error.advice().is_empty());
    assert!(!error.breaks_group());
    let shown: Box<dyn std::error::Error> = Box::new(error.clone());
    assert_eq!(shown.to_string(), error.message());

    let error = context.param("negative", &[-1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[test]
fn strings_with_nul_are_errors() {
    let context = alone();
    let nul = "a\0b";
    for error in [
        context.param(nul, &[1]).unwrap_err(),
        context.unit(nul, &[]).unwrap_err(),
        Plan::preset(nul).unwrap_err(),
        context.world().unwrap().abort(nul).unwrap_err(),
        Context::options().transport(nul).open().unwrap_err(),
        Context::options().job(nul).open().unwrap_err(),
        Context::options().token(nul).open().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.message().contains("NUL at byte 1"), "{error}");
    }
    context.world().unwrap().status().unwrap();
}

#[test]
fn lists_may_be_empty() {
    let context = alone();
    assert_eq!(context.unit("none", &[]).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(context.gather_begin(&[]).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(context.update(&[]).unwrap_err().kind(), ErrorKind::Argument);
    let options = AdamW::default();
    assert_eq!(context.adamw(&[], &options).unwrap_err().kind(), ErrorKind::Argument);
    context.world().unwrap().broadcast::<u8>(&mut [], 0).unwrap();

    let empty = context.param("empty", &[0]).unwrap();
    let unit = context.unit("empty", &[&empty]).unwrap();
    let full = unit.gather().unwrap();
    assert!(full.view(&empty).unwrap().as_slice::<f32>().unwrap().is_empty());
}

#[test]
fn memory_has_one_writer_at_a_time() {
    let context = alone();
    let (param, unit) = table(&context);
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();

    let mut gradients = unit.gradients().unwrap();
    for error in [
        unit.gradients().unwrap_err(),
        unit.reduced().unwrap_err(),
        unit.discard_reduced().unwrap_err(),
        unit.reduce_from(&[Source::new(&param, &counting())], &Default::default()).unwrap_err(),
        optimizer.step().unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.subject()), (ErrorKind::State, "table"));
    }
    let error = gradients.views(&[&param, &param]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Duplicate);
    gradients.view(&param).unwrap().as_mut_slice::<f32>().unwrap().fill(2.0);
    gradients.reduce(&Default::default()).unwrap();

    let mut reduced = unit.reduced().unwrap();
    assert_eq!(reduced.view(&param).unwrap().as_slice::<f32>().unwrap(), [2.0; 800]);
    assert_eq!(optimizer.step().unwrap_err().kind(), ErrorKind::State);
    drop(reduced);
    optimizer.step().unwrap();
    let info = optimizer.info().unwrap();
    assert_eq!((info.steps, info.norm), (1, (800.0f64 * 4.0).sqrt()));

    // The master of f32 is the param itself: an update would write under the view.
    let mut states = optimizer.states().unwrap();
    assert_eq!(states.view(&param, State::Master).unwrap().len(), 800);
    let read_only = states.view_mut(&param, State::Master).unwrap_err();
    assert_eq!(read_only.kind(), ErrorKind::State);
    states.view_mut(&param, State::ExpAvg).unwrap().as_mut_slice::<f32>().unwrap().fill(0.0);
    assert_eq!(context.update(&[&unit]).unwrap_err().kind(), ErrorKind::State);
    drop(states);
    let update = context.update(&[&unit]).unwrap();
    assert_eq!(optimizer.states().unwrap_err().kind(), ErrorKind::State);
    assert_eq!(unit.gather().unwrap_err().kind(), ErrorKind::State);
    update.publish().unwrap();
    assert!(optimizer.states().is_ok());
}

#[test]
fn guards_may_be_kept_and_sent() {
    let context = alone();
    let (param, unit) = table(&context);
    let param = Arc::new(param);
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let gradients = unit.gradients().unwrap();
    drop(unit); // the guard keeps it
    let of = param.clone();
    let written = thread::spawn(move || {
        let mut gradients = gradients;
        gradients.view(&of).unwrap().as_mut_slice::<f32>().unwrap().fill(2.0);
        gradients.reduce(&Default::default())
    });
    written.join().unwrap().unwrap();
    optimizer.step().unwrap();

    let mut states = optimizer.states_owned().unwrap();
    let folder = std::env::temp_dir().join("meron-rust-never-made");
    for error in [
        optimizer.step().unwrap_err(),
        optimizer.states().unwrap_err(),
        optimizer.states_owned().unwrap_err(),
        optimizer.read_state(&param, State::ExpAvg).unwrap_err(),
        optimizer.write_state(&param, State::ExpAvg, &[0.0; 800]).unwrap_err(),
        optimizer.offload(None).unwrap_err(),
        optimizer.reload().unwrap_err(),
        context.save(&folder, "a", &[&optimizer], &Default::default()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(error.advice().contains("states_owned"), "{error}");
    }
    let of = param.clone();
    let states = thread::spawn(move || {
        let mut average = states.view_mut(&of, State::ExpAvg).unwrap();
        average.as_mut_slice::<f32>().unwrap().fill(3.0);
        states
    });
    let states = states.join().unwrap();
    drop(optimizer); // the guard keeps it
    assert_eq!(states.view(&param, State::ExpAvg).unwrap().to_f32(), [3.0; 800]);
}

#[test]
fn views_have_the_shape_of_their_tensor() {
    let context = alone();
    let (scalar, matrix) =
        (context.param("scalar", &[]).unwrap(), context.param("matrix", &[3, 4]).unwrap());
    let unit = context.unit("unit", &[&scalar, &matrix]).unwrap();
    let full = unit.gather().unwrap();
    assert_eq!(full.view(&scalar).unwrap().shape(), []);
    assert_eq!(full.view(&matrix).unwrap().shape(), [3, 4]);
    let mut gradients = unit.gradients().unwrap();
    assert_eq!(gradients.view(&matrix).unwrap().shape(), [3, 4]);
    assert_eq!(format!("{:?}", full.view(&matrix).unwrap()), "View(f32 [3, 4] from 0)");
}

#[test]
fn views_are_of_the_units_own_params() {
    let context = alone();
    let (param, unit) = table(&context);
    let other = context.param("other", &[3]).unwrap();
    let others = context.unit("others", &[&other]).unwrap();
    assert_eq!(unit.gradients().unwrap().view(&other).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(unit.gather().unwrap().view(&other).unwrap_err().kind(), ErrorKind::Argument);
    let error = context.update(&[&others]).unwrap().view(&param).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[test]
fn states_are_copied_while_nobody_writes_what_they_are() {
    let context = alone();
    let (param, unit) = table(&context);
    let mut optimizer = context.adam(&[&unit], &Adam::default()).unwrap();
    let values = counting();
    optimizer.write_state(&param, State::ExpAvg, &values).unwrap();
    assert_eq!(optimizer.read_state(&param, State::ExpAvg).unwrap(), values);
    for wrong in [&values[..799], &[]] {
        let error = optimizer.write_state(&param, State::ExpAvg, wrong).unwrap_err();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "table"));
    }
    let error = optimizer.write_state(&param, State::Master, &values).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);

    // The master of f32 is the param itself, which an update writes.
    let update = context.update(&[&unit]).unwrap();
    let error = optimizer.read_state(&param, State::Master).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::State, "table"));
    update.publish().unwrap();
    assert_eq!(optimizer.read_state(&param, State::Master).unwrap().len(), 800);
    let states = optimizer.states().unwrap();
    assert_eq!(states.view(&param, State::ExpAvg).unwrap().as_slice::<f32>().unwrap(), values);
    drop(states);
    optimizer.set_steps(7).unwrap();
    assert_eq!(optimizer.info().unwrap().steps, 7);
    let error = optimizer.set_steps((1 << 53) + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[test]
fn rules_have_their_own_defaults_and_states() {
    let context = alone();
    let (param, unit) = table(&context);
    let units = [&unit];
    let adagrad = context.adagrad(&units, &Adagrad::default()).unwrap();
    let group = adagrad.group(0).unwrap();
    assert_eq!((group.learning_rate, group.epsilon, group.weight_decay), (1e-2, 1e-10, 0.0));
    assert_eq!(adagrad.info().unwrap().states, 1);
    let error = adagrad.read_state(&param, State::ExpAvg).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "table"));
    drop(adagrad);
    let lion = context.lion(&units, &Lion::default()).unwrap();
    let group = lion.group(0).unwrap();
    assert_eq!((group.learning_rate, group.beta1, group.beta2), (1e-4, 0.9, 0.99));
    drop(lion);
    let sgd = context.sgd(&units, &Sgd::default()).unwrap();
    assert_eq!((sgd.info().unwrap().states, sgd.group(0).unwrap().beta1), (0, 0.0));
    drop(sgd);
    let wrong = Sgd::default().momentum(0.9).dampening(0.1).nesterov(true);
    assert_eq!(context.sgd(&units, &wrong).unwrap_err().kind(), ErrorKind::Argument);
    let right = Sgd::default().momentum(0.9).nesterov(true);
    let mut sgd = context.sgd(&units, &right).unwrap();
    let group = sgd.group(0).unwrap();
    assert_eq!((group.learning_rate, group.beta1, group.weight_decay), (1e-3, 0.9, 0.0));
    // The defaults of an OptimizerGroup are AdamW's.
    let error = sgd.add_group(&[&param], &OptimizerGroup::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert!(error.to_string().contains("defaults of AdamW"), "{error}");
    let other = sgd.group(0).unwrap().beta1(0.0);
    assert_eq!(sgd.set_group(0, &other).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(sgd.add_group(&[&param], &other).unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(sgd.info().unwrap().groups, 1);
}

#[test]
fn a_skipped_param_keeps_its_values_and_its_count() {
    let context = alone();
    let weight = context.param("weight", &[4]).unwrap();
    let bias = context.param("bias", &[3]).unwrap();
    let loose = context.param("loose", &[2]).unwrap();
    let unit = context.unit("unit", &[&weight, &bias]).unwrap();
    let mut optimizer = context.sgd(&[&unit], &Sgd::default().learning_rate(0.5)).unwrap();
    let step = |optimizer: &mut Optimizer| {
        let mut gradients = unit.gradients().unwrap();
        for param in [&weight, &bias] {
            gradients.view(param).unwrap().as_mut_slice::<f32>().unwrap().fill(2.0);
        }
        gradients.reduce(&Default::default()).unwrap();
        optimizer.step().unwrap();
    };
    optimizer.skip(&[&bias]).unwrap();
    step(&mut optimizer);
    assert_eq!(optimizer.param_steps(&weight).unwrap(), 1);
    assert_eq!(optimizer.param_steps(&bias).unwrap(), 0);
    assert_eq!(optimizer.read_state(&weight, State::Master).unwrap(), [-1.0; 4]);
    assert_eq!(optimizer.read_state(&bias, State::Master).unwrap(), [0.0; 3]);
    optimizer.skip(&[]).unwrap();
    step(&mut optimizer);
    assert_eq!(optimizer.param_steps(&bias).unwrap(), 1);
    assert_eq!(optimizer.read_state(&bias, State::Master).unwrap(), [-1.0; 3]);
    optimizer.set_param_steps(&bias, 9).unwrap();
    assert_eq!(optimizer.param_steps(&bias).unwrap(), 9);
    optimizer.set_steps(4).unwrap();
    assert_eq!(optimizer.param_steps(&bias).unwrap(), 4);
    for error in [
        optimizer.skip(&[&weight, &loose]).unwrap_err(),
        optimizer.param_steps(&loose).unwrap_err(),
        optimizer.set_param_steps(&loose, 1).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "loose"));
    }
    let error = optimizer.set_param_steps(&bias, (1 << 53) + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
}

#[test]
fn only_adagrad_decays_its_rate() {
    let context = alone();
    let (param, unit) = table(&context);
    for wrong in [-0.5, f64::NAN, f64::INFINITY] {
        let rule = Adagrad::default().lr_decay(wrong);
        let error = context.adagrad(&[&unit], &rule).unwrap_err();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "lr_decay"));
    }
    let mut adagrad = context.adagrad(&[&unit], &Adagrad::default().lr_decay(0.5)).unwrap();
    let group = adagrad.group(0).unwrap();
    assert_eq!(group.lr_decay, 0.5);
    adagrad.add_group(&[&param], &group.lr_decay(0.25)).unwrap();
    assert_eq!(adagrad.group(1).unwrap().lr_decay, 0.25);
    assert_eq!(adagrad.group(0).unwrap().lr_decay, 0.5);
    drop(adagrad);
    let mut adamw = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let group = adamw.group(0).unwrap().lr_decay(0.5);
    let error = adamw.set_group(0, &group).unwrap_err();
    assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, "lr_decay"));
}

#[test]
fn a_context_that_was_closed_says_so() {
    let context = alone();
    let (param, unit) = table(&context);
    let world = context.world().unwrap();
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let barrier = world.barrier_begin().unwrap();
    context.close().unwrap();
    for error in [
        param.shard_range().unwrap_err(),
        unit.info().unwrap_err(),
        unit.gather().unwrap_err(),
        unit.gather_copy().unwrap_err(),
        unit.gradients().unwrap_err(),
        unit.reduced().unwrap_err(),
        world.rank().unwrap_err(),
        world.barrier().unwrap_err(),
        world.all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap_err(),
        optimizer.step().unwrap_err(),
        optimizer.info().unwrap_err(),
        optimizer.states().unwrap_err(),
        optimizer.read_state(&param, State::ExpAvg).unwrap_err(),
        optimizer.write_state(&param, State::ExpAvg, &[]).unwrap_err(),
        optimizer.group(0).unwrap_err(),
        optimizer.set_group(0, &OptimizerGroup::default()).unwrap_err(),
        optimizer.set_steps(1).unwrap_err(),
        optimizer.skip(&[&param]).unwrap_err(),
        optimizer.param_steps(&param).unwrap_err(),
        optimizer.set_param_steps(&param, 1).unwrap_err(),
        optimizer.add_group(&[&param], &OptimizerGroup::default()).unwrap_err(),
        barrier.wait().unwrap_err(),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Stale), "{error:?}");
    }
    assert!(matches!(param.release().unwrap_err().kind(), ErrorKind::Stale));
}

#[test]
fn the_prediction_is_what_is_counted() {
    let context = alone();
    let (_param, unit) = table(&context);
    let predicted = context.predict(&Workload::default()).unwrap();
    assert_eq!(context.stats().unwrap().param_bytes, predicted.param_bytes);
    drop(unit.gather().unwrap());
    assert_eq!(context.stats().unwrap().gather_mapped_bytes, 0);
    assert!(context.flight_record().unwrap().contains("gather"));
    assert!(meron::system_info().unwrap().contains("\"transports\""));
}

#[test]
fn plans_say_what_is_wrong() {
    let error = Plan::parse("{\"preset\":\n 3").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Parse);
    assert!(error.message().contains("line 2"), "{error}");
    assert_eq!("zero9".parse::<Plan>().unwrap_err().kind(), ErrorKind::Argument);
    let workload = Workload::default().ranks(2);
    let model = r#"{"parameters": 1000, "layers": 2, "dtype": "f32"}"#;
    let plan = Plan::preset("zero1").unwrap();
    assert!(plan.predict(model, &workload).unwrap().starts_with('{'));
    assert!(plan.to_table().unwrap().contains("zero1"));
}
