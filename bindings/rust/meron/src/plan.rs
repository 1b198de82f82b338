// SPDX-License-Identifier: Apache-2.0
//! Plans: which state is cut over which ranks.

use std::fmt;
use std::os::raw::c_char;
use std::str::FromStr;

use meron_sys as sys;

use crate::call::{c_string, receive, receive_text};
use crate::error::{Error, Result};
use crate::handle::Owned;
use crate::home::ForCall;
use crate::system::require_version;
use crate::values::Workload;

/// A strategy: the ranks and the dtype of each kind of state.
///
/// Pure data: creating, printing and predicting use no file and no peer.
///
/// ```
/// use meron::{Plan, Workload};
///
/// let plan = Plan::preset("zero2")?;
/// let same: Plan = plan.to_json()?.parse()?;
/// assert_eq!(same.to_json()?, plan.to_json()?);
///
/// let model = r#"{"parameters": 7000000000, "layers": 32, "dtype": "bf16"}"#;
/// println!("{}", plan.predict_table(model, &Workload::default().ranks(8))?);
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Plan(Owned<sys::meron_plan>);

impl ForCall for Plan {
    type Raw = sys::meron_plan;

    fn for_call(&self) -> Result<sys::meron_plan> {
        Ok(self.as_raw())
    }
}

impl Plan {
    /// One of the named plans: `"zero0"` (everything replicated), `"zero1"` (optimizer states cut),
    /// `"zero2"` (gradients too), `"zero3"` (parameters too); for several nodes `"mics(4)"` (zero3
    /// within groups of 4 ranks), `"hpz(4)"` (zero3 with a secondary partition of the parameters in
    /// each group), `"zeropp(4)"` (the same, with parameters in int8 and gradients in int4 between
    /// groups). Without an argument a group is the ranks of a node.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for another name; the message lists the known ones.
    pub fn preset(name: &str) -> Result<Plan> {
        require_version()?;
        let name = c_string(name, "the name of a plan")?;
        // SAFETY: both pointers are valid during the call.
        receive(sys::meron_plan::default(), |out, err| unsafe {
            sys::meron_plan_preset(out, name.as_ptr(), err)
        })
        .map(|handle| Plan(Owned::new(handle)))
    }

    /// Reads a plan from JSON, such as `{"preset": "zero2", "gradient": {"dtype": "f32"}}`.
    ///
    /// # Errors
    ///
    /// [`Parse`](crate::ErrorKind::Parse) with line and key,
    /// [`Argument`](crate::ErrorKind::Argument), [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn parse(json: &str) -> Result<Plan> {
        require_version()?;
        // SAFETY: the text is only read, during the call, `json.len()` bytes of it.
        receive(sys::meron_plan::default(), |out, err| unsafe {
            sys::meron_plan_parse(out, json.as_ptr() as *const c_char, json.len(), err)
        })
        .map(|handle| Plan(Owned::new(handle)))
    }

    /// Predicts bytes per link and step, and peak bytes, per rank, as JSON.
    ///
    /// `model` is JSON: `{"parameters": N, "layers": L, "dtype": "bf16"}`, or
    /// `{"units": [{"name": ..., "tensors": [{"name", "shape", "dtype"}]}]}`.
    ///
    /// # Errors
    ///
    /// [`Parse`](crate::ErrorKind::Parse), [`Argument`](crate::ErrorKind::Argument).
    pub fn predict(&self, model: &str, workload: &Workload) -> Result<String> {
        self.prediction(model, workload, 0)
    }

    /// The same as a table for people.
    pub fn predict_table(&self, model: &str, workload: &Workload) -> Result<String> {
        self.prediction(model, workload, 1)
    }

    fn prediction(&self, model: &str, workload: &Workload, table: u32) -> Result<String> {
        let workload = workload.raw();
        let text = model.as_ptr() as *const c_char;
        // SAFETY: `model` and `workload` are only read, during the call.
        receive_text(|out, err| unsafe {
            sys::meron_plan_predict(out, self.0.raw(), text, model.len(), &workload, table, err)
        })
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_plan {
        self.0.raw()
    }

    /// Releases the plan, as dropping it does. A context that was opened with it keeps it.
    pub fn release(self) -> Result<()> {
        self.0.release()
    }
}

impl FromStr for Plan {
    type Err = Error;

    /// JSON, or a preset's name.
    fn from_str(text: &str) -> Result<Plan> {
        if text.trim_start().starts_with('{') {
            Plan::parse(text)
        } else {
            Plan::preset(text)
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_json().unwrap_or_else(|error| error.to_string()))
    }
}
