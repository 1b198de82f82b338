// SPDX-License-Identifier: Apache-2.0
//! Ranks as threads of the test's process.

#![allow(dead_code, unreachable_pub)] // each test file uses a part of it

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use meron::{Context, ContextOptions, Plan};

/// Options that leave room for other tests on the machine.
pub fn modest() -> ContextOptions {
    Context::options().threads(1).arena_reserve(64 << 20).timeout(Duration::from_secs(20))
}

/// A context of one rank.
pub fn alone() -> Context {
    modest().transport("self").rank(0).world_size(1).open().unwrap()
}

/// A name that no other job of this process has.
pub fn job_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("rust-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs `body` as each rank of a world of threads, under a plan; a panic of any of them is one of the
/// caller.
pub fn ranks(count: i32, plan: &str, body: impl Fn(Context) + Send + Sync + 'static) {
    ranks_with(count, plan, |options, _rank| options, body)
}

/// The same with other options.
pub fn ranks_with(
    count: i32,
    plan: &str,
    with: impl Fn(ContextOptions, i32) -> ContextOptions + Send + Sync + 'static,
    body: impl Fn(Context) + Send + Sync + 'static,
) {
    let (job, plan) = (job_name(), plan.to_string());
    let (with, body) = (Arc::new(with), Arc::new(body));
    let threads: Vec<_> = (0..count)
        .map(|rank| {
            let (job, plan, with, body) = (job.clone(), plan.clone(), with.clone(), body.clone());
            thread::spawn(move || {
                let options = modest()
                    .transport("local")
                    .job(&job)
                    .rank(rank)
                    .world_size(count)
                    .plan(Plan::preset(&plan).unwrap());
                body(with(options, rank).open().unwrap())
            })
        })
        .collect();
    for thread in threads {
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Unparks>) {
        self.0.unpark();
    }
}

/// A minimal executor: polls a future when its task is woken. Returns the number of polls.
pub fn run<F: Future + Unpin>(mut future: F) -> (F::Output, usize) {
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut task = TaskContext::from_waker(&waker);
    for polls in 1.. {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut task) {
            return (output, polls);
        }
        let paused = Instant::now();
        thread::park_timeout(Duration::from_secs(20));
        assert!(paused.elapsed() < Duration::from_secs(20), "a future must wake its task");
    }
    unreachable!()
}

/// The value of a panic, which panics again when it is dropped.
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("the value of a panic was dropped");
    }
}

/// A random number that depends on the seed alone (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }
}
