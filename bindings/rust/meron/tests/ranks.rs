// SPDX-License-Identifier: Apache-2.0
//! Several ranks, as threads of this process.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::{alone, ranks, ranks_with, run};
use meron::{AdamW, Buffer, ErrorKind, ReduceOp, ReduceOptions, Source};

#[test]
fn ranks_train_one_tensor() {
    for plan in ["zero0", "zero1", "zero2", "zero3"] {
        ranks(3, plan, |context| {
            let rank = context.rank() as f32;
            let weight = context.param("weight", &[5, 300]).unwrap();
            let unit = context.unit("layer", &[&weight]).unwrap();
            let options = AdamW::default().learning_rate(0.5).weight_decay(0.0);
            let mut optimizer = context.adamw(&[&unit], &options).unwrap();

            let mut gradients = unit.gradients().unwrap();
            gradients.view(&weight).unwrap().as_mut_slice::<f32>().unwrap().fill(rank);
            gradients.reduce(&ReduceOptions::default()).unwrap();
            let shard_range = weight.shard_range().unwrap();
            let mut reduced = unit.reduced().unwrap();
            let part = reduced.view(&weight).unwrap();
            assert_eq!(
                (part.offset(), part.len() as u64),
                (shard_range.start, shard_range.end - shard_range.start)
            );
            assert!(part.as_slice::<f32>().unwrap().iter().all(|&mean| mean == 1.0));
            drop(reduced);
            optimizer.step().unwrap();

            // The first step of AdamW moves each value by the learning rate.
            let full = unit.gather().unwrap();
            for value in full.view(&weight).unwrap().to_f32() {
                assert!((value + 0.5).abs() < 1e-5, "{value}");
            }
            drop(full);
            context.world().unwrap().barrier().unwrap();
        });
    }
}

#[test]
fn arrays_go_to_all_ranks() {
    ranks(3, "zero3", |context| {
        let world = context.world().unwrap();
        let mut sums = [context.rank() as f32, 1.0];
        world.all_reduce(&mut sums, ReduceOp::Sum).unwrap();
        assert_eq!(sums, [3.0, 3.0]);
        let mut words = [context.rank() as u64; 5];
        world.broadcast(&mut words, 2).unwrap();
        assert_eq!(words, [2; 5]);

        let pair = context.group(&[2, 0]).unwrap();
        assert_eq!(pair.is_some(), context.rank() != 1);
        if let Some(pair) = pair {
            assert_eq!((pair.size().unwrap(), pair.rank().unwrap()), (2, 1 - context.rank() / 2));
            let mean = pair.all_reduce_begin(vec![context.rank() as f32], ReduceOp::Mean).unwrap();
            // Dropped while under way: the library keeps its array.
            drop(pair.all_reduce_begin(vec![9.0f32; 100], ReduceOp::Sum).unwrap());
            assert_eq!({ mean }.wait().unwrap(), [1.0]);
        }
        world.barrier().unwrap();
        context.progress().unwrap();
    });
}

#[test]
fn sources_may_be_slices() {
    ranks(2, "zero2", |context| {
        let weight = context.param("weight", &[700]).unwrap();
        let unit = context.unit("layer", &[&weight]).unwrap();
        let gradient = vec![2.0f32 * context.rank() as f32; 700];
        let options = ReduceOptions::default().op(ReduceOp::Sum).divisor(4.0);
        unit.reduce_from(&[Source::new(&weight, &gradient)], &options).unwrap();
        let mut reduced = unit.reduced().unwrap();
        assert!(reduced
            .view(&weight)
            .unwrap()
            .as_slice::<f32>()
            .unwrap()
            .iter()
            .all(|&x| x == 0.5));
        reduced.discard().unwrap();

        let more = ReduceOptions::default().boundary(false);
        unit.reduce_from(&[Source::new(&weight, &gradient)], &more).unwrap();
        unit.reduce_finish(&ReduceOptions::default()).unwrap();
        let mut reduced = unit.reduced().unwrap();
        assert_eq!(reduced.view(&weight).unwrap().as_slice::<f32>().unwrap()[0], 1.0);
        reduced.discard().unwrap();
        context.world().unwrap().barrier().unwrap();
    });
}

#[test]
fn one_wait_is_for_many_units() {
    for plan in ["zero0", "zero1", "zero2", "zero3"] {
        let begun = Arc::new(Barrier::new(2));
        ranks(2, plan, move |context| {
            let params = ["a", "b", "c"].map(|name| context.param(name, &[50]).unwrap());
            let unit =
                |place: usize| context.unit(["u", "v", "w"][place], &[&params[place]]).unwrap();
            let (at_once, summed, idle) = (&unit(0), &unit(1), &unit(2));
            let units = [at_once, summed, idle];
            assert!(context.wait_reductions_timeout(&units, Duration::ZERO).unwrap());

            let late = context.rank() == 1;
            if late {
                begun.wait();
            }
            let values = vec![2.0f32 * context.rank() as f32; 50];
            let more = ReduceOptions::default().boundary(false);
            let sum = ReduceOptions::default().op(ReduceOp::Sum);
            drop(at_once.reduce_from_begin(&[Source::new(&params[0], &values)], &sum).unwrap());
            drop(summed.reduce_from_begin(&[Source::new(&params[1], &values)], &more).unwrap());
            drop(summed.reduce_finish_begin(&ReduceOptions::default()).unwrap());
            if !late {
                let short = Duration::from_millis(1);
                assert!(!context.wait_reductions_timeout(&units, short).unwrap());
                begun.wait();
            }
            context.wait_reductions(&units).unwrap();
            for (unit, param, value) in [(at_once, &params[0], 2.0), (summed, &params[1], 1.0)] {
                let mut reduced = unit.reduced().unwrap();
                let view = reduced.view(param).unwrap();
                assert!(view.as_slice::<f32>().unwrap().iter().all(|&x| x == value));
            }
            context.world().unwrap().barrier().unwrap();

            assert_eq!(context.wait_reductions(&[]).unwrap_err().kind(), ErrorKind::Argument);
            let other = alone();
            let param = other.param("a", &[50]).unwrap();
            let foreign = other.unit("a", &[&param]).unwrap();
            let error = context.wait_reductions(&[idle, &foreign]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Handle);
            if !late {
                drop(idle.gradients().unwrap().reduce_begin(&sum).unwrap()); // rank 1 closes instead
                let error = context.wait_reductions(&units).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PeerClosed);
            }
        });
    }
}

#[test]
fn operations_are_futures() {
    let begun = Arc::new(Barrier::new(2));
    ranks(2, "zero3", move |context| {
        let world = context.world().unwrap();
        let weight = context.param("weight", &[600]).unwrap();
        let unit = context.unit("layer", &[&weight]).unwrap();
        let late = context.rank() == 1;
        if late {
            begun.wait();
            thread::sleep(Duration::from_millis(5));
        }
        let barrier = world.barrier_begin().unwrap();
        if !late {
            assert!(!barrier.is_done().unwrap());
            begun.wait();
        }
        let (ended, polls) = run(barrier);
        ended.unwrap();
        assert!(late || polls > 1);

        let summed = world.all_reduce_begin(vec![1.0f32; 3], ReduceOp::Sum).unwrap();
        assert_eq!(run(summed).0.unwrap(), [2.0; 3]);
        let (full, _) = run(unit.gather_begin().unwrap());
        assert_eq!(full.unwrap().view(&weight).unwrap().len(), 600);
        let array = vec![(&weight, Buffer::zeros(weight.dtype(), 600))];
        let (arrays, _) = run(unit.gather_into_begin(array).unwrap());
        assert_eq!(arrays.unwrap()[0].len(), 600);
        let (update, _) = run(context.update_begin(&[&unit]).unwrap());
        update.unwrap().publish().unwrap();
        let schedule = context.schedule(&[&unit], &Default::default()).unwrap();
        let (used, _) = run(schedule.entering(0));
        assert_eq!(used.unwrap().view(&weight).unwrap().len(), 600);
        assert_eq!(run(schedule.entering(1)).0.unwrap_err().kind(), ErrorKind::Argument);
        world.barrier().unwrap();
    });
}

#[test]
fn a_future_that_waits_is_polled_seldom() {
    const LATE: Duration = Duration::from_millis(400);
    ranks(2, "zero3", |context| {
        let world = context.world().unwrap();
        if context.rank() == 1 {
            thread::sleep(LATE);
            return world.barrier().unwrap();
        }
        let begun = Instant::now();
        let (ended, polls) = run(world.barrier_begin().unwrap());
        ended.unwrap();
        let most = 50.0 + 1000.0 * begun.elapsed().as_secs_f64(); // the first ones have no pause
        assert!((polls as f64) < most, "{polls} polls in {:?}", begun.elapsed());
    });
}

#[test]
fn ten_threads_share_a_context() {
    let context = Arc::new(alone());
    let weight = Arc::new(context.param("weight", &[4096]).unwrap());
    let unit = Arc::new(context.unit("layer", &[&weight]).unwrap());
    let threads: Vec<_> = (0..10)
        .map(|thread| {
            let (context, weight, unit) = (context.clone(), weight.clone(), unit.clone());
            thread::spawn(move || {
                for turn in 0..200 {
                    let full = unit.gather().unwrap();
                    assert_eq!(full.view(&weight).unwrap().as_slice::<f32>().unwrap()[turn], 0.0);
                    drop(full);
                    let world = context.world().unwrap();
                    world.all_reduce(&mut [1.0f32], ReduceOp::Sum).unwrap();
                    let name = format!("own.{thread}.{turn}");
                    let own = context.param(&name, &[turn as i64]).unwrap();
                    assert_eq!(own.count(), turn as u64);
                    context.progress().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(unit.info().unwrap().leases, 0);
}

#[test]
fn ranks_that_diverge_are_told_both_calls() {
    ranks(2, "zero3", |context| {
        let world = context.world().unwrap();
        let error = if context.rank() == 0 {
            world.broadcast(&mut [1u8; 3], 0).unwrap_err()
        } else {
            world.broadcast(&mut [1u8; 4], 0).unwrap_err()
        };
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.breaks_group());
        assert!(
            error.message().contains("rank 0") && error.message().contains("rank 1"),
            "{error}"
        );
        assert_eq!(world.status().unwrap_err().kind(), ErrorKind::Mismatch);
    });
}

#[test]
fn who_is_late_is_named() {
    ranks_with(
        2,
        "zero3",
        |options, _| options.timeout(Duration::from_millis(400)),
        |context| {
            let world = context.world().unwrap();
            if context.rank() == 1 {
                thread::sleep(Duration::from_millis(1200));
                return;
            }
            let barrier = world.barrier_begin().unwrap();
            assert!(!barrier.wait_timeout(Duration::from_millis(1)).unwrap());
            let error = barrier.wait().unwrap_err();
            assert_eq!((error.kind(), error.rank()), (ErrorKind::Timeout, Some(0)));
            assert!(error.message().contains("rank 1"), "{error}");
        },
    );
}

#[test]
fn an_update_that_is_given_up_breaks_the_group() {
    ranks(2, "zero3", |context| {
        let weight = context.param("weight", &[600]).unwrap();
        let unit = context.unit("layer", &[&weight]).unwrap();
        let world = context.world().unwrap();
        world.barrier().unwrap();
        // An update that both ranks have begun is granted, and giving it up would publish it.
        if context.rank() == 0 {
            drop(context.update_begin(&[&unit]).unwrap());
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while world.status().is_ok() && Instant::now() < deadline {
            thread::yield_now();
        }
        assert_eq!(world.status().unwrap_err().kind(), ErrorKind::Aborted);
    });
}

#[test]
fn a_panic_after_a_write_breaks_the_group() {
    ranks(2, "zero3", |context| {
        let weight = context.param("weight", &[600]).unwrap();
        let unit = context.unit("layer", &[&weight]).unwrap();
        if context.rank() == 1 {
            let body = std::panic::AssertUnwindSafe(|| {
                let mut update = context.update(&[&unit]).unwrap();
                update.write(&weight, &[3.0f32; 600]).unwrap();
                std::panic::resume_unwind(Box::new("the caller's own"));
            });
            let own = std::panic::catch_unwind(body).unwrap_err();
            assert_eq!(own.downcast_ref::<&str>(), Some(&"the caller's own"));
        } else {
            let mut update = context.update(&[&unit]).unwrap();
            update.write(&weight, &[3.0f32; 600]).unwrap();
            let _ = update.publish();
        }
        // No version of half its values.
        let error = unit.gather().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
        assert!(error.message().contains("rank 1 gave up the update of unit 'layer'"), "{error}");
    });
}

#[test]
fn everything_may_move_between_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<meron::Context>();
    shared::<meron::Plan>();
    shared::<meron::Group>();
    shared::<meron::Param>();
    shared::<meron::Unit>();
    shared::<meron::Operation>();
    shared::<meron::Transfer<f32>>();
    shared::<meron::PendingGather>();
    shared::<meron::PendingGatherInto>();
    shared::<meron::Gather>();
    shared::<meron::GatherCopy>();
    shared::<meron::PendingUpdate>();
    shared::<meron::Update>();
    shared::<meron::Gradients>();
    shared::<meron::Reduced>();
    shared::<meron::Optimizer>();
    shared::<meron::States<'static>>();
    shared::<meron::OwnedStates>();
    shared::<meron::Schedule>();
    shared::<meron::Entered>();
    shared::<meron::Entering>();
    shared::<meron::View<'static>>();
    shared::<meron::ViewMut<'static>>();
    shared::<meron::DlpackTensor>();
    shared::<meron::Error>();
    shared::<meron::ContextOptions>();
}
