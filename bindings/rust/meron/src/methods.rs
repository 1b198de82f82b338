// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Calls of the library as methods.

use meron_sys as sys;

use crate::call::{check, receive, receive_text};
use crate::home::ForCall;
use crate::operation::begin;
use crate::{Context, Group, Io, Operation, Optimizer, Plan, Result, Schedule, Unit};

impl Context {
    /// The plan that the context was opened with, as JSON that meron_plan_parse reads back to an
    /// equal plan; "zero3" if it was opened without one.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Forked`.
    pub fn plan_json(&self) -> Result<String> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive_text(|out, err| unsafe { sys::meron_context_plan_json(out, handle, err) })
    }

    /// A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a
    /// future of the context may have advanced. A thread of the engine writes to it when a peer
    /// has done something, and at least 50 times a second while an operation is pending; it
    /// advances no operation. In the loop, call meron_context_progress, which clears the
    /// descriptor, or read its 8 bytes; then poll the futures. Clear it before the polls: what
    /// comes later makes it readable again. Poll a future once after its begin, too: if it has
    /// ended by then, no sign follows. Futures of io.h are of no context and have none.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Closed`,
    /// `ErrorKind::Forked`, `ErrorKind::NoMemory` (no thread), `ErrorKind::Io` (no descriptor is
    /// left).
    pub fn event_fd(&self) -> Result<i32> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive(0, |out, err| unsafe { sys::meron_context_event_fd(out, handle, err) })
    }

    /// The flight recorder: the last operations (up to 1,024) of every rank of the world, as
    /// JSON. Works on a broken group too.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Forked`.
    pub fn flight_record(&self) -> Result<String> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive_text(|out, err| unsafe { sys::meron_context_flight_record(out, handle, err) })
    }

    /// Cancels the pending save. Any rank may do so, without the others: all of them stop
    /// writing, and the save's future ends on each with `ErrorKind::Cancelled`, whose peer is a
    /// rank that cancelled. If all ranks have written their files by then, the save succeeds
    /// instead, on all of them. A cancelled save leaves no files, also with `overwrite` and
    /// `keep`: earlier checkpoints stay as they were. If a process is killed meanwhile, a hidden
    /// directory may remain (.saving-...), which the next save removes. The next save does not
    /// report the cancelled one. It begins nothing and waits for nothing: wait for the future.
    /// Returns MERON_OK also if no save is pending.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Closed`, `ErrorKind::Forked`.
    pub fn cancel_save(&self) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_checkpoint_cancel_save(handle, err) })
    }
}

impl Plan {
    /// The plan as JSON that meron_plan_parse reads back to an equal plan.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn to_json(&self) -> Result<String> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive_text(|out, err| unsafe { sys::meron_plan_json(out, handle, err) })
    }

    /// The plan as a table for people, several lines.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn to_table(&self) -> Result<String> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive_text(|out, err| unsafe { sys::meron_plan_table(out, handle, err) })
    }
}

impl Group {
    /// This rank's number in the group.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Forked`.
    pub fn rank(&self) -> Result<i32> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive(0, |out, err| unsafe { sys::meron_group_rank(out, handle, err) })
    }

    /// The number of ranks in the group.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Forked`.
    pub fn size(&self) -> Result<i32> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive(0, |out, err| unsafe { sys::meron_group_size(out, handle, err) })
    }

    /// Begins a barrier: the future ends when every rank of the group has begun it.
    ///
    /// Blocks if this rank is 1,024 calls ahead of a peer, until that peer has followed, at most
    /// the deadline; and while another thread of this rank begins an operation.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`, `ErrorKind::Cancelled`,
    /// `ErrorKind::Timeout`, `ErrorKind::PeerDead`, `ErrorKind::PeerClosed`,
    /// `ErrorKind::Mismatch`, `ErrorKind::Aborted`, `ErrorKind::Auth`, `ErrorKind::Version`,
    /// `ErrorKind::Forked`.
    pub fn barrier_begin(&self) -> Result<Operation> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        begin(self.shared(), |out, err| unsafe { sys::meron_barrier_begin(out, handle, err) })
    }

    /// As `barrier_begin`, and waits for its end. Blocks as `Operation::wait`, and gives the
    /// errors of both.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_begin()?.wait()
    }
}

impl Unit {
    /// Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If
    /// the codec has feedback, the next gradient makes up for what was lost of this one.
    ///
    /// Blocks only while another thread of this rank begins an operation.
    ///
    /// # Errors
    ///
    /// `ErrorKind::State` (there is none, or a reduction or step is pending),
    /// `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn consume(&self) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_reduce_consume(handle, err) })
    }

    /// Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if
    /// a loss scale changes that is not a part of options.divisor, with the new scale divided by
    /// the old one. Does nothing if the plan has no feedback.
    ///
    /// `factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.
    ///
    /// Blocks while another thread of this rank begins an operation and, if there is feedback,
    /// while a save copies it.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument` (the factor), `ErrorKind::State` (a reduction is pending),
    /// `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn scale_feedback(&self, factor: f64) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_reduce_scale_feedback(handle, factor, err) })
    }
}

impl Optimizer {
    /// Sets the learning rate of the next steps for params of group 0; the same on all ranks (it
    /// is part of the step's fingerprint).
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_optimizer_set_learning_rate(handle, learning_rate, err) })
    }

    /// Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones
    /// stay; 0 does not clip. The same on all ranks (it is part of the step's fingerprint).
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::Handle`, `ErrorKind::Stale`.
    pub fn set_max_norm(&mut self, max_norm: f64) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_optimizer_set_max_norm(handle, max_norm, err) })
    }

    /// Sets the number of steps that the optimizer and all of its params have taken, for an
    /// optimizer that continues from a checkpoint, beside its states
    /// (meron_optimizer_write_state). Adam's bias corrections, the first step of SGD with a
    /// momentum (which takes no average) and the random rounding of states in 16 or 8 bits depend
    /// on it. All ranks set the same number, because the fingerprint of the next step includes
    /// it. Changes nothing else.
    ///
    /// `steps`: at most 2^53.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::State` (a step is pending), `ErrorKind::Handle`,
    /// `ErrorKind::Stale`.
    pub fn set_steps(&mut self, steps: u64) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_optimizer_set_steps(handle, steps, err) })
    }
}

impl Schedule {
    /// Releases all units that stay full or were prefetched. Call it before an update, an
    /// optimizer step, a save or a load, which need all leases released. The pass and the
    /// recorded orders stay. Local.
    ///
    /// Blocks only while another thread of this rank begins an operation.
    ///
    /// # Errors
    ///
    /// `ErrorKind::State` (names the units that are entered), `ErrorKind::Handle`,
    /// `ErrorKind::Stale`, `ErrorKind::Forked`.
    pub fn drop_all(&self) -> Result<()> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        check(|err| unsafe { sys::meron_schedule_drop(handle, err) })
    }
}

impl Io {
    /// Describes the speed for people, one line per fact: the backend and the kernel's grants,
    /// the reason if it is not a faster one, and the files that use the page cache with the
    /// reason.
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// `ErrorKind::Argument`, `ErrorKind::NoMemory`, `ErrorKind::Handle`, `ErrorKind::Stale`,
    /// `ErrorKind::Forked`.
    pub fn describe(&self) -> Result<String> {
        let handle = self.for_call()?;
        // SAFETY: a wrong handle gives an error; texts live during the call.
        receive_text(|out, err| unsafe { sys::meron_io_describe(out, handle, err) })
    }
}
