// SPDX-License-Identifier: Apache-2.0
//! Safe programs that forget guards, leave peers behind, close a context from within it, or have a
//! transport that lies: errors or a leak, and no memory that someone else has. Under a sanitizer too.

#![forbid(unsafe_code)]

mod common;

use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::mem::forget;
use std::rc::Rc;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::{alone, job_name, modest, ranks, Bomb};
use meron::{
    AdamW, Bf16, Buffer, CheckpointTensor, Context, ContextOptions, CustomTransport, Dtype,
    ErrorKind, Io, IoOptions, ParamDesc, ReduceOp, SaveOptions, State, F16,
};

/// Uses memory that was freed.
fn churn() {
    for i in 0..50 {
        std::hint::spin_loop();
        drop(vec![i as u8; 1 << 16]);
    }
}

#[test]
fn forgotten_operations_keep_their_arrays() {
    ranks(2, "zero3", |context| {
        let world = context.world().unwrap();
        for round in 0..6 {
            let sent = world.broadcast_begin(vec![round as f32; 30_000], 0).unwrap();
            match round % 3 {
                0 => forget(sent),
                1 => drop(sent),
                _ => drop(Box::leak(Box::new(sent)).as_raw()),
            }
            drop(world.all_reduce_begin(vec![1.0f32; 10_000], ReduceOp::Sum).unwrap());
            churn();
            world.barrier().unwrap();
        }
        let param = context.param("w", &[10_000]).unwrap();
        let unit = context.unit("u", &[&param]).unwrap();
        for round in 0..4 {
            let into = vec![(&param, Buffer::zeros(param.dtype(), 10_000))];
            let pending = unit.gather_into_begin(into).unwrap();
            match round % 2 {
                0 => forget(pending),
                _ => drop(pending),
            }
            churn();
        }
        world.barrier().unwrap();
    });
}

#[test]
fn forgotten_guards_stay_counted() {
    let context = alone();
    let param = context.param("w", &[1000]).unwrap();
    let unit = context.unit("u", &[&param]).unwrap();
    let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
    let mut gradients = unit.gradients().unwrap();
    gradients.view(&param).unwrap().into_mut_slice::<f32>().unwrap().fill(1.0);
    forget(gradients);
    assert_eq!(unit.gradients().unwrap_err().kind(), ErrorKind::State);
    assert_eq!(unit.reduced().unwrap_err().kind(), ErrorKind::State);
    let full = unit.gather().unwrap();
    let cycle: Rc<RefCell<Vec<Rc<dyn Any>>>> = Rc::default();
    cycle.borrow_mut().extend([cycle.clone() as Rc<dyn Any>, Rc::new(full)]);
    drop(cycle);
    assert_eq!(context.update(&[&unit]).unwrap_err().kind(), ErrorKind::State);
    forget(optimizer.states_owned().unwrap());
    assert_eq!(optimizer.step().unwrap_err().kind(), ErrorKind::State);
    let mut schedule = context.schedule(&[&unit], &Default::default()).unwrap();
    schedule.start_pass(0).unwrap();
    forget(schedule.enter(0).unwrap());
    assert_eq!(schedule.reset().unwrap_err().kind(), ErrorKind::State);
}

#[test]
fn forgotten_requests_and_saves_keep_their_memory() {
    let name = format!("meron-rust-{}-forgotten", std::process::id());
    let path = std::env::temp_dir().join(name);
    let io = Io::open(&IoOptions::default()).unwrap();
    io.write(&path, &vec![3u8; 1 << 20], 0).unwrap();
    for round in 0..6 {
        let request = io.read_begin(&path, vec![0u8; 1 << 20], 0).unwrap();
        match round % 2 {
            0 => drop(request),
            _ => forget(request),
        }
        drop(io.read_begin(&path, io.buffer(1 << 16).unwrap(), 0).unwrap());
        churn();
    }
    drop(io);
    std::fs::remove_file(&path).unwrap();
    for stops in [false, true] {
        let options = modest().rank(0).world_size(1).should_stop(move || stops);
        let context = options.open().unwrap();
        let tensor = CheckpointTensor::new("own", &[1 << 18], vec![1.0f32; 1 << 18]);
        let options = SaveOptions::new().tensor(tensor);
        if let Ok(saving) = context.save_begin(&path, "s", &[], &options) {
            forget(saving);
        }
        drop((options, context));
        churn();
        let _ = std::fs::remove_dir_all(&path);
    }
}

#[test]
fn values_stay_after_their_peer_has_gone() {
    const COUNT: usize = 1 << 14;
    for plan in ["zero0", "zero3"] {
        let turn = Barrier::new(2);
        ranks(2, plan, move |context| {
            let param = context.param("w", &[COUNT as i64]).unwrap();
            let unit = context.unit("u", &[&param]).unwrap();
            let mut update = context.update(&[&unit]).unwrap();
            update.write(&param, &vec![5.0f32; COUNT]).unwrap();
            update.publish().unwrap();
            let full = unit.gather().unwrap();
            turn.wait();
            if context.rank() == 0 {
                drop((full, unit, param, context)); // the owner of half of it
                turn.wait();
                return;
            }
            let values = full.view(&param).unwrap().as_slice::<f32>().unwrap();
            turn.wait();
            assert!(values.iter().all(|&value| value == 5.0));
            let tensor = full.dlpack(&param).unwrap();
            drop((full, unit, param, context));
            assert!(tensor.as_slice::<f32>().unwrap().iter().all(|&value| value == 5.0));
        });
    }
}

#[test]
fn slices_without_elements_are_slices() {
    ranks(3, "zero3", |context| {
        let mut params = Vec::new();
        for dtype in [Dtype::Bf16, Dtype::F32, Dtype::F16] {
            for shape in [&[0][..], &[1], &[]] {
                let name = format!("{dtype}-{shape:?}");
                params.push(context.register(&ParamDesc::new(&name, shape).dtype(dtype)).unwrap());
            }
        }
        let all: Vec<_> = params.iter().collect();
        let unit = context.unit("u", &all).unwrap();
        let mut update = context.update(&[&unit]).unwrap();
        for param in &params {
            let view = update.view(param).unwrap();
            let count = match view.dtype() {
                Dtype::F32 => view.as_slice::<f32>().unwrap().len(),
                Dtype::Bf16 => view.as_slice::<Bf16>().unwrap().len(),
                _ => view.as_slice::<F16>().unwrap().len(),
            };
            assert_eq!(count, view.len());
        }
        update.publish().unwrap();
        let full = unit.gather().unwrap();
        for param in &params {
            assert_eq!(full.view(param).unwrap().to_f32().len() as u64, param.count());
            assert_eq!(full.dlpack(param).unwrap().len() as u64, param.count());
        }
        drop(full);
        let mut optimizer = context.adamw(&[&unit], &AdamW::default()).unwrap();
        let states = optimizer.states().unwrap();
        for param in &params {
            assert!(states.view(param, State::ExpAvg).unwrap().to_f32().len() <= 1);
        }
        context.world().unwrap().all_reduce(&mut [0.0f32; 0], Default::default()).unwrap();
    });
}

#[test]
fn a_context_may_be_dropped_from_within() {
    type Slot = Arc<Mutex<Option<Context>>>;
    let (slot, job) = (Slot::default(), job_name());
    let inner = slot.clone();
    let rank = |rank| modest().transport("local").job(&job).rank(rank).world_size(2);
    let options: ContextOptions = rank(0).should_stop(move || {
        drop(inner.lock().unwrap().take());
        false
    });
    let peer = rank(1);
    let peer = thread::spawn(move || peer.open().unwrap());
    let context = options.open().unwrap();
    let _peer = peer.join().unwrap();
    let world = context.world().unwrap();
    let mut sums = world.all_reduce_begin(vec![1.0f32; 1 << 10], Default::default()).unwrap();
    *slot.lock().unwrap() = Some(context);
    let kind = sums.wait().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Closed | ErrorKind::Stale), "{kind:?}");
}

/// Says that every request is number 7, and something wrong about its message.
struct Liar(u32);

impl CustomTransport for Liar {
    fn send(&mut self, _: i32, _: u64, _: &[u8]) -> io::Result<Option<u64>> {
        Ok(Some(7))
    }

    fn receive(&mut self, _: i32, _: u64, _: usize) -> io::Result<Option<u64>> {
        Ok(Some(7))
    }

    fn test(&mut self, _: u64, place: &mut [u8]) -> io::Result<Option<usize>> {
        place.fill(0xA5);
        match self.0 {
            0 => Ok(Some(usize::MAX)),
            1 => Ok(Some(place.len())),
            2 => Ok(Some(place.len() + 1)),
            _ => std::panic::panic_any(Bomb),
        }
    }

    fn cancel(&mut self, _: u64) {}
}

#[test]
fn a_transport_that_lies_gives_errors() {
    for lie in 0..4 {
        let threads: Vec<_> = (0..2)
            .map(|rank| {
                thread::spawn(move || {
                    let options = modest().rank(rank).world_size(2);
                    let options = options.timeout(Duration::from_millis(300));
                    options.custom("liar", 4096, Liar(lie)).unwrap().open().map(drop)
                })
            })
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap().is_err());
        }
    }
}
