// SPDX-License-Identifier: Apache-2.0
//! Which memory of a unit is shown to the program as a slice.
//!
//! A unit is shared freely between threads and objects, so the compiler cannot see that a gradient is
//! written through one guard while another asks for it. Each unit counts, as a `RefCell` does; a
//! conflict is an error of kind `State`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::raw_future::RawFuture;

/// State of a unit that its objects share.
pub(crate) struct UnitState {
    pub name: String,
    /// The handles of its params.
    pub params: Vec<u64>,
    /// The gradient bucket, or what it was reduced to: one user.
    gradient: AtomicUsize,
    /// The values where they lie: updates write, an optimizer's master states of f32 read.
    values: AtomicUsize,
    /// The last optimizer step that the unit took part in.
    step: Mutex<Option<RawFuture>>,
}

/// The kind of use that a guard represents.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    Gradient,
    ReadValues,
    WriteValues,
}

/// The mark of an exclusive user; smaller numbers count users that share.
const EXCLUSIVE: usize = usize::MAX;

impl UnitState {
    pub(crate) fn new(name: &str, params: Vec<u64>) -> Arc<UnitState> {
        Arc::new(UnitState {
            name: name.to_string(),
            params,
            gradient: AtomicUsize::new(0),
            values: AtomicUsize::new(0),
            step: Mutex::new(None),
        })
    }

    fn counter(&self, to: Use) -> &AtomicUsize {
        match to {
            Use::Gradient => &self.gradient,
            Use::ReadValues | Use::WriteValues => &self.values,
        }
    }

    /// An error while an optimizer's step may use the unit's reduced gradient. The caller keeps the
    /// context's closures alive, which asking for the step may call.
    pub(crate) fn require_no_step(&self) -> Result<()> {
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        match &*step {
            Some(step) if step.is_under_way() => Err(Error::state(
                &self.name,
                &format!("a step of unit '{}' is under way", self.name),
                "wait for the step",
            )),
            _ => Ok(()),
        }
    }

    /// Notes the step that uses the unit from now on.
    pub(crate) fn set_step(&self, step: &RawFuture) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(step.clone());
    }

    /// An error unless the param with this handle is in the unit.
    pub(crate) fn require(&self, param: u64, name: &str) -> Result<()> {
        if self.params.contains(&param) {
            return Ok(());
        }
        Err(Error::argument(
            name,
            &format!("param '{name}' is not in unit '{}'", self.name),
            "ask the unit that has the param",
        ))
    }
}

/// Memory of a unit in use, until it is dropped.
pub(crate) struct InUse {
    unit: Arc<UnitState>,
    to: Use,
}

impl InUse {
    /// Registers a use, or says which one is in the way.
    pub(crate) fn begin(unit: &Arc<UnitState>, to: Use) -> Result<InUse> {
        let counter = unit.counter(to);
        let begun = match to {
            Use::ReadValues => counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| {
                if users >= EXCLUSIVE - 1 {
                    None
                } else {
                    Some(users + 1)
                }
            }),
            Use::Gradient | Use::WriteValues => {
                counter.compare_exchange(0, EXCLUSIVE, Ordering::AcqRel, Ordering::Acquire)
            }
        };
        if begun.is_ok() {
            return Ok(InUse { unit: unit.clone(), to });
        }
        let (what, advice) = match to {
            Use::Gradient => (
                "the gradient of unit '{}' is in use",
                "drop what Unit::gradients or Unit::reduced gave, and let one thread work on it",
            ),
            Use::ReadValues => ("unit '{}' is being updated", "publish the update first"),
            Use::WriteValues => (
                "the values of unit '{}' are in use",
                "drop what Optimizer::states gave, or publish the update",
            ),
        };
        Err(Error::state(&unit.name, &what.replace("{}", &unit.name), advice))
    }

    /// The same for several units; all or none. (What to say of a unit that is given twice is up to
    /// the library.)
    pub(crate) fn begin_all(units: &[Arc<UnitState>], to: Use) -> Result<Vec<InUse>> {
        let mut begun: Vec<InUse> = Vec::with_capacity(units.len());
        for unit in units {
            match InUse::begin(unit, to) {
                Ok(in_use) => begun.push(in_use),
                Err(_) if begun.iter().any(|other| Arc::ptr_eq(&other.unit, unit)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(begun)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let counter = self.unit.counter(self.to);
        match self.to {
            Use::ReadValues => counter.fetch_sub(1, Ordering::Release),
            Use::Gradient | Use::WriteValues => counter.swap(0, Ordering::Release),
        };
    }
}

/// Uses of the optimizers' states that concern all units of a context, also those that another
/// thread makes meanwhile.
#[derive(Default)]
pub(crate) struct StateUses(Mutex<StateUseCounts>);

#[derive(Clone, Copy, Default)]
struct StateUseCounts {
    shown: usize,
    exported: usize,
    loaded: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum StateUse {
    /// A guard gives slices of them, or a call writes one.
    Shown,
    /// An export reads masters.
    Exported,
    /// A load writes them, and values.
    Loaded,
}

impl StateUseCounts {
    fn of(&mut self, to: StateUse) -> &mut usize {
        match to {
            StateUse::Shown => &mut self.shown,
            StateUse::Exported => &mut self.exported,
            StateUse::Loaded => &mut self.loaded,
        }
    }

    /// The use that forbids this one, and advice; `None` if it may begin.
    fn in_the_way_of(self, to: StateUse) -> Option<(&'static str, &'static str)> {
        let shown = matches!(to, StateUse::Shown);
        if self.loaded > 0 {
            Some(("a checkpoint is being loaded", "wait for the load"))
        } else if shown && self.exported > 0 {
            Some(("an export reads the states", "wait for the export"))
        } else if !shown && self.shown > 0 {
            Some(("states of an optimizer are shown", "drop what Optimizer::states gave"))
        } else if matches!(to, StateUse::Loaded) && self.exported > 0 {
            Some(("an export reads the states", "wait for the export"))
        } else {
            None
        }
    }
}

/// One use of a context's states, until it is dropped.
pub(crate) struct StatesInUse {
    uses: Arc<StateUses>,
    to: StateUse,
}

impl StatesInUse {
    /// Registers a use, or says which one is in the way.
    pub(crate) fn begin(uses: &Arc<StateUses>, to: StateUse) -> Result<StatesInUse> {
        let mut counts = uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((what, advice)) = counts.in_the_way_of(to) {
            return Err(Error::state("", what, advice));
        }
        *counts.of(to) += 1;
        Ok(StatesInUse { uses: uses.clone(), to })
    }
}

impl Drop for StatesInUse {
    fn drop(&mut self) {
        let mut counts = self.uses.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.of(self.to) -= 1;
    }
}
