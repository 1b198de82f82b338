// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs and enums of meron/plan.h.

use meron_sys as sys;

/// Workload of a step, for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// The world size; a context uses its own.
    pub ranks: u32,
    /// Per optimizer step; default 1.
    pub micro_batches: u32,
    /// Of every unit; default 2: forward and backward.
    pub gathers_per_micro_batch: u32,
    /// Consecutive ranks that share memory; 0: all of them. A context uses its own.
    pub ranks_per_node: u32,
    /// Of the update rule per element, besides the master: 2 for AdamW and Adam, 1 for Adagrad,
    /// Lion and SGD with a momentum, 0 for SGD without one.
    pub optimizer_states: u32,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            ranks: 1,
            micro_batches: 1,
            gathers_per_micro_batch: 2,
            ranks_per_node: 0,
            optimizer_states: 2,
        }
    }
}

impl Workload {
    /// The world size; a context uses its own.
    #[must_use]
    pub fn ranks(mut self, value: u32) -> Workload {
        self.ranks = value;
        self
    }

    /// Per optimizer step; default 1.
    #[must_use]
    pub fn micro_batches(mut self, value: u32) -> Workload {
        self.micro_batches = value;
        self
    }

    /// Of every unit; default 2: forward and backward.
    #[must_use]
    pub fn gathers_per_micro_batch(mut self, value: u32) -> Workload {
        self.gathers_per_micro_batch = value;
        self
    }

    /// Consecutive ranks that share memory; 0: all of them. A context uses its own.
    #[must_use]
    pub fn ranks_per_node(mut self, value: u32) -> Workload {
        self.ranks_per_node = value;
        self
    }

    /// Of the update rule per element, besides the master: 2 for AdamW and Adam, 1 for Adagrad,
    /// Lion and SGD with a momentum, 0 for SGD without one.
    #[must_use]
    pub fn optimizer_states(mut self, value: u32) -> Workload {
        self.optimizer_states = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_workload {
        sys::meron_workload {
            ranks: self.ranks,
            micro_batches: self.micro_batches,
            gathers_per_micro_batch: self.gathers_per_micro_batch,
            ranks_per_node: self.ranks_per_node,
            optimizer_states: self.optimizer_states,
            ..sys::MERON_WORKLOAD_INIT
        }
    }
}
