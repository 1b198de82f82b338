// SPDX-License-Identifier: Apache-2.0
//! Things may be dropped in any order, on any thread, before and after the context is closed.

mod common;

use std::any::Any;
use std::sync::{mpsc, Arc, Barrier};
use std::thread;

use common::{alone, job_name, modest, ranks, ranks_with, Random};
use meron::dlpack::ManagedTensor;
use meron::{
    AdamW, Buffer, Context, DlpackTensor, Error, ErrorKind, Gather, GatherCopy, Operation,
    Optimizer, Param, PendingGather, PendingGatherInto, PendingUpdate, Plan, ReduceOp, Transfer,
    Unit, Update,
};

/// Errors that a call may end with because of what was dropped before it, and no others.
fn expected(error: Error) {
    let kinds = [ErrorKind::Closed, ErrorKind::Stale, ErrorKind::State, ErrorKind::Aborted];
    assert!(kinds.contains(&error.kind()), "{error:?}");
}

/// One of each kind of thing.
struct Zoo {
    context: Context,
    param: Param,
    unit: Unit,
    things: Vec<Box<dyn Any + Send>>,
}

/// Creates `count` objects of random kinds, except those that the state of the unit forbids.
fn fill(zoo: &mut Zoo, random: &mut Random, count: usize) {
    let Zoo { context, param, unit, things } = zoo;
    let world = context.world().unwrap();
    let mut keep = |made: Result<Box<dyn Any + Send>, Error>| match made {
        Ok(thing) => things.push(thing),
        Err(error) => expected(error),
    };
    fn boxed<T: Any + Send>(thing: T) -> Box<dyn Any + Send> {
        Box::new(thing)
    }
    for _ in 0..count {
        let name = format!("p{}", random.bits());
        match random.below(12) {
            0 => keep(unit.gather().map(boxed::<Gather>)),
            1 => keep(unit.gather_begin().map(boxed::<PendingGather>)),
            2 => keep(unit.gather_copy().map(boxed::<GatherCopy>)),
            3 => {
                let arrays = vec![(&*param, Buffer::zeros(param.dtype(), 3000))];
                keep(unit.gather_into_begin(arrays).map(boxed::<PendingGatherInto>))
            }
            4 => keep(unit.gather().and_then(|full| full.dlpack(param)).map(boxed::<DlpackTensor>)),
            5 => keep(context.update_begin(&[unit]).map(boxed::<PendingUpdate>)),
            6 => keep(context.update(&[unit]).map(boxed::<Update>)),
            7 => keep(world.barrier_begin().map(boxed::<Operation>)),
            8 => {
                let begun = world.all_reduce_begin(vec![1.0f32; 100], ReduceOp::Sum);
                keep(begun.map(boxed::<Transfer<f32>>))
            }
            9 => {
                if let Ok(param) = context.param(&name, &[700]) {
                    keep(context.unit(&name, &[&param]).map(boxed::<Unit>));
                    keep(Ok(boxed(param)));
                }
            }
            10 => keep(Plan::preset("zero1").map(boxed::<Plan>)),
            _ => {
                if let Ok(param) = context.param(&name, &[300]) {
                    let made = context
                        .unit(&name, &[&param])
                        .and_then(|unit| context.adamw(&[&unit], &AdamW::default()));
                    keep(made.map(boxed::<Optimizer>));
                }
            }
        }
    }
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i + 1));
    }
}

/// Drops everything in a random order, the context among it, some of it on another thread.
fn drop_all(zoo: Zoo, random: &mut Random, elsewhere: &mpsc::Sender<Box<dyn Any + Send>>) {
    let Zoo { context, param, unit, mut things } = zoo;
    things.push(Box::new(param));
    things.push(Box::new(unit));
    things.push(Box::new(context));
    shuffle(&mut things, random);
    for thing in things {
        if random.below(3) == 0 {
            elsewhere.send(thing).unwrap();
        } else if thing.is::<Context>() && random.below(2) == 0 {
            thing.downcast::<Context>().unwrap().close().unwrap();
        } else {
            drop(thing);
        }
    }
}

fn zoo(context: Context) -> Zoo {
    let param = context.param("param", &[3, 1000]).unwrap();
    let unit = context.unit("unit", &[&param]).unwrap();
    Zoo { context, param, unit, things: Vec::new() }
}

#[test]
fn ten_thousand_orders_of_dropping() {
    let (send, receive) = mpsc::channel::<Box<dyn Any + Send>>();
    let dropper = thread::spawn(move || receive.into_iter().for_each(drop));
    let mut random = Random(1);
    for _ in 0..10_000 {
        let mut zoo = zoo(alone());
        let count = 1 + random.below(8);
        fill(&mut zoo, &mut random, count);
        drop_all(zoo, &mut random, &send);
    }
    drop(send);
    dropper.join().unwrap();
    // Whatever was dropped before: a new context works.
    let zoo = zoo(alone());
    assert_eq!(zoo.unit.gather().unwrap().view(&zoo.param).unwrap().len(), 3000);
}

#[test]
fn orders_of_dropping_with_a_peer() {
    for seed in 0..100 {
        let job = job_name();
        let threads: Vec<_> = (0..2)
            .map(|rank| {
                let job = job.clone();
                thread::spawn(move || {
                    let (send, receive) = mpsc::channel::<Box<dyn Any + Send>>();
                    let dropper = thread::spawn(move || receive.into_iter().for_each(drop));
                    let options = modest().transport("local").job(&job).rank(rank).world_size(2);
                    let mut zoo = zoo(options.open().unwrap());
                    // The same calls on both ranks, so that only the orders of dropping differ.
                    for begun in 0..3 {
                        let world = zoo.context.world().unwrap();
                        zoo.things.push(Box::new(world.barrier_begin().unwrap()));
                        let sums = world.all_reduce_begin(vec![1.0f32; 50 + begun], ReduceOp::Sum);
                        zoo.things.push(Box::new(sums.unwrap()));
                        zoo.things.push(Box::new(zoo.unit.gather_begin().unwrap()));
                    }
                    drop_all(zoo, &mut Random(2 * seed + rank as u64), &send);
                    drop(send);
                    dropper.join().unwrap();
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn slices_outlive_the_close_of_their_context() {
    let context = alone();
    let param = context.param("param", &[100_000]).unwrap();
    let unit = context.unit("unit", &[&param]).unwrap();
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&param, &vec![3.0f32; 100_000]).unwrap();
    update.publish().unwrap();

    let full = unit.gather().unwrap();
    let tensor = full.dlpack(&param).unwrap();
    let values = full.view(&param).unwrap().as_slice::<f32>().unwrap();
    context.close().unwrap();
    assert!(values.iter().all(|&value| value == 3.0));
    assert!(matches!(unit.gather().unwrap_err().kind(), ErrorKind::Closed));
    drop((full, unit, param));
    assert!(tensor.as_slice::<f32>().unwrap().iter().all(|&value| value == 3.0));
}

#[test]
fn gradients_and_states_outlive_the_close_of_their_context() {
    let context = alone();
    let param = context.param("param", &[100_000]).unwrap();
    let unit = context.unit("unit", &[&param]).unwrap();
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let mut gradients = unit.gradients().unwrap();
    let mut place = gradients.view(&param).unwrap();
    let mut states = optimizer.states().unwrap();
    let mut moment = states.view_mut(&param, meron::State::ExpAvg).unwrap();
    context.close().unwrap();
    place.as_mut_slice::<f32>().unwrap().fill(1.0);
    moment.as_mut_slice::<f32>().unwrap().fill(1.0);
    expected(gradients.reduce(&Default::default()).unwrap_err());
}

#[test]
fn a_thread_that_waits_is_woken_by_the_close() {
    ranks(2, "zero3", |context| {
        if context.rank() == 1 {
            thread::sleep(std::time::Duration::from_millis(500));
            return;
        }
        let barrier = context.world().unwrap().barrier_begin().unwrap();
        let waiter = thread::spawn(move || barrier.wait());
        thread::sleep(std::time::Duration::from_millis(50));
        context.close().unwrap();
        let kind = waiter.join().unwrap().unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Closed | ErrorKind::Stale), "{kind:?}");
    });
}

#[test]
fn closures_and_arrays_are_freed_after_a_close_with_operations_under_way() {
    let kept = Arc::new(());
    let closure = Arc::downgrade(&kept);
    let closed = Barrier::new(2);
    ranks_with(
        2,
        "zero3",
        move |options, _rank| {
            let kept = kept.clone();
            options.log(move |_level, _message| drop(kept.clone()))
        },
        move |context| {
            if context.rank() == 0 {
                let world = context.world().unwrap();
                // Rank 1 takes no part, so the transfer cannot end before the close.
                drop(world.all_reduce_begin(vec![1.0f32; 100], ReduceOp::Sum).unwrap());
                context.close().unwrap();
            }
            closed.wait();
        },
    );
    assert!(closure.upgrade().is_none());
}

#[test]
fn tensors_go_out_and_come_in() {
    let context = alone();
    let param = context.param("param", &[4, 5]).unwrap();
    let unit = context.unit("unit", &[&param]).unwrap();
    let full = unit.gather().unwrap();
    let tensor = full.dlpack(&param).unwrap();
    drop(full);
    assert_eq!((tensor.shape(), tensor.len()), (&[4i64, 5][..], 20));
    assert!(tensor.is_read_only());
    assert_eq!(unit.info().unwrap().leases, 1);
    assert_eq!(tensor.as_slice::<meron::F16>().unwrap_err().kind(), ErrorKind::Argument);

    // Out, as to another library, beyond the context's life, and back.
    let raw = tensor.into_raw();
    context.close().unwrap();
    // SAFETY: the tensor was ours to give, and is taken over once.
    let back = unsafe { DlpackTensor::from_raw(raw) }.unwrap();
    assert_eq!(back.as_slice::<f32>().unwrap(), [0.0; 20]);
    drop(back);

    let context = alone();
    let param = context.param("param", &[4, 5]).unwrap();
    let unit = context.unit("unit", &[&param]).unwrap();
    let copy = unit.gather_copy().unwrap().into_dlpack(&param).unwrap();
    assert!(!copy.is_read_only());
    assert_eq!(unit.info().unwrap().leases, 0);
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&param, copy.as_slice::<f32>().unwrap()).unwrap();
    update.publish().unwrap();
}

#[test]
fn tensors_that_cannot_be_read_are_refused() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static DELETED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn delete(tensor: *mut ManagedTensor) {
        DELETED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `made` has made it of a box, and it is deleted once.
        drop(unsafe { Box::from_raw(tensor) });
    }
    let values = [0.0f32; 7];
    let shape = [2i64, 3];
    let (mut rows, mut columns) = ([3i64, 1], [1i64, 2]);
    let made = |change: &dyn Fn(&mut ManagedTensor)| {
        let mut tensor = Box::new(ManagedTensor {
            major: 1,
            minor: 0,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: 0,
            tensor: meron::dlpack::Tensor {
                data: values.as_ptr() as *mut std::os::raw::c_void,
                device_type: 1,
                device_id: 0,
                ndim: 2,
                dtype_code: 2,
                dtype_bits: 32,
                dtype_lanes: 1,
                shape: shape.as_ptr() as *mut i64,
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
        });
        change(&mut tensor);
        // SAFETY: a tensor over memory that outlives it and has no writers.
        unsafe { DlpackTensor::from_raw(Box::into_raw(tensor)) }
    };
    let (rows, columns) = (rows.as_mut_ptr(), columns.as_mut_ptr());
    assert_eq!(made(&|_| {}).unwrap().as_slice::<f32>().unwrap(), [0.0; 6]);
    assert_eq!(made(&|t| t.tensor.strides = rows).unwrap().len(), 6);
    assert_eq!(made(&|t| t.tensor.byte_offset = 4).unwrap().len(), 6);
    for refused in [
        made(&|t| t.tensor.strides = columns),
        made(&|t| t.major = 2),
        made(&|t| t.tensor.device_type = 2),
        made(&|t| t.tensor.dtype_bits = 64),
        made(&|t| t.tensor.dtype_code = 0),
        made(&|t| t.tensor.dtype_lanes = 4),
        made(&|t| t.tensor.byte_offset = 2),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(DELETED.load(Ordering::Relaxed), 10);
    // SAFETY: null is allowed.
    let null = unsafe { DlpackTensor::from_raw(std::ptr::null_mut()) };
    assert_eq!(null.unwrap_err().kind(), ErrorKind::Argument);
}
