// SPDX-License-Identifier: Apache-2.0
//! When the task of a pending future is polled again.
//!
//! The library has no event that a task could wait for, and a future has no executor of its own. So
//! a task is woken at once for its first polls, and then by a thread, ever more seldom. The thread
//! ends when no task has needed it for a while.

use std::cmp::min;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use crate::failures::contained;

/// Polls after which a task is woken at once.
const AT_ONCE: u32 = 16;
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(2);
/// Time without any task after which the thread ends.
const IDLE: Duration = Duration::from_millis(200);

/// The number of times that a future was polled before its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Has the task polled again.
    pub(crate) fn wake_later(&mut self, waker: &Waker) {
        self.0 = self.0.saturating_add(1);
        if self.0 <= AT_ONCE {
            return waker.wake_by_ref();
        }
        let doubled = min(self.0 - AT_ONCE - 1, 10);
        let pause = min(SHORTEST * (1 << doubled), LONGEST);
        if !wake_at(Instant::now() + pause, waker) {
            waker.wake_by_ref();
        }
    }
}

struct Sleeping {
    tasks: Vec<(Instant, Waker)>,
    /// The process whose thread wakes them: a fork has no thread. 0 for none.
    thread_of: u32,
}

static SLEEPING: Mutex<Sleeping> = Mutex::new(Sleeping { tasks: Vec::new(), thread_of: 0 });
static CHANGED: Condvar = Condvar::new();

fn sleeping() -> MutexGuard<'static, Sleeping> {
    SLEEPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// False if there is no thread that could wake it.
fn wake_at(when: Instant, waker: &Waker) -> bool {
    let waker = waker.clone(); // the program's code, so outside of the lock
    let mut all = sleeping();
    if all.thread_of != process::id() {
        if thread::Builder::new().name("meron-wake".to_string()).spawn(wake_tasks).is_err() {
            return false;
        }
        all.thread_of = process::id();
    }
    let is_first = all.tasks.iter().all(|(other, _)| when < *other);
    all.tasks.push((when, waker));
    drop(all);
    if is_first {
        CHANGED.notify_one();
    }
    true
}

fn wake_tasks() {
    let mut all = sleeping();
    loop {
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut all.tasks).into_iter().partition(|t| t.0 <= now);
        all.tasks = later;
        let due: Vec<(Instant, Waker)> = due;
        if !due.is_empty() {
            drop(all);
            for (_, waker) in due {
                let _ = contained(|| waker.wake());
            }
            all = sleeping();
            continue;
        }
        let next = all.tasks.iter().map(|task| task.0).min();
        let pause = next.map_or(IDLE, |next| next - now);
        let (woken, waited) =
            CHANGED.wait_timeout(all, pause).unwrap_or_else(PoisonError::into_inner);
        all = woken;
        if waited.timed_out() && all.tasks.is_empty() {
            all.thread_of = 0;
            return;
        }
    }
}
