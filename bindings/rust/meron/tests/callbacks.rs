// SPDX-License-Identifier: Apache-2.0
//! Closures that the library calls, and signals that reach a wait by them.

mod common;

use std::cell::RefCell;
use std::error::Error;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{job_name, modest, ranks_with, Bomb, Random};
use meron::{ErrorKind, Operation};

#[test]
fn a_wait_ends_when_it_is_told_to() {
    let stop = Arc::new(AtomicBool::new(false));
    let (asked, turn) = (stop.clone(), Arc::new(Barrier::new(2)));
    ranks_with(
        2,
        "zero3",
        move |options, rank| {
            let asked = asked.clone();
            options.should_stop(move || rank == 0 && asked.load(Ordering::Relaxed))
        },
        move |context| {
            let world = context.world().unwrap();
            if context.rank() == 0 {
                let mut sums = world.all_reduce_begin(vec![1.0f32; 3], Default::default()).unwrap();
                stop.store(true, Ordering::Relaxed);
                assert_eq!(sums.wait().unwrap_err().kind(), ErrorKind::Cancelled);
                stop.store(false, Ordering::Relaxed);
                turn.wait();
                // The operation went on: it can be waited for again.
                assert_eq!(sums.wait().unwrap(), [1.0; 3]);
            } else {
                turn.wait();
                world.all_reduce(&mut [1.0f32; 3], Default::default()).unwrap();
            }
            world.barrier().unwrap();
        },
    );
}

#[test]
fn a_panic_in_should_stop_ends_the_wait() {
    let turn = Arc::new(Barrier::new(2));
    ranks_with(
        2,
        "zero3",
        |options, rank| {
            let asked = AtomicUsize::new(0);
            options.should_stop(move || match (rank, asked.fetch_add(1, Ordering::Relaxed)) {
                (0, 0) => panic!("enough"),
                (0, _) => panic_any(Bomb),
                _ => false,
            })
        },
        move |context| {
            let world = context.world().unwrap();
            if context.rank() == 0 {
                let barrier = world.barrier_begin().unwrap();
                for text in ["enough", "with a value that is no text"] {
                    let error = barrier.wait().unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Cancelled);
                    let said = format!("should_stop panicked ({text})");
                    assert!(error.message().contains(&said), "{error}");
                    assert_eq!(error.source().unwrap().to_string(), text);
                }
                turn.wait();
            } else {
                turn.wait();
            }
        },
    );
}

/// Waits for an operation when its thread ends.
struct WaitsLate(Option<Operation>, Arc<Mutex<Option<ErrorKind>>>);

impl Drop for WaitsLate {
    fn drop(&mut self) {
        let kind = self.0.take().map(|operation| operation.wait().unwrap_err().kind());
        *self.1.lock().unwrap() = kind;
    }
}

thread_local! {
    static LATE: RefCell<Option<WaitsLate>> = const { RefCell::new(None) };
}

#[test]
fn should_stop_may_panic_while_its_thread_ends() {
    let turn = Arc::new(Barrier::new(2));
    ranks_with(
        2,
        "zero3",
        |options, rank| options.should_stop(move || if rank == 0 { panic!("stop") } else { false }),
        move |context| {
            if context.rank() == 0 {
                let barrier = context.world().unwrap().barrier_begin().unwrap();
                let found = Arc::new(Mutex::new(None));
                let told = found.clone();
                let ends = thread::spawn(move || {
                    // Made first, so dropped after the crate's own thread-locals.
                    LATE.with(|late| *late.borrow_mut() = Some(WaitsLate(None, told.clone())));
                    assert_eq!(barrier.wait().unwrap_err().kind(), ErrorKind::Cancelled);
                    let late = WaitsLate(Some(barrier), told);
                    let before = LATE.with(|place| place.borrow_mut().replace(late));
                    drop(before);
                });
                ends.join().unwrap();
                assert_eq!(*found.lock().unwrap(), Some(ErrorKind::Cancelled));
            }
            turn.wait();
        },
    );
}

#[test]
fn should_stop_begins_nothing() {
    let refused = Arc::new(Mutex::new(Vec::new()));
    let noted = refused.clone();
    ranks_with(
        2,
        "zero3",
        move |options, rank| {
            let noted = noted.clone();
            options.should_stop(move || {
                if rank == 0 {
                    let opened = modest().transport("self").rank(0).world_size(1).open();
                    noted.lock().unwrap().push(opened.err().map(|error| error.kind()));
                }
                false
            })
        },
        |context| {
            if context.rank() == 1 {
                thread::sleep(Duration::from_millis(400));
            }
            context.world().unwrap().barrier().unwrap();
        },
    );
    let refused = refused.lock().unwrap();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|kind| *kind == Some(ErrorKind::State)), "{refused:?}");
}

#[test]
fn log_messages_arrive_and_their_panics_stay() {
    let messages = Arc::new(AtomicUsize::new(0));
    let counted = messages.clone();
    let job = job_name();
    // A rank that waits for more than five seconds says whom for.
    let options = modest()
        .transport("local")
        .job(&job)
        .rank(0)
        .world_size(2)
        .timeout(Duration::from_secs(15))
        .log(move |_level, message| {
            assert!(!message.is_empty());
            counted.fetch_add(1, Ordering::Relaxed);
            panic_any(Bomb);
        });
    let peer = thread::spawn(move || {
        let options = modest().transport("local").job(&job).rank(1).world_size(2);
        let context = options.open().unwrap();
        thread::sleep(Duration::from_millis(5500));
        context.world().unwrap().barrier().unwrap();
        context.world().unwrap().barrier().unwrap();
    });
    let context = options.open().unwrap();
    context.world().unwrap().barrier().unwrap();
    context.world().unwrap().barrier().unwrap();
    peer.join().unwrap();
    assert!(messages.load(Ordering::Relaxed) > 0);
}

// ---- Ctrl-C --------------------------------------------------------------------------------------

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn kill(process: i32, number: i32) -> i32;
}

extern "C" fn on_interrupt(_number: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// MERON_TEST_INTERRUPTS says how often.
#[test]
fn an_interrupt_ends_a_wait() {
    const SIGINT: i32 = 2;
    let times: u32 = match std::env::var("MERON_TEST_INTERRUPTS") {
        Ok(text) => text.parse().expect("MERON_TEST_INTERRUPTS is a number"),
        Err(_) => 50,
    };
    // SAFETY: the handler does nothing but store to an atomic.
    unsafe { signal(SIGINT, on_interrupt) };
    let turn = Arc::new(Barrier::new(2));
    ranks_with(
        2,
        "zero3",
        |options, rank| {
            options.should_stop(move || rank == 0 && INTERRUPTED.load(Ordering::Relaxed))
        },
        move |context| {
            let world = context.world().unwrap();
            let mut random = Random(7);
            for _ in 0..times {
                if context.rank() == 1 {
                    turn.wait();
                    world.barrier().unwrap();
                    continue;
                }
                let barrier = world.barrier_begin().unwrap();
                let delay = Duration::from_micros(random.bits() % 3000);
                let sender = thread::spawn(move || {
                    thread::sleep(delay);
                    // SAFETY: a signal to this process, which has a handler.
                    assert_eq!(unsafe { kill(std::process::id() as i32, SIGINT) }, 0);
                });
                let begin = Instant::now();
                assert_eq!(barrier.wait().unwrap_err().kind(), ErrorKind::Cancelled);
                assert!(begin.elapsed() < Duration::from_secs(10));
                sender.join().unwrap();
                INTERRUPTED.store(false, Ordering::Relaxed);
                turn.wait();
                barrier.wait().unwrap();
            }
        },
    );
}
